"""CrewAI: nine tasks of three agents, each quoting the results of earlier tasks; a tool, streams, schemas."""

from __future__ import annotations

import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}

import asyncio
from functools import wraps
from typing import Any

from checks import BRIEFS, TASK, TURNS, Check, Target, main, reused
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from pydantic import BaseModel

NAME = "crewai"


class Price(BaseModel):
    """A price."""

    price: int
    sure: bool


@tool("price")
def price(item: str) -> str:
    """The price of an item."""
    return "25"


def model(target: Target, check: str, agent: str = "ann", most: int = 24, **options: Any) -> LLM:
    url = target.of(f"{NAME}-{check}", agent)
    fixed = {"temperature": 0, "max_tokens": most, **options}
    return LLM(model=f"openai/{target.model}", base_url=url, api_key=target.key, **fixed)


def trader(llm: LLM, agent: str = "ann", **options: Any) -> Agent:
    return Agent(role=f"{agent}, a trader", goal=BRIEFS[agent], backstory="You trade boats.", llm=llm, **options)


def work(agent: Agent, description: str = TASK, **options: Any) -> Task:
    return Task(description=description, expected_output="One sentence.", agent=agent, **options)


def talk(target: Target) -> dict[str, Any]:
    traders, tasks = {agent: trader(model(target, "talk", agent), agent) for agent in BRIEFS}, list[Task]()
    for turn in range(TURNS):
        agent = traders[list(BRIEFS)[turn % len(BRIEFS)]]
        tasks.append(work(agent, context=list(tasks)))
    crew = Crew(agents=list(traders.values()), tasks=tasks)
    return reused(target, lambda: len(crew.kickoff().tasks_output))


def tools(target: Target) -> dict[str, Any]:
    """Sets penalties, as users' presets do."""
    agent = trader(model(target, "tools", most=96, frequency_penalty=0.5, presence_penalty=0.5), tools=[price])
    crew = Crew(agents=[agent], tasks=[work(agent, f"What is the price of the {item}?") for item in ("boat", "oar")])
    return {"turns": len(crew.kickoff().tasks_output)}


def stream(target: Target) -> int:
    agent = trader(model(target, "stream"))
    return len(list(Crew(agents=[agent], tasks=[work(agent)], stream=True).kickoff()))


def schema(target: Target) -> list[Any]:
    agent = trader(model(target, "schema", most=96))
    task = work(agent, "Name a price.", output_pydantic=Price)
    return [Crew(agents=[agent], tasks=[task]).kickoff().pydantic.model_dump()]


def beside(check: Check) -> Check:
    """Runs a check in a thread: CrewAI refuses to run inside an event loop."""

    @wraps(check)
    async def ran(target: Target) -> Any:
        return await asyncio.to_thread(check, target)

    return ran


main(*map(beside, (talk, tools, stream, schema)))

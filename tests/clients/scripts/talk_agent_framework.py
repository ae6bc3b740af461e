"""Microsoft's agent-framework over /v1/responses, with sessions kept by the server: a talk, optional and required tool
calls, streams, schemas."""

from __future__ import annotations

from typing import Any

from agent_framework import Agent, AgentSession
from agent_framework.openai import OpenAIChatClient
from checks import BRIEFS, TASK, TURNS, Target, main, reused_async
from pydantic import BaseModel

NAME = "agent_framework"


class Price(BaseModel):
    """A price."""

    price: int
    sure: bool


def price(item: str) -> str:
    """The price of an item."""
    return "25"


def agent(target: Target, check: str, name: str = "ann", most: int = 24, tools: Any = None, **options: Any) -> Agent:
    client = OpenAIChatClient(target.model, base_url=target.of(f"{NAME}-{check}", name), api_key=target.key)
    fixed = {"temperature": 0, "max_tokens": most, **options}
    return Agent(client, BRIEFS[name], name=name, tools=tools, default_options=fixed)


def kept(session: AgentSession) -> bool:
    """Whether the server keeps the session, so that the client continues it by id."""
    return session.service_session_id is not None


async def talk(target: Target) -> dict[str, Any]:
    """A talk in which each agent has a session and reads in its turn what the others have said since its last."""
    agents = {name: agent(target, "talk", name) for name in BRIEFS}
    sessions = {name: each.create_session() for name, each in agents.items()}
    heard: dict[str, list[Any]] = {name: [TASK] for name in BRIEFS}

    async def turns() -> int:
        said = 0
        for turn in range(TURNS):
            name = list(BRIEFS)[turn % len(BRIEFS)]
            answer = await agents[name].run(heard.pop(name), session=sessions[name])
            heard[name] = []
            for other in BRIEFS.keys() - {name}:
                heard[other] += answer.messages
            said += kept(sessions[name])
        return said

    return await reused_async(target, turns())


async def tools(target: Target) -> dict[str, Any]:
    ann, turns = agent(target, "tools", most=96, tools=[price], frequency_penalty=0.5, presence_penalty=0.5), 0
    session = ann.create_session()
    for item in ("boat", "oar"):
        await ann.run(f"What is the price of the {item}?", session=session)
        turns += kept(session)
    forced = agent(target, "tools", "ben", 96, [price], tool_choice="required")
    contents = [each for message in (await forced.run("Price?")).messages for each in message.contents]
    [call, *_] = [each for each in contents if each.type == "function_call"]
    return {"turns": turns, "called": call.name, "answered": contents[-1].type == "text"}


async def stream(target: Target) -> int:
    return len([each async for each in agent(target, "stream").run(TASK, stream=True)])


async def schema(target: Target) -> list[Any]:
    answer = await agent(target, "schema", most=96).run("Name a price.", options={"response_format": Price})
    return [answer.value.model_dump()]


main(talk, tools, stream, schema)

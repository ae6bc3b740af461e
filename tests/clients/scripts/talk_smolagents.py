"""smolagents, which merges adjacent messages of one role: three models taking turns; agents with a tool; streams."""

from __future__ import annotations

import json
from typing import Any

from checks import BRIEFS, TASK, TURNS, Target, main, reused
from smolagents import ChatMessage, CodeAgent, OpenAIServerModel, ToolCallingAgent, tool

NAME = "smolagents"
SCHEMA = {
    "type": "object",
    "properties": {"price": {"type": "integer"}, "sure": {"type": "boolean"}},
    "required": ["price", "sure"],
    "additionalProperties": False,
}


@tool
def price(item: str) -> str:
    """The price of an item.

    Args:
        item: What it is.
    """
    return "25"


def model(target: Target, check: str, agent: str = "ann", most: int = 24) -> OpenAIServerModel:
    url = target.of(f"{NAME}-{check}", agent)
    return OpenAIServerModel(target.model, api_base=url, api_key=target.key, temperature=0, max_tokens=most)


def message(role: str, text: str) -> ChatMessage:
    return ChatMessage(role=role, content=[{"type": "text", "text": text}])


def talk(target: Target) -> dict[str, Any]:
    models, said = {agent: model(target, "talk", agent) for agent in BRIEFS}, list[tuple[str, str]]()

    def turns() -> int:
        for turn in range(TURNS):
            agent = list(BRIEFS)[turn % len(BRIEFS)]
            heard = [message("assistant" if who == agent else "user", text) for who, text in said]
            prompt = [message("system", BRIEFS[agent]), message("user", TASK), *heard]
            said.append((agent, models[agent].generate(prompt).content))
        return len(said)

    return reused(target, turns)


def tools(target: Target) -> dict[str, Any]:
    """The small model rarely produces a sensible call; the agents still have to finish."""
    called = ToolCallingAgent([price], model(target, "tools", most=96), max_steps=2, verbosity_level=0)
    coded = CodeAgent([price], model(target, "tools", "ben", 96), max_steps=2, verbosity_level=0)
    for agent in (called, coded):
        agent.run("What is the price of the boat?")
    return {"turns": sum(len(agent.memory.steps) > 1 for agent in (called, coded))}


def stream(target: Target) -> int:
    return len(list(model(target, "stream").generate_stream([message("user", TASK)])))


def schema(target: Target) -> list[Any]:
    wanted = {"type": "json_schema", "json_schema": {"name": "price", "schema": SCHEMA}}
    asked = [message("user", "Name a price.")]
    return [json.loads(model(target, "schema", most=96).generate(asked, response_format=wanted).content)]


main(talk, tools, stream, schema)

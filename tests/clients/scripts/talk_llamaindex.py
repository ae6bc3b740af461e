"""LlamaIndex through its OpenAI-like model: a talk, optional and required tool calls, streams, schemas."""

from __future__ import annotations

import asyncio
from typing import Any

from checks import BRIEFS, TASK, TURNS, Target, main, reused
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

NAME = "llamaindex"


class Price(BaseModel):
    """A price."""

    price: int
    sure: bool


def price(item: str) -> str:
    """The price of an item."""
    return "25"


def model(target: Target, check: str, agent: str = "ann", most: int = 24, **options: Any) -> OpenAILike:
    url = target.of(f"{NAME}-{check}", agent)
    fixed = {"temperature": 0, "max_tokens": most, "context_window": 8192, "is_chat_model": True, **options}
    return OpenAILike(target.model, api_base=url, api_key=target.key, is_function_calling_model=True, **fixed)


def talk(target: Target) -> dict[str, Any]:
    said = [ChatMessage(role="user", content=TASK)]

    def turns() -> int:
        for turn in range(TURNS):
            agent = list(BRIEFS)[turn % len(BRIEFS)]
            brief = ChatMessage(role="system", content=BRIEFS[agent])
            said.append(model(target, "talk", agent).chat([brief, *said]).message)
        return len(said) - 1

    return reused(target, turns)


async def tools(target: Target) -> dict[str, Any]:
    agent = FunctionAgent(tools=[price], llm=model(target, "tools", most=96), system_prompt=BRIEFS["ann"])
    context, turns = Context(agent), 0
    for item in ("boat", "oar"):
        await agent.run(f"What is the price of the {item}?", ctx=context)
        turns += 1
    llm = model(target, "tools", most=96)
    asked = await llm.achat_with_tools([FunctionTool.from_defaults(price)], "Price?", tool_required=True)
    [call, *_] = llm.get_tool_calls_from_response(asked)
    return {"turns": turns, "called": call.tool_name}


def stream(target: Target) -> int:
    return len(list(model(target, "stream").stream_chat([ChatMessage(role="user", content=TASK)])))


async def schema(target: Target) -> list[Any]:
    models = (model(target, "schema", most=96, should_use_structured_outputs=way) for way in (False, True))
    found = await asyncio.gather(*(each.as_structured_llm(Price).acomplete("Name a price.") for each in models))
    return [each.raw.model_dump() for each in found]


main(talk, tools, stream, schema)

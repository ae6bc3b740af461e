"""pydantic-ai, chat completions."""

from __future__ import annotations

from typing import Any, Literal

from checks import PROMPT, Target, main, usage
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Move(BaseModel):
    move: Literal["cooperate", "defect"]
    sure: bool


def agent(target: Target, slow: bool = False, most: int = 256, **options: Any) -> Agent[None, Any]:
    key = target.slow_key if slow else target.key
    provider = OpenAIProvider(openai_client=AsyncOpenAI(base_url=target.url, api_key=key, max_retries=0))
    model = OpenAIChatModel(target.model, provider=provider)
    return Agent(model, model_settings={"max_tokens": most, "temperature": 0}, **options)


def spent(told: Any) -> dict[str, Any]:
    return usage(told.input_tokens, told.output_tokens, told.input_tokens + told.output_tokens)


async def plain(target: Target) -> dict[str, Any]:
    result = await agent(target, most=16).run(PROMPT)
    told = result.response
    return {"text": result.output, "ended": told.finish_reason, "model": told.model_name, "usage": spent(result.usage)}


async def stream(target: Target) -> dict[str, Any]:
    async with agent(target, most=16).run_stream(PROMPT) as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
        told = {"ended": result.response.finish_reason, "usage": spent(result.usage)}
    return {"pieces": len(pieces), "text": "".join(pieces), **told}


async def schema(target: Target) -> dict[str, Any]:
    return (await agent(target, output_type=NativeOutput(Move)).run(PROMPT)).output.model_dump()


async def tool(target: Target) -> dict[str, Any]:
    result = await agent(target, output_type=ToolOutput(Move, name="play")).run(PROMPT)
    (call,) = result.response.tool_calls
    return {"name": call.tool_name, **result.output.model_dump()}


async def limited(target: Target) -> None:
    for _ in range(3):
        await agent(target, slow=True, most=1).run(PROMPT)


async def abort(target: Target) -> dict[str, int]:
    async with agent(target, most=4000).run_stream(PROMPT) as result:
        await anext(result.stream_text(delta=True, debounce_by=None))
        during = await target.reached(1)
        await result.cancel()
    return {"during": during, "after": await target.reached(0)}


async def overflow(target: Target) -> None:
    await agent(target).run(target.too_long)


async def broken(target: Target) -> None:
    async with agent(target, most=64).run_stream(target.broken) as result:
        async for _ in result.stream_text():
            pass


main(plain, stream, schema, tool, limited, abort, overflow, broken)

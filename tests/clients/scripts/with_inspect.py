"""inspect-ai, chat completions ("openai-api/")."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from checks import PROMPT, Target, main, usage
from inspect_ai.model import GenerateConfig, Model, ResponseSchema, get_model
from inspect_ai.tool import Tool
from inspect_ai.tool import tool as as_tool
from inspect_ai.util import json_schema
from pydantic import BaseModel
from tenacity import RetryError


class Move(BaseModel):
    move: Literal["cooperate", "defect"]
    sure: bool


@as_tool
def play() -> Tool:
    async def execute(move: Literal["cooperate", "defect"], sure: bool) -> str:
        """Play a move.

        Args:
            move: Cooperate or defect.
            sure: Whether you are sure.
        """
        return f"{move} {sure}"

    return execute


def model(target: Target, slow: bool = False, stream: bool = False, **config: Any) -> Model:
    key, options = target.slow_key if slow else target.key, GenerateConfig(max_retries=0, **config)
    name = f"openai-api/agentcho/{target.model}"
    return get_model(
        name, base_url=target.url, api_key=key, config=options, stream=stream, memoize=False, max_retries=0
    )


def told(output: Any) -> dict[str, Any]:
    spent = output.usage
    cached = spent.input_tokens_cache_read or 0
    whole = usage(spent.input_tokens + cached, spent.output_tokens, spent.total_tokens)
    return {"text": output.completion, "ended": output.stop_reason, "model": output.model, "usage": whole}


async def plain(target: Target) -> dict[str, Any]:
    return told(await model(target, max_tokens=16, temperature=0).generate(PROMPT))


async def stream(target: Target) -> dict[str, Any]:
    return told(await model(target, stream=True, max_tokens=16, temperature=0).generate(PROMPT))


async def schema(target: Target) -> dict[str, Any]:
    form = ResponseSchema(name="move", json_schema=json_schema(Move))
    output = await model(target, response_schema=form, temperature=0).generate(PROMPT)
    return Move.model_validate_json(output.completion).model_dump()


async def tool(target: Target) -> dict[str, Any]:
    output = await model(target, temperature=0).generate(PROMPT, tools=[play()], tool_choice="any")
    (call,) = output.message.tool_calls
    return {"name": call.function, **call.arguments}


async def limited(target: Target) -> None:
    for _ in range(3):
        await once(model(target, slow=True, max_tokens=1), PROMPT)


async def once(asked: Model, text: str) -> None:
    """Raises the original error, which Inspect wraps after retrying."""
    try:
        await asked.generate(text)
    except RetryError as error:
        raise error.last_attempt.exception() from error


async def abort(target: Target) -> dict[str, int]:
    """Cancels a request without streaming while it runs."""
    asked = asyncio.create_task(model(target, max_tokens=4000).generate(PROMPT))
    during = await target.reached(1)
    asked.cancel()
    return {"during": during, "after": await target.reached(0)}


async def overflow(target: Target) -> dict[str, Any]:
    output = await model(target).generate(target.too_long)
    return {"ended": output.stop_reason}


async def broken(target: Target) -> None:
    await once(model(target, stream=True, max_tokens=64), target.broken)


main(plain, stream, schema, tool, limited, abort, overflow, broken)

"""The openai package, chat completions."""

from __future__ import annotations

from typing import Any, Literal

from checks import PROMPT, Target, main, usage
from openai import OpenAI
from pydantic import BaseModel


class Move(BaseModel):
    move: Literal["cooperate", "defect"]
    sure: bool


def client(target: Target, slow: bool = False) -> OpenAI:
    return OpenAI(base_url=target.url, api_key=target.slow_key if slow else target.key, max_retries=0)


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def plain(target: Target) -> dict[str, Any]:
    answer = client(target).chat.completions.create(
        model=target.model, messages=said(PROMPT), max_tokens=16, temperature=0
    )
    choice, spent = answer.choices[0], answer.usage
    return {
        "text": choice.message.content,
        "ended": choice.finish_reason,
        "model": answer.model,
        "usage": usage(spent.prompt_tokens, spent.completion_tokens, spent.total_tokens),
    }


def stream(target: Target) -> dict[str, Any]:
    pieces, spent, ended = [], None, None
    asked = {"model": target.model, "messages": said(PROMPT), "max_tokens": 16, "temperature": 0}
    for chunk in client(target).chat.completions.create(stream=True, stream_options={"include_usage": True}, **asked):
        pieces += [each.delta.content for each in chunk.choices if each.delta.content]
        ended = next((each.finish_reason for each in chunk.choices), None) or ended
        spent = chunk.usage or spent
    whole = usage(spent.prompt_tokens, spent.completion_tokens, spent.total_tokens)
    return {"pieces": len(pieces), "text": "".join(pieces), "ended": ended, "usage": whole}


def schema(target: Target) -> dict[str, Any]:
    answer = client(target).chat.completions.parse(
        model=target.model, messages=said(PROMPT), response_format=Move, temperature=0
    )
    return answer.choices[0].message.parsed.model_dump()


def tool(target: Target) -> dict[str, Any]:
    function = {"name": "play", "description": "Play a move.", "parameters": Move.model_json_schema()}
    answer = client(target).chat.completions.create(
        model=target.model,
        messages=said(PROMPT),
        tools=[{"type": "function", "function": function}],
        tool_choice="required",
        temperature=0,
    )
    (call,) = answer.choices[0].message.tool_calls
    return {"name": call.function.name, **Move.model_validate_json(call.function.arguments).model_dump()}


def limited(target: Target) -> None:
    for _ in range(3):
        client(target, slow=True).chat.completions.create(model=target.model, messages=said(PROMPT), max_tokens=1)


def abort(target: Target) -> dict[str, int]:
    asked = {"model": target.model, "messages": said(PROMPT), "max_tokens": 4000, "logit_bias": None}
    with client(target).chat.completions.create(stream=True, **asked) as chunks:
        next(iter(chunks))
        during = target.reaches(1)
    return {"during": during, "after": target.reaches(0)}


def overflow(target: Target) -> None:
    client(target).chat.completions.create(model=target.model, messages=said(target.too_long))


def broken(target: Target) -> None:
    asked = {"model": target.model, "messages": said(target.broken), "max_tokens": 64}
    for _ in client(target).chat.completions.create(stream=True, **asked):
        pass


main(plain, stream, schema, tool, limited, abort, overflow, broken)

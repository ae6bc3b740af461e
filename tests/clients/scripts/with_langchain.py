"""langchain-openai, chat completions."""

from __future__ import annotations

from typing import Any, Literal

from checks import PROMPT, Target, main, usage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Move(BaseModel):
    """Play a move."""

    move: Literal["cooperate", "defect"]
    sure: bool


def client(target: Target, slow: bool = False, **options: Any) -> ChatOpenAI:
    key = target.slow_key if slow else target.key
    return ChatOpenAI(model=target.model, base_url=target.url, api_key=key, max_retries=0, **options)


def spent(message: Any) -> dict[str, Any]:
    told = message.usage_metadata
    return usage(told["input_tokens"], told["output_tokens"], told["total_tokens"])


def plain(target: Target) -> dict[str, Any]:
    answer, told = (
        (message := client(target, max_tokens=16, temperature=0).invoke(PROMPT)).content,
        message.response_metadata,
    )
    return {"text": answer, "ended": told["finish_reason"], "model": told["model_name"], "usage": spent(message)}


def stream(target: Target) -> dict[str, Any]:
    chunks = list(client(target, max_tokens=16, temperature=0, stream_usage=True).stream(PROMPT))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    texts, ended = [chunk.content for chunk in chunks if chunk.content], whole.response_metadata["finish_reason"]
    return {"pieces": len(texts), "text": "".join(texts), "ended": ended, "usage": spent(whole)}


def schema(target: Target) -> dict[str, Any]:
    return client(target, temperature=0).with_structured_output(Move, method="json_schema").invoke(PROMPT).model_dump()


def tool(target: Target) -> dict[str, Any]:
    (call,) = client(target, temperature=0).bind_tools([Move], tool_choice="required").invoke(PROMPT).tool_calls
    return {"name": call["name"], **call["args"]}


def limited(target: Target) -> None:
    for _ in range(3):
        client(target, slow=True, max_tokens=1).invoke(PROMPT)


def abort(target: Target) -> dict[str, int]:
    chunks = client(target, max_tokens=4000).stream(PROMPT)
    next(chunks)
    during = target.reaches(1)
    chunks.close()
    return {"during": during, "after": target.reaches(0)}


def overflow(target: Target) -> None:
    client(target).invoke(target.too_long)


def broken(target: Target) -> None:
    for _ in client(target, max_tokens=64).stream(target.broken):
        pass


main(plain, stream, schema, tool, limited, abort, overflow, broken)

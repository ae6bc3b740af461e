"""openai-agents, which uses /v1/responses by default."""

from __future__ import annotations

from typing import Any, Literal

from checks import PROMPT, Target, main, usage
from openai import AsyncOpenAI
from pydantic import BaseModel

from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)


class Move(BaseModel):
    move: Literal["cooperate", "defect"]
    sure: bool


@function_tool
def play(move: Literal["cooperate", "defect"], sure: bool) -> str:
    """Play a move."""
    return f"{move} {sure}"


def agent(target: Target, slow: bool = False, **options: Any) -> Agent[Any]:
    """`settings` are model settings; all other options are options of the agent."""
    client = AsyncOpenAI(base_url=target.url, api_key=target.slow_key if slow else target.key, max_retries=0)
    settings = ModelSettings(**{"temperature": 0, **options.pop("settings", {})})
    model = OpenAIResponsesModel(target.model, client)
    return Agent(name="player", model=model, model_settings=settings, **options)


def spent(result: Any) -> dict[str, Any]:
    told = result.context_wrapper.usage
    return usage(told.input_tokens, told.output_tokens, told.total_tokens)


async def plain(target: Target) -> dict[str, Any]:
    result = await Runner.run(agent(target, settings={"max_tokens": 16}), PROMPT)
    return {"text": result.final_output, "usage": spent(result)}


async def stream(target: Target) -> dict[str, Any]:
    result = Runner.run_streamed(agent(target, settings={"max_tokens": 16}), PROMPT)
    pieces = [event.data.delta async for event in result.stream_events() if _is_text(event)]
    return {"pieces": len(pieces), "text": "".join(pieces), "usage": spent(result)}


def _is_text(event: Any) -> bool:
    return event.type == "raw_response_event" and event.data.type == "response.output_text.delta"


async def schema(target: Target) -> dict[str, Any]:
    return (await Runner.run(agent(target, output_type=Move), PROMPT)).final_output.model_dump()


async def tool(target: Target) -> dict[str, Any]:
    player = agent(target, settings={"tool_choice": "required"}, tools=[play], tool_use_behavior="stop_on_first_tool")
    move, sure = (await Runner.run(player, PROMPT)).final_output.split()
    return {"name": "play", "move": move, "sure": sure == "True"}


async def limited(target: Target) -> None:
    for _ in range(3):
        await Runner.run(agent(target, slow=True, settings={"max_tokens": 16}), PROMPT)


async def abort(target: Target) -> dict[str, int]:
    result = Runner.run_streamed(agent(target, settings={"max_tokens": 4000}), PROMPT)
    async for event in result.stream_events():
        if _is_text(event):
            during = await target.reached(1)
            result.cancel()
            break
    return {"during": during, "after": await target.reached(0)}


async def overflow(target: Target) -> None:
    await Runner.run(agent(target), target.too_long)


async def broken(target: Target) -> None:
    async for _ in Runner.run_streamed(agent(target, settings={"max_tokens": 64}), target.broken).stream_events():
        pass


main(plain, stream, schema, tool, limited, abort, overflow, broken)

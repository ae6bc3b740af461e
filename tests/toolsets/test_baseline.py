"""Prompts with functions in baseline mode: equal to those of stock `apply_chat_template(messages, tools=…)`, with a
record of every message in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import anyio
import pytest
from transformers import PreTrainedTokenizerFast

import agentcho
from agentcho import Agent, Choreographer, Engine, Game, RunConfig, Scenario
from agentcho.audit.cones import Cones
from agentcho.audit.verdict import GameVerdict
from agentcho.engine.tools import function_object
from agentcho.events import Ended, Event
from agentcho.message import is_default_prompt
from agentcho.records.transcript import TranscriptEntry

from ..engine.families import Family
from ..engine.templates import calling
from ..engines import Engines
from ..serve.test_exact import Fed


@agentcho.tool(audience="nobody")
def look(where: Literal["here", "there"]) -> str:
    """Looks."""
    return f'There is a "lamp" {where}.\n'


@agentcho.tool(audience="nobody")
def count(most: Literal[3, 4]) -> str:
    """Counts."""
    return "Three."


class Looking(Scenario):
    """Ann looks before she answers, and speaks again later; Bob hears her."""

    def __init__(self, system: str | None) -> None:
        super().__init__()
        self.system = system

    async def play(self, game: Game) -> Scenario.Outcome:
        ann, bob = game.cast(Agent, "ann", system=self.system), game.cast(Agent, "bob")
        how: Any = {"tools": [look, count], "tool_choice": "required", "max_calls": 1, "max_tokens": 6}
        await ann.say(to="everyone", prompt="Where is it?", **how)
        await bob.say(to="everyone", max_tokens=6)
        await ann.say(to="everyone", prompt="And how many?", tools=[look, count], max_tokens=6)
        await ann.say(to="everyone", prompt="Is that all?", max_tokens=6)
        return self.Outcome()


def played(engine: Engine, system: str | None, **changes: Any) -> list[TranscriptEntry]:
    """The entries of one game in baseline mode."""
    events = list[Event]()
    config = RunConfig(mode="baseline", **changes)

    async def work() -> None:
        async with Choreographer(engine, mode="baseline", leakage="enforce") as choreographer:
            await Game(choreographer, 0, 0, config, sink=events.append).play(Looking(system))

    anyio.run(work)
    return [event.entry for event in events if isinstance(event, Ended)]


def stock(engine: Engine, read: Sequence[TranscriptEntry], texts: bool) -> list[int] | None:
    """The token ids that stock transformers makes of these messages; None if its template refuses them. Functions that
    a template does not list are described in a system message. `texts`: arguments are passed as strings."""
    tokenizer: Any = engine.tokenizer
    writer, called = engine.framing.tools, dict[str | None, dict[str, Any]]()
    turns, tools = list[dict[str, Any]](), list[Any]()
    lists = "look" in rendered(tokenizer, [{"role": "user", "content": "x"}])
    for entry in (each for each in read if not is_default_prompt(each.message.id)):
        message, turn = entry.message, dict[str, Any]()
        text = message.header + message.text
        before, calls = writer.read(text)
        if ".tools" in message.id:
            tools += [function_object(each.form) for each in (look, count)]
            if lists:
                continue
        if message.role == "tool":
            call = called[entry.act.call]
            turn = {"tool_call_id": call["id"], "name": call["function"]["name"]}
            text = writer.returned(text, call["id"], call["function"]["name"])
        elif message.role == "assistant" and calls:
            (known,) = calls
            arguments = known.arguments if texts else json.loads(known.arguments)
            function = {"name": known.name, "arguments": arguments}
            call = {"id": known.id or "a1b2c3d4e", "type": "function", "function": function}
            called[message.id], text, turn = call, before, {"tool_calls": [call]}
        empty = None if texts and "tool_calls" in turn and not text else text
        turns.append({"role": message.role, "content": empty} | turn)
    try:
        more: Any = {"tools": tools or None, "add_generation_prompt": True, "return_dict": False}
        return list(tokenizer.apply_chat_template(turns, **more))
    except Exception:
        return None


def rendered(tokenizer: PreTrainedTokenizerFast, turns: list[dict[str, Any]]) -> str:
    return str(tokenizer.apply_chat_template(turns, tools=[function_object(look.form)], tokenize=False))


FORMATS = [pytest.param(each, marks=pytest.mark.slow if each in ("spelt", "fenced") else ()) for each in calling()]


@pytest.mark.parametrize("system", ["You are Ann.", None])
@pytest.mark.parametrize("style", FORMATS)
def test_every_prompt_with_functions_is_the_stock_one(
    style: str, system: str | None, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines(Family("llama", "Llama", style=style))
    fed = Fed(engine, monkeypatch)
    entries = played(engine, system)
    known = {entry.message.id: entry for entry in entries}
    said = [entry for entry in entries if entry.message.kind == "decode"]
    assert len(said) == len(fed.prompts) >= 5
    for entry, prompt in zip(said, fed.prompts, strict=True):
        assert entry.own is not None
        expected = stock(engine, [known[id] for id in entry.message.parents], style == "fenced")
        assert not entry.own.apart
        assert prompt == expected
        left_out = set(entry.message.parents) - entry.own.cone
        if style in ("hermes", "spelt", "parameters"):
            assert not left_out
        elif style == "listed":  # drops a system message unless the last message is the user's
            assert left_out <= {"ann.0"}
    decode, text = engine.framing.content.decode, look.form.description
    listed = [
        record
        for entry in entries
        for record in entry.made
        if text in decode(record.tokens or known[record.message].message.tokens)
    ]
    assert bool(listed) == (style not in ("marked", "fenced"))
    assert all("ann.tools0" in record.messages for record in listed)
    again = [TranscriptEntry.from_json(entry.to_json()) for entry in entries]
    assert again == entries
    assert not Cones(again).faults
    assert {reading.edge.verdict for reading in GameVerdict(0, again).readings()} == {"clean"}

"""Baseline prompts: their ids equal those of stock transformers, which messages each encoding covers, and how much is
encoded."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from agentcho.audit.cones import Cones
from agentcho.audit.planned import SetRunner, SymbolicEngine
from agentcho.audit.verdict import GameVerdict
from agentcho.config import Mode
from agentcho.engine.chat_renderer import APART, ChatRenderer
from agentcho.engine.core import EngineCore
from agentcho.engine.framing import Framing
from agentcho.engine.template import derive
from agentcho.errors import LeakageError
from agentcho.games.runs.replay import Replayed, replay
from agentcho.protocol.call import ChatMessage
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.trace import Workflow, exported
from agentcho.records.transcript import TranscriptEntry

from ..engine import templates
from ..engine.test_conversation import KINDS, known
from .stage import MODES

Ids = tuple[int, ...]


class Whole(SymbolicEngine):
    """The engine of sets with the tokens of a real tokenizer."""

    def __init__(self, framing: Framing) -> None:
        self._made = {}
        EngineCore.__init__(self, SetRunner(), framing, 1 << 60, 0)

    def ids(self, id: int) -> Ids:
        """All ids of an encoding."""
        recipe = self._made[id].recipe
        assert recipe is not None
        return recipe.tokens


def known_text(id: str, author: str, *parents: str, **changes: Any) -> dict[str, Any]:
    made = {"id": id, "kind": "prefill", "role": "user", "author": author, "audience": "everyone", "text": f"So {id}."}
    return made | {"parents": list(parents)} | changes


def spoken(id: str, author: str, *parents: str, text: str) -> dict[str, Any]:
    more = {"kind": "decode", "role": "assistant", "header": f"To {author}: ", "name": author}
    return known_text(id, author, *parents, text=text) | more


def talk(system: bool) -> dict[str, Any]:
    """Two agents, both with a system prompt or both without. Each of their messages reads everything before it."""
    own = {name: [f"{name}.0"] * system for name in ("ann", "ben")}
    briefs = [
        known_text(f"{name}.0", name, role="system", audience=[name], text=f"You are {name}.")
        for name in ("ann", "ben")
        if system
    ]
    said = [
        known_text("rules", "ann", text=" the rules\nare these  "),
        spoken("one", "ann", *own["ann"], "rules", text="Hello, fox.\n"),
        known_text("more", "ann", "one", text="and what?"),
        spoken("two", "ben", *own["ben"], "rules", "one", "more", text=" to the end "),
        known_text("last", "ann", "two", text="So?"),
        spoken("three", "ann", *own["ann"], "rules", "one", "more", "two", "last", text="é, no"),
        spoken("four", "ben", *own["ben"], "rules", "one", "more", "two", "last", text="yes"),
    ]
    return {
        "format": "agentcho-trace/1",
        "workflow": "talk",
        "id": "0",
        "agents": ["ann", "ben"],
        "messages": [*briefs, *said],
    }


def stock(tokenizer: PreTrainedTokenizerFast, read: Sequence[Any]) -> list[int] | None:
    turns = [
        {"role": each.role, "content": each.header + each.text} | ({"name": each.name} if each.name else {})
        for each in read
    ]
    more: Any = {"add_generation_prompt": True, "return_dict": False}
    try:
        return list(tokenizer.apply_chat_template(turns, **more))
    except Exception:
        return None


def opening_of(entry: TranscriptEntry) -> list[int]:
    """The opening of a decode, without its header."""
    return list(entry.message.tokens[: entry.message.content[0]])


def played(kind: str, system: bool, **changes: Any) -> tuple[PreTrainedTokenizerFast, Whole, Replayed]:
    tokenizer, framing = known(kind)
    engine = Whole(framing)
    return tokenizer, engine, replay(talk(system), engine, mode="baseline", logits=False, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("system", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_has_the_ids_of_stock_transformers(kind: str, system: bool) -> None:
    tokenizer, engine, replayed = played(kind, system)
    messages, framing = {e.message.id: e.message for e in replayed.entries}, engine.framing
    whole = 0
    for said in replayed.values():
        entry, own = said.entry, said.entry.own
        assert own is not None
        expected = stock(tokenizer, [messages[id] for id in entry.message.parents])
        assert own.apart == (expected is None)
        if expected is None:
            continue
        whole += 1
        read = [id for piece in said.receipt.context for id in engine.ids(piece.id)]
        opening, usual = opening_of(entry), list(framing.opening("assistant", None, answer=True))
        if opening == list(framing.opening("assistant", entry.message.name, answer=True)):  # it may have a name
            opening = usual
        ours = [*framing.begin, *read, *opening]
        assert ours[: len(expected)] == expected
        assert ours == expected or (opening == usual and kind == "harmony"), "whose answers name their channel"
    assert whole == len(replayed) or system or kind in ("folded",)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["llama3", "opener", "appended", "misfit", "turned"])
def test_the_default_prompt_as_a_message_is_what_the_template_writes_without_one(kind: str, mode: Mode) -> None:
    tokenizer = templates.tokenizer(kind)
    framing = derive(tokenizer, kind)
    assert framing.default is not None
    said = [
        known_text("default", "ann", role="system", text=framing.default.text) | {"author": None},
        known_text("asked", "ann", text="What is it?") | {"author": None},
        spoken("one", "ann", "default", "asked", text="A cat.") | {"header": "", "name": None},
    ]
    engine = Whole(framing)
    replayed = replay(talk(False) | {"messages": said}, engine, mode=mode, logits=False)
    (answer,) = replayed.values()
    read = [id for piece in answer.receipt.context for id in engine.ids(piece.id)]
    asked = next(e.message for e in replayed.entries if e.message.id == "asked")
    assert [*framing.begin, *read, *opening_of(answer.entry)] == stock(tokenizer, [asked])


@pytest.mark.parametrize("kind", ["llama3", "chatml", "thinking", "listed", "sp mistral-v1", "sp llama-2"])
def test_records_say_what_was_fed_and_cones_are_what_reached_it(kind: str) -> None:
    for system in (False, True):
        _, engine, replayed = played(kind, system)
        messages = {entry.message.id: entry.message for entry in replayed.entries}
        made = [record for entry in replayed.entries for record in entry.made]
        assert {engine.ids(record.id) == (record.tokens or messages[record.message].tokens) for record in made} == {
            True
        }
        owners = dict[Ids, set[str]]()
        for record in made:
            owners.setdefault(engine.ids(record.id), set()).update(record.messages)
        for record in made:
            reached = [owners[ids] for ids in engine.influence(record.id)]
            assert record.cone == set().union(*reached)
        again = [TranscriptEntry.from_json(entry.to_json()) for entry in replayed.entries]
        assert again == replayed.entries
        assert not Cones(again).faults
        assert {reading.edge.verdict for reading in GameVerdict(0, again).readings()} == {"clean"}


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("kind", ["llama3", "chatml", "thinking", "phi", "sp mistral-v3", "sp gemma"])
def test_no_beginning_of_a_prompt_is_encoded_twice(kind: str, deterministic: bool) -> None:
    """Counted over the pieces of each prompt: a piece after a new prefix is encoded, all others are reused. In the
    deterministic profile, an agent's own words are reused only by itself."""
    _, engine, replayed = played(kind, system=False, deterministic=deterministic)
    messages, known_, count = {e.message.id: e.message for e in replayed.entries}, set[Any](), 0
    for said in replayed.values():
        entry, path = said.entry, tuple[Any, ...]()
        read = [messages[id] for id in entry.message.parents]
        found = engine.framing.prompt([ChatMessage(m.role, m.header + m.text, m.name) for m in read])
        pieces = [(m.tokens, (place,)) for place, m in enumerate(read)] if found is None else found.pieces
        for tokens, (place, *_) in pieces:
            message = read[place]
            own = message.kind == "decode" and message.author == entry.message.author and message.tokens == tokens
            path = (*path, (tokens, own and deterministic))
            count += len(tokens) * (path not in known_)
            known_.add(path)
        count += len(entry.message.tokens)
        known_.add((*path, (entry.message.tokens, deterministic)))
    assert replayed.encoded == count
    assert sum(entry.usage.encoded for entry in replayed.entries) == count


def replacing() -> Framing:
    """A template that rewrites some contents, so that no message can be located in the prompt."""
    tokenizer = templates.tokenizer("named")
    source = str(tokenizer.chat_template).replace("message.content", "message.content | replace('are', 'were')")
    tokenizer.chat_template = source
    return derive(tokenizer, "replacing")


def records_of(replayed: Replayed) -> Iterator[EncodingRecord]:
    return (record for entry in replayed.entries for record in entry.made)


def test_what_cannot_be_cut_is_one_encoding_of_all_its_messages() -> None:
    engine = Whole(replacing())
    replayed = replay(talk(True), engine, mode="baseline", logits=False)
    (piece,) = replayed["two"].receipt.context
    record = next(each for each in records_of(replayed) if each.id == piece.id)
    assert record.messages == ("ben.0", "rules", "one", "more")
    assert record.cone == set(record.messages)
    assert replayed["two"].entry.own is not None
    assert replayed["two"].entry.own.cone == {*record.messages, "two"}
    again = [TranscriptEntry.from_json(entry.to_json()) for entry in replayed.entries]
    assert again == replayed.entries
    assert not Cones(again).faults


RUN_ON = "{% for m in messages %}{{ 'the ' + m.role + ': ' + m.content }}{% endfor %}{{ 'the assistant:' }}"


def test_a_token_that_reaches_over_a_border_has_both_messages_in_its_cone() -> None:
    """The space at the end of a message and the first word of the next are one token."""
    tokenizer = templates.tokenizer("named")
    framing = derive(tokenizer, "named")
    tokenizer.chat_template = RUN_ON
    whole = ChatRenderer(tokenizer, framing.content.of_wholes(), {}, (), datetime.now())
    engine, line = Whole(replace(framing, conversations=whole)), talk(False)
    line["messages"][1]["text"] = "Hello "
    replayed = replay(line, engine, mode="baseline", logits=False)
    both = tokenizer.convert_tokens_to_ids("Ġthe")
    pieces = [next(r for r in records_of(replayed) if r.id == each.id) for each in replayed["two"].receipt.context]
    assert [piece.messages for piece in pieces] == [("rules",), ("one",), ("more",)]
    rules, one, more = (engine.ids(piece.id) for piece in pieces)
    assert tokenizer.decode(list(rules)) == "the user:  the rules\nare these "
    assert (one[0], more[0]) == (both, both)
    assert [piece.cone for piece in pieces] == [{"rules"}, {"rules", "one"}, {"rules", "one", "more"}]
    messages = {entry.message.id: entry.message for entry in replayed.entries}
    expected = stock(tokenizer, [messages[id] for id in ("rules", "one", "more")])
    assert [*rules, *one, *more, *opening_of(replayed["two"].entry)] == expected


def test_a_leak_in_one_encoding_of_several_messages_is_refused_or_found() -> None:
    line = talk(True)
    line["messages"][3]["parents"] = ["ben.0", "ann.0", "rules"]
    with pytest.raises(LeakageError, match=r"ann may not read message ben\.0"):
        replay(line, Whole(replacing()), mode="baseline", logits=False)
    replayed = replay(line, Whole(replacing()), mode="baseline", leakage="audit", logits=False)
    readings = [each for each in GameVerdict(0, replayed.entries).readings() if each.edge.call == "one"]
    assert [(each.edge.verdict, each.edge.secrets) for each in readings] == [("direct", ("ben.0",))]


def test_what_the_template_cannot_write_is_framed_message_by_message_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "agentcho.engine"):
        _, engine, replayed = played("gemma", system=True)
    assert {said.entry.own is not None and said.entry.own.apart for said in replayed.values()} == {True}
    messages = {entry.message.id: entry.message for entry in replayed.entries}
    for said in replayed.values():
        read = [messages[id].tokens for id in said.entry.message.parents]
        assert [engine.ids(piece.id) for piece in said.receipt.context] == read
    (line,) = (record.getMessage() for record in caplog.records)
    assert "system, user" in line
    assert "message by message" in line


def test_a_model_that_was_trained_on_messages_apart_has_them_apart() -> None:
    tokenizer = templates.tokenizer("llama3")
    tokenizer.init_kwargs[APART] = "apart"
    engine = Whole(derive(tokenizer, "apart"))
    replayed = replay(talk(True), engine, mode="baseline", logits=False)
    assert {record.tokens for record in records_of(replayed)} == {None}
    assert {record.apart for record in records_of(replayed)} == {False}


@pytest.mark.parametrize("kind", ["thinking", "harmony", "sp mistral-v1"])
def test_what_was_said_in_the_baseline_is_replayed_from_its_trace(kind: str) -> None:
    _, engine, replayed = played(kind, system=False)
    tokenizer = engine.fingerprint["tokenizer"]
    trace: Workflow = exported("talk", "0", {}, ("ann", "ben"), replayed.entries, tokenizer)
    assert all(message.tokens for message in trace.messages)
    again = replay(trace, Whole(known(kind)[1]), mode="baseline", logits=False)
    assert {id: said.entry.message.tokens for id, said in again.items()} == {
        id: said.entry.message.tokens for id, said in replayed.items()
    }
    other = replay(trace, Whole(known(kind)[1]), logits=False)
    assert {id: said.entry.message.text for id, said in other.items()} == {
        id: said.entry.message.text for id, said in replayed.items()
    }

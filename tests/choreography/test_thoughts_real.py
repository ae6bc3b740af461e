"""Swaps thoughts on a tiny real model: no bit that another agent reads changes, unless thoughts are shared."""

from __future__ import annotations

import anyio
import pytest
import torch
from torch import Tensor

from agentcho import Choreographer, Engine, Game, RunConfig
from agentcho.audit.audit import audit_entries
from agentcho.audit.notes import Seal
from agentcho.config import Leakage, Mode, ThoughtsOf
from agentcho.errors import LeakageError
from agentcho.events import Event
from agentcho.protocol.call import EncodingId, StepResult
from agentcho.records.transcript import TranscriptEntry

from ..around import Around
from ..audit.transcripts import KEY, subject
from ..engine.families import Family
from ..engines import Engines
from .stage import Scripted, Talker, heard

FORMS = {
    "thoughtful": ("<think>\n", "\n</think>\n\n", "the fox"),
    "opened": ("", "\n</think>\n\n", "the fox"),
    "keeping": ("[THINK]", "[/THINK]", "the fox"),
}
WAYS: list[tuple[Mode, Leakage]] = [
    ("choreographed", "audit"),
    ("choreographed", "enforce"),
    ("choreographed", "deny"),
    ("baseline", "enforce"),
]


class Cached(Around):
    """An engine, recording the keys and values of everything that it encodes."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.cached: dict[EncodingId, list[tuple[Tensor, Tensor]]] = {}

    def step(self, deterministic: bool = False) -> StepResult:
        result = super().step(deterministic)
        self.cached.update((id, self.engine.cached(id)) for id in result.finished)
        return result


async def talk(game: Game) -> None:
    """Alice, who thinks, and Bob take turns."""
    alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
    for _ in range(2):
        await alice.say()
        await bob.say(max_tokens=6)


def played(
    engine: Engine, style: str, thought: str, mode: Mode, leakage: Leakage, thoughts: ThoughtsOf = "author"
) -> tuple[list[TranscriptEntry], dict[object, tuple[Tensor, ...]]]:
    """A game in which Alice has that thought, and the bits of the encodings that Bob reads or makes, by message."""
    before, after, said = FORMS[style]
    ids = tuple(engine.tokenizer(before + thought + after + said, add_special_tokens=False)["input_ids"])
    forced = {f"alice.{turn}.thought": ids for turn in range(2)}
    caching, events = Cached(engine), list[Event]()
    config = RunConfig(mode=mode, leakage=leakage, deterministic=True, thoughts=thoughts, max_tokens=40)

    async def work() -> None:
        async with Choreographer(caching, mode=mode, leakage=leakage, deterministic=True) as c:
            await Game(c, 0, 0, config, sink=events.append, forced=forced).play(Scripted(talk))

    anyio.run(work)
    entries, bits = heard(events), dict[object, tuple[Tensor, ...]]()
    records = {record.id: record for entry in entries for record in entry.made}
    for record in records.values():
        if record.caller == "bob":
            for id in (record.id, *(piece.id for piece in record.receipt.context)):
                read = records[id]
                bits[read.message, read.recipe, read.caller] = tuple(t for pair in caching.cached[id] for t in pair)
    return entries, bits


def texts(entries: list[TranscriptEntry], *ids: str) -> list[tuple[int, ...]]:
    """The tokens of these messages."""
    return [entry.message.tokens for entry in entries if entry.message.id in ids]


def same(one: dict[object, tuple[Tensor, ...]], other: dict[object, tuple[Tensor, ...]]) -> bool:
    """Whether everything that was read is bit-identical."""
    return one.keys() == other.keys() and all(
        torch.equal(a, b) for key in one for a, b in zip(one[key], other[key], strict=True)
    )


SLOW = [(style, *way) for style in ("thoughtful", "opened") for way in WAYS]
SLOW += [("keeping", "choreographed", "enforce"), ("keeping", "baseline", "enforce")]
CELLS = [SLOW[1], *(pytest.param(*cell, marks=pytest.mark.slow) for cell in SLOW if cell != SLOW[1])]


@pytest.mark.parametrize(("style", "mode", "leakage"), CELLS)
def test_what_is_thought_changes_no_bit_that_others_read(
    engines: Engines, style: str, mode: Mode, leakage: Leakage
) -> None:
    engine = engines(Family("llama", "Llama", style=style))
    (entries, bits), (others, other_bits) = (
        played(engine, style, thought, mode, leakage) for thought in ("Hello", "to be or not to be, and so on")
    )
    assert texts(entries, "alice.0.thought") != texts(others, "alice.0.thought")
    assert bits
    assert same(bits, other_bits)
    assert texts(entries, "bob.0", "bob.1") == texts(others, "bob.0", "bob.1")


def test_a_shared_thought_changes_them(engines: Engines) -> None:
    engine = engines(Family("llama", "Llama", style="thoughtful"))
    plays = [played(engine, "thoughtful", thought, "choreographed", "enforce", "audience") for thought in ("a", "b")]
    assert not same(plays[0][1], plays[1][1])


def test_a_thought_that_its_author_read_again_is_in_what_it_says_then(engines: Engines) -> None:
    """If the template keeps thoughts, as after a private prompt: a transitive leak under audit, refused by deny."""
    engine = engines(Family("llama", "Llama", style="keeping"))
    entries, bits = played(engine, "keeping", "a", "choreographed", "audit")
    assert not same(bits, played(engine, "keeping", "b", "choreographed", "audit")[1])
    found = audit_entries(subject(leakage="audit", agents=("alice", "bob")), {0: entries}, Seal(KEY))
    [leak] = [each for each in found.findings if each.rule == "AC002"]
    assert (leak.reader, leak.owner, leak.carrier) == ("bob", "alice", "alice")
    with pytest.raises(LeakageError, match=r"carries alice\.0\.thought"):
        played(engine, "keeping", "a", "choreographed", "deny")

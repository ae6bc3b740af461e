"""A stage for numeric non-interference: plays workflows on a tiny real model, and compares two plays for a reader.

Six layers, random weights, float32 on the CPU. Independent of which words are swapped and of the expected result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
import torch

from agentcho import Agent, Choreographer, Engine, Game, RunConfig, Scenario
from agentcho.config import Leakage, Shadowing
from agentcho.engine import sequence
from agentcho.events import Ended, Event
from agentcho.provenance.views import After, Read, View
from agentcho.records.transcript import TranscriptEntry
from agentcho.reuse.ends import Ends
from tests.engine.families import Family, Layer

from ..looks import Look
from .double import Double, Forced, Kept
from .script import Act

WORDS_A_TURN = 5
BOTH_ENDS = Ends(1, 2)
LONG = sequence.SHORT
"""Tokens of a turn whose shadow begins while it is generated; the shadow of a shorter one waits for a reader."""


@dataclass(frozen=True)
class Profile:
    """How a workflow is played."""

    leakage: Leakage = "enforce"
    deterministic: bool = True
    shadow: Shadowing = "auto"
    temperature: float = 1.0
    repair: str | None = None
    reuse: str = "rotate"
    turn: int = WORDS_A_TURN
    judge: Ends = BOTH_ENDS

    @property
    def config(self) -> RunConfig:
        """The options of a run."""
        return RunConfig(
            leakage=self.leakage,
            deterministic=self.deterministic,
            shadow=self.shadow,
            temperature=self.temperature,
            max_tokens=self.turn,
            repair=self.repair,
            reuse=self.reuse,
        )


BITWISE = Profile()
FAST = Profile(deterministic=False, temperature=0)
AUDIT = Profile(leakage="audit")


@dataclass(frozen=True)
class Played:
    """One play: the double with everything it recorded, and the transcript."""

    double: Double
    entries: tuple[TranscriptEntry, ...]


def play(
    engine: Engine,
    acts: Sequence[Act],
    reader: str,
    forced: Forced | None = None,
    profile: Profile = BITWISE,
    poison: bool = False,
    backend: str = "asyncio",
    script: type[Script] | None = None,
) -> Played:
    """Play a workflow; asserts that nothing is left in the engine."""
    double, events = Double(engine, reader, forced, poison), list[Event]()
    used, way = engine.fullness.used, profile.config.policy._replace(judge=profile.judge)

    async def work() -> None:
        async with Choreographer(double, way) as choreographer:
            game = Game(choreographer, 0, 7, profile.config, sink=events.append)
            await game.play((script or Script)(acts))

    anyio.run(work, backend=backend)
    assert (engine.fullness.used, engine.fullness.reserved, engine.rows) == (used, 0, 0)
    return Played(double, tuple(event.entry for event in events if isinstance(event, Ended)))


class Script(Scenario):
    """Plays acts one after another; those of one round at once."""

    name = "acts"

    class Outcome(Scenario.Outcome):
        """Empty."""

    def __init__(self, acts: Sequence[Act]) -> None:
        super().__init__()
        self._acts, self._ids = acts, dict[int, str]()

    async def play(self, game: Game) -> Scenario.Outcome:
        """Play all acts."""
        rounds: dict[int, list[Act]] = {}
        for act in self._acts:
            rounds.setdefault(act.number if act.round is None else act.round, []).append(act)
        for moves in rounds.values():
            if moves[0].round is None:
                await self._do(game, moves[0])
            else:
                await game.together(*(self._do(game, move) for move in moves))
        return self.Outcome()

    async def _do(self, game: Game, act: Act) -> None:
        to = "everyone" if act.to is None else act.to
        match act.kind:
            case "join":
                game.cast(Reader, act.who, system=act.words or None)
                if act.words:
                    self._ids[act.number] = f"{act.who}.0"
            case "announce":
                self._ids[act.number] = await game.announce(act.words, to=to)
            case "tell":
                agent = self._agent(game, act)
                self._ids[act.number] = await agent.tell(act.words, to=to)
            case "say":
                said = await self._agent(game, act).say(to=to, prompt=act.prompt, header=act.words)
                self._ids[act.number] = said.id

    def _agent(self, game: Game, act: Act) -> Reader:
        agent = game.agents[act.who]
        assert isinstance(agent, Reader)
        reads = tuple(self._read(look) for look in act.view if look.number in self._ids)
        agent.looks = View(reads, None, "judge" if act.judges else None)
        return agent

    def _read(self, look: Look) -> Read:
        if look.after is not None and look.after in self._ids:
            return Read(self._ids[look.number], After(self._ids[look.after], look.plus))
        return Read(self._ids[look.number], look.at)


class Reader(Agent):
    """Reads what it is told to read."""

    role = "reader"
    looks = View(())

    def view(self, readable: Sequence[Any]) -> View:
        """The given view."""
        return self.looks


def others(played: Played, acts: Iterable[Act], reader: str) -> dict[str, tuple[int, ...]]:
    """What all others said, for forcing it in another play."""
    said = {act.words for act in acts if act.kind == "say" and act.who != reader}
    return {header: tokens for header, tokens in played.double.spoken.items() if header in said}


def differences(one: Played, other: Played, tolerance: float | None = None) -> list[str]:
    """The differences for the reader in all that its decodes were computed from; `tolerance` None: bit by bit."""
    keys = list(one.double.read())
    if set(keys) != set(other.double.read()) or one.double.own != other.double.own:
        return ["it attended to other encodings"]
    return [
        f"{key}: {what}" for key in keys for what in _apart(one.double.kept[key], other.double.kept[key], tolerance)
    ]


def apart_from_itself(played: Played, tolerance: float | None = None) -> list[str]:
    """The encodings open to the reader that were made twice in one play with different results."""
    again = [(key, kept) for key, kept in played.double.again if key.open_to(played.double.reader)]
    pairs = [(key, kept, played.double.kept[key]) for key, kept in again]
    return [f"{key}: {what}" for key, one, other in pairs for what in _apart(one, other, tolerance, logits=False)]


def _apart(one: Kept, other: Kept, tolerance: float | None, logits: bool = True) -> list[str]:
    apart = []
    if one.words.tokens != other.words.tokens:
        apart.append("other words")
    if (one.context, one.start, one.bos) != (other.context, other.start, other.bos):
        apart.append("another receipt")
    if not all(same(a, b, tolerance) for a, b in zip(one.cached, other.cached, strict=True)):
        apart.append("other keys or values")
    if logits and (one.logits is None) != (other.logits is None):
        apart.append("logits of one alone")
    if logits and one.logits is not None and not same((one.logits,), (other.logits,), tolerance):
        apart.append("other logits")
    return apart


def same(one: Iterable[Any], other: Iterable[Any], tolerance: float | None) -> bool:
    """Whether tensors are finite and equal, bit by bit or within a tolerance."""
    pairs = list(zip(one, other, strict=True))
    if not all(a.shape == b.shape and bool(torch.isfinite(a).all()) for a, b in pairs):
        return False
    if tolerance is None:
        return all(torch.equal(a, b) for a, b in pairs)
    return all(torch.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in pairs)


def movement(one: Played, other: Played) -> float:
    """The largest change of the reader's logits at the first token of its decodes."""
    moved = 0.0
    for key in one.double.own:
        a, b = one.double.kept[key].logits, other.double.kept[key].logits
        assert a is not None
        assert b is not None
        moved = max(moved, float((a[0] - b[0]).abs().max()))
    return moved


def gap(one: Played, other: Played) -> float:
    """The largest difference, between two plays, of all numbers that the reader's words were chosen from or computed
    from; it must have read the same messages at the same positions."""
    assert set(one.double.read()) == set(other.double.read())
    largest = 0.0
    for key in one.double.read():
        a, b = one.double.kept[key], other.double.kept[key]
        assert (a.words.tokens, a.context, a.start) == (b.words.tokens, b.context, b.start)
        pairs = [pair for both in zip(a.cached, b.cached, strict=True) for pair in zip(*both, strict=True)]
        if a.logits is not None and b.logits is not None:
            pairs.append((a.logits, b.logits))
        largest = max(largest, *(float((x - y).abs().max()) for x, y in pairs))
    return largest


def deep(family: Family, layers: int = 6) -> Family:
    """The family with that many layers, of the same kinds."""
    kinds: tuple[Layer, ...] = tuple(family.layers[i % len(family.layers)] for i in range(layers))
    settings = dict(family.settings)
    for setting in ("layer_types", "no_rope_layers"):
        if setting in settings:
            given = list(settings[setting])
            settings[setting] = [given[i % len(given)] for i in range(layers)]
    return replace(family, name=f"{family.name} {layers}", settings=settings, layers=kinds)

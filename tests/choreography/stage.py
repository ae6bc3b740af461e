"""Shared by tests of the choreographer: a talker, scripted games, an engine that is interrupted, a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
from trio.testing import MockClock

from agentcho import Agent, Choreographer, Decode, Game, Limits, Message, Prefill, RunConfig, Sampling, Scenario
from agentcho.choreography.requests import Request
from agentcho.config import Defaults, Leakage, Mode
from agentcho.events import Encoded, Ended, Event, GameOver
from agentcho.protocol.call import StepResult
from agentcho.records.transcript import TranscriptEntry, carry
from agentcho.testing import FakeEngine

Work = Callable[[], Awaitable[Any]]
Play = Callable[[Work], Any]
Script = Callable[[Game], Awaitable[Any]]

MODES: tuple[Mode, ...] = ("choreographed", "baseline")


class Talker(Agent):
    """Says to everyone whatever the engine generates."""

    role = "talker"
    audience = "everyone"
    mood: str


class Scripted(Scenario):
    """Plays a function."""

    name = "scripted"

    class Outcome(Scenario.Outcome):
        """Whatever it returned."""

        value: Any = None

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    async def play(self, game: Game) -> Scenario.Outcome:
        return self.Outcome(value=await self.script(game))


def game(
    play: Play,
    script: Script,
    engine: FakeEngine | None = None,
    mode: Mode = "choreographed",
    leakage: Leakage = "audit",
    limits: Limits | None = None,
    games: int = 1,
    seed: int = 0,
    default_prompt: Defaults = "keep",
) -> tuple[list[TranscriptEntry], list[GameOver]]:
    """Play a script; returns its transcript and outcomes. No game may leave anything in the engine."""
    engine = engine or FakeEngine()
    events: list[Event] = []
    config = RunConfig(
        mode=mode,
        leakage=leakage,
        max_tokens=12,
        limits=limits or Limits(),
        default_prompt=default_prompt,
    )

    async def work() -> None:
        async with Choreographer(engine, mode=mode, leakage=leakage) as c:
            all_games = [Game(c, i, seed, config, sink=events.append) for i in range(games)]
            try:
                await c.tasks.together(*(each.play(Scripted(script)) for each in all_games))
            finally:
                assert await empty(c, engine)

    play(work)
    assert nothing_left(engine)
    return heard(events), [e for e in events if isinstance(e, GameOver)]


def heard(events: list[Event]) -> list[TranscriptEntry]:
    """The transcript that a sink received, including encodings reported separately at the end of a game."""
    entries = [event.entry for event in events if isinstance(event, Ended)]
    for event in events:
        if isinstance(event, Encoded):
            carry(entries, event.encodings)
    return entries


def spoken(entries: list[TranscriptEntry]) -> list[Message]:
    """The generated messages that are complete."""
    return [entry.message for entry in entries if entry.message.kind == "decode" and entry.ended is None]


def speech(words: int, *order: int) -> Request:
    """A decode of that many words."""
    return Request((Decode(sampling=Sampling(max_tokens=words)),), order)


def talker(words: int = 6) -> FakeEngine:
    """A fake whose every reply has `words` words."""
    return FakeEngine(lambda call, prompt: " ".join(["word"] * words))


async def empty(c: Choreographer, engine: FakeEngine) -> bool:
    """Whether a request finds the engine otherwise empty while the choreographer is open."""
    [own] = (await c.run(Request((Prefill("."),)))).made
    alone = (engine.pages, engine.rows, engine.idle) == (1, 0, True)
    c.release([own.id])
    return alone


def nothing_left(engine: FakeEngine) -> bool:
    """Whether the engine holds no call, no row and no page."""
    return (engine.pages, engine.rows, engine.idle) == (0, 0, True)


class Interrupted(FakeEngine):
    """During step n, runs `during[n]` on the event loop and lets the loop go round a few times before the step
    continues. Replies with the given words, or with that many."""

    def __init__(self, words: int | str = 6, **options: Any) -> None:
        said = words if isinstance(words, str) else " ".join(["word"] * words)
        super().__init__(lambda call, prompt: said, **options)
        self.during: dict[int, Callable[[], None]] = {}

    def step(self, deterministic: bool = False) -> StepResult:
        """See `EnginePort.step`."""
        happens = self.during.pop(self.steps + 1, None)
        if happens is not None:
            anyio.from_thread.run(_happen, happens)
        return super().step(deterministic)


async def _happen(what: Callable[[], None]) -> None:
    what()
    for _ in range(5):
        await anyio.lowlevel.checkpoint()


class Clock:
    """An event loop whose time advances only on demand."""

    def __init__(self, backend: str) -> None:
        self._backend, self._passed, self._mock = backend, 0.0, MockClock()

    def run(self, work: Work) -> Any:
        """Run to the end."""
        options: dict[str, Any] = {"clock": self._mock} if self._backend == "trio" else {"loop_factory": self._loop}
        return anyio.run(work, backend=self._backend, backend_options=options)

    def jump(self, seconds: float) -> None:
        """Advance the time."""
        self._passed += seconds
        self._mock.jump(seconds)

    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop()
        loop.time = lambda: self._passed  # type: ignore[method-assign]
        return loop

"""Plays games on several engines and collects their transcript entries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from agentcho import Agent, Game
from agentcho.config import RunConfig
from agentcho.events import Encoded, Ended, Event
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import RunResult, play
from agentcho.protocol.call import EnginePort
from agentcho.protocol.text_calls import TextPort
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.transcript import TranscriptEntry, carry
from agentcho.scenario import Scenario
from agentcho.testing import FakeEngine

Script = Callable[[Game], Awaitable[Any]]


class Talker(Agent):
    """An agent that talks to everyone."""

    audience = "everyone"


class Scripted(Scenario):
    """Wraps a function as a scenario."""

    name = "scripted"

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    async def play(self, game: Game) -> Scenario.Outcome:
        await self._script(game)
        return self.Outcome()


class Seen(NamedTuple):
    """The result of a run: the entries of all games, and the run itself."""

    entries: list[TranscriptEntry]
    played: RunResult

    @property
    def made(self) -> list[EncodingRecord]:
        """The encodings, in order."""
        return [record for entry in self.entries for record in entry.made]


def seen(
    script: Script,
    others: Mapping[str, EnginePort | TextPort] | None = None,
    engine: EnginePort | None = None,
    **config: Any,
) -> Seen:
    """Play a script on the engine and on `others` beside it, fakes by default. Raises the error of a failed game."""
    beside = {"small": FakeEngine()} if others is None else others
    entries: list[TranscriptEntry] = []

    def hear(event: Event) -> None:
        if isinstance(event, Ended):
            entries.append(event.entry)
        if isinstance(event, Encoded):
            carry(entries, event.encodings)

    run = RunConfig(**({"model": "fake"} | config))
    played = play(RunRequest(Scripted(script), run, engine=engine or FakeEngine(), others=beside, sink=hear))
    if played.error is not None:
        raise played.error
    return Seen(entries, played)

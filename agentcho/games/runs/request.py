"""The request for a run: one value that every way to start a run passes on whole.

A new option then needs no change in between. Does not know: how games are played, or who plays them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from agentcho.agent import Agent
from agentcho.config import RunConfig
from agentcho.events import Sink
from agentcho.games.play.journal import BegunCalls
from agentcho.games.play.people import People, with_people
from agentcho.games.play.turn import Forced
from agentcho.games.runs import library
from agentcho.games.runs.resume import Changed
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback, no_progress
from agentcho.protocol.text_calls import TextPort
from agentcho.records.record import SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.scenario import Scenario

FindAgent = Callable[[str], type[Agent]]


class GameSelection(NamedTuple):
    """Which games of a run to play (None: all), and the words to force in each: ids of what is said, by message.
    `before` has what was said in games that were begun already, `typed` what people gave for messages there, `calls`
    the calls of tools that were begun there."""

    numbers: tuple[int, ...] | None = None
    forced: Callable[[int], Forced] = lambda game: {}
    before: Mapping[int, Sequence[TranscriptEntry]] = MappingProxyType({})
    typed: Mapping[int, Mapping[str, str]] = MappingProxyType({})
    calls: Mapping[int, BegunCalls] = MappingProxyType({})


class OnFailure(NamedTuple):
    """What is done about games that fail: `fail_fast` stops the run with the first, `retries` says how often a game is
    played again that a transient error of the engine or of an endpoint ended. Any other would come again."""

    fail_fast: bool = False
    retries: int = 0


ALL_GAMES, NEVER_AGAIN = GameSelection(), OnFailure()


@dataclass(frozen=True)
class Resumption:
    """A recorded run that is to go on. `changed`: what to do where sources have changed since. Calls of tools that were
    begun without a result, each as GAME:CALL, are made again (`redo`) or not (`skip`); a game with another such call
    does not go on."""

    saved: SavedRun
    changed: Changed = "refuse"
    redo: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunRequest:
    """A run: `config.games` games of a scenario, or a `selection` of them.

    `engine` and `others`, by the names that agents are given, are models to play on instead of loading those of the
    config. `sink` hears every event, on the event loop; what it raises stops the run. `out` is the folder of runs to
    record in (None: no record), and `named` how the scenario was asked for, for the record. `at_once`: so many games
    side by side (None: as many as the store has room for). `find_agent` turns a name into an agent class. `on_failure`:
    what is done about games that fail. `tell` hears how far the loading of a model is. `people` play the agents of
    these names. `resume`: play what this recorded run lacks, into its record, and not a run of its own.
    """

    scenario: Scenario
    config: RunConfig = field(default_factory=RunConfig)
    _: KW_ONLY
    engine: EnginePort | None = None
    others: Mapping[str, EnginePort | TextPort] = field(default_factory=dict)
    sink: Sink | None = None
    out: Path | None = None
    named: str | None = None
    at_once: int | None = None
    find_agent: FindAgent = library.agent
    selection: GameSelection = ALL_GAMES
    on_failure: OnFailure = NEVER_AGAIN
    tell: ProgressCallback = no_progress
    people: People = field(default_factory=dict)
    resume: Resumption | None = None

    @classmethod
    def resuming(
        cls,
        saved: SavedRun,
        scenario: Scenario,
        config: RunConfig | None = None,
        *,
        changed: Changed = "refuse",
        redo: Iterable[str] = (),
        skip: Iterable[str] = (),
        **others: Any,
    ) -> RunRequest:
        """A recorded run that is to go on; its own options are the default. `others` are the fields of a request."""
        resumption = Resumption(saved, changed, tuple(redo), tuple(skip))
        return cls(scenario, config or saved.info.config, resume=resumption, **others)

    def checked(self) -> RunRequest:
        """The same, once it is known that there is somebody for each agent that a person plays, who are named in its
        options from then on. Raises as `with_people` does."""
        cast = library.cast_names(self.scenario) if self.people and self.resume is None else None
        return replace(self, config=with_people(self.config, self.people, cast))

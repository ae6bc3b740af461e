"""The request for a run: one value that every way to start a run passes on unchanged.

A new option then needs no change in between. Independent of how games are played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from agentcho.agent import Agent
from agentcho.config import RunConfig
from agentcho.errors import ToolFailed
from agentcho.events import Sink
from agentcho.games.play.journal import BegunCalls
from agentcho.games.play.people import People, with_people
from agentcho.games.play.playable import as_json
from agentcho.games.play.turn import Forced
from agentcho.games.runs import library
from agentcho.games.runs.resume import Changed
from agentcho.games.tools import isolated
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback, no_progress
from agentcho.protocol.text_calls import TextPort
from agentcho.records.record import SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.scenario import Scenario

FindAgent = Callable[[str], type[Agent]]


class GameSelection(NamedTuple):
    """Which games of a run to play, and what earlier attempts at them recorded.

    Attributes:
        numbers: The games. None for all.
        forced: Returns the token ids to force in a game, by message.
        before: The messages of games that had already begun.
        typed: What people typed for messages of these games.
        calls: Tool calls that were begun in these games.
        begun: How often these games have begun, if `before` does not show it.
    """

    numbers: tuple[int, ...] | None = None
    forced: Callable[[int], Forced] = lambda game: {}
    before: Mapping[int, Sequence[TranscriptEntry]] = MappingProxyType({})
    typed: Mapping[int, Mapping[str, str]] = MappingProxyType({})
    calls: Mapping[int, BegunCalls] = MappingProxyType({})
    begun: Mapping[int, int] = MappingProxyType({})


class OnFailure(NamedTuple):
    """What is done about games that fail.

    Attributes:
        fail_fast: Whether the first failure stops the run.
        retries: How often a game is played again after a transient error of the engine or an endpoint. Other errors
            would recur.
    """

    fail_fast: bool = False
    retries: int = 0


ALL_GAMES, NEVER_AGAIN = GameSelection(), OnFailure()


@dataclass(frozen=True)
class Resumption:
    """A recorded run to resume.

    Attributes:
        saved: The run.
        changed: What to do if sources have changed since: "refuse" or "accept".
        redo: Tool calls without a result to make again, each as GAME:CALL; "all" for all that `skip` does not name.
        skip: Tool calls without a result not to make again, in the same way. A game with such a call that is in neither
            list does not continue.
    """

    saved: SavedRun
    changed: Changed = "refuse"
    redo: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunRequest:
    """A run: `config.games` games of a scenario, or a `selection` of them.

    Attributes:
        scenario: The scenario.
        config: The configuration.
        engine: An engine to play on instead of loading that of the configuration. None loads it.
        others: Models beside it, by the names that agents use.
        sink: Receives every event on the event loop (see `Sink`). An error in it stops the run.
        out: Folder of runs to record in. None for no record.
        named: How the scenario was asked for, for the record.
        at_once: Maximum number of games side by side. None means as many as the store has room for.
        find_agent: Returns the agent class of a name.
        selection: Which games to play.
        on_failure: What is done about games that fail.
        tell: Receives the progress of loading a model.
        people: A `Person` for each agent that a person plays.
        resume: A recorded run whose missing games are played into its record. None for a new run.
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
        """Return the request to resume a recorded run. Its own options are the default. `others` are fields of a
        request."""
        resumption = Resumption(saved, changed, tuple(redo), tuple(skip))
        return cls(scenario, config or saved.info.config, resume=resumption, **others)

    def checked(self) -> RunRequest:
        """Return the request once each agent that a person plays has a person. Its agents are found once for all games.

        Raises as `with_people` does, `ScenarioError` if an option of the scenario cannot be recorded, and `ToolFailed`
        in the process of an isolated tool whose file plays games when it is imported.
        """
        if isolated.importing is not None:
            raise ToolFailed(
                f"{isolated.importing} plays a game when it is imported, which each call of its isolated tool does; "
                'put that part of it under `if __name__ == "__main__":`'
            )
        as_json(self.scenario.options, "options", self.scenario)
        cast = library.cast_names(self.scenario) if self.people and self.resume is None else None
        return replace(self, config=with_people(self.config, self.people, cast), find_agent=cache(self.find_agent))

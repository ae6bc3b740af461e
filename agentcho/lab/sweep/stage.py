"""Plays the cells of a sweep: in this process, which loads one network at a time, or by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from agentcho.config import RunConfig
from agentcho.events import Sink
from agentcho.games.play.game_models import LoadedEngines
from agentcho.games.runs import library, runtime
from agentcho.games.runs.loading import check_loadable, fingerprints, give_up, speculate, tell_unfinished
from agentcho.games.runs.request import FindAgent, GameSelection, OnFailure, RunRequest
from agentcho.games.runs.resume import check_engine, loading_config
from agentcho.games.runs.runtime import RunResult
from agentcho.integrations.endpoints.text_engine import TextEngine
from agentcho.integrations.ray import runs
from agentcho.integrations.ray.runs import Players
from agentcho.lab.sweep.grid import Cell
from agentcho.lab.sweep.plan import network
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback, no_progress
from agentcho.provenance.message_boundaries import required_markers
from agentcho.records.record import SavedRun


class Turn(NamedTuple):
    """The games of one cell to be played: their selection, the folder of their record, and the sink of their events.
    `saved` are the records of its other games, `beside` those of other cells on the same models."""

    cell: Cell
    selection: GameSelection
    out: Path
    sink: Sink
    saved: Sequence[SavedRun] = ()
    beside: Sequence[SavedRun] = ()


class How(NamedTuple):
    """What the games of all cells share: the name that the scenario was asked for by, the number of games side by side,
    the treatment of failures, and what finds agents by name."""

    asked: str | None = None
    at_once: int | None = None
    on_failure: OnFailure = OnFailure()
    find_agent: FindAgent = library.agent


class Stage(Protocol):
    """Who plays the games."""

    def play(self, turn: Turn, how: How) -> RunResult:
        """Play some games of a cell and record them. Raises an error that prevents all of them from being played."""
        ...

    def close(self) -> None:
        """Release what is loaded."""
        ...


class LocalStage:
    """This process. The models of a cell stay loaded until a cell needs another network, and are released before that
    is loaded. `engine`: play all cells on this one, which stays loaded."""

    def __init__(self, tell: ProgressCallback = no_progress, engine: EnginePort | None = None) -> None:
        self._tell, self._given = tell, engine
        self._loaded: LoadedEngines | None = None
        self._network: object = None
        self._adapter: str | None = None

    def play(self, turn: Turn, how: How) -> RunResult:
        """See `Stage`."""
        cell, selection, out, sink, saved, beside = turn
        same = (*saved, *beside)
        loaded = self._ready(loading_config(same[0], cell.config) if same else cell.config)
        for run in same:
            check_engine(run, *fingerprints(loaded), bits=run in saved)
        for model in (loaded.engine, *loaded.others.values()):
            runtime.teach_recorded_words(model, chain.from_iterable(selection.before.values()))
        speculate(cell.config, loaded, saved[0].info.costs if saved else {})
        more: dict[str, Any] = {"sink": sink, "out": out, "at_once": how.at_once, "on_failure": how.on_failure}
        more |= {"engine": loaded.engine, "selection": selection, "named": how.asked, "find_agent": how.find_agent}
        if isinstance(loaded.engine, TextEngine):  # its connections end with a run, so each run loads its own
            del more["engine"]
        more["others"] = {name: each for name, each in loaded.others.items() if not isinstance(each, TextEngine)}
        return runtime.play(RunRequest(cell.scenario, cell.config, **more))

    def _ready(self, config: RunConfig) -> LoadedEngines:
        """The models of a cell, loaded if they are not."""
        if self._given is not None:
            return LoadedEngines(self._given, {})
        if self._loaded is None or self._network != network(config):
            self.close()
            self._loaded = runtime.load_models(_any_markers(config), tell=self._tell)
            self._network, self._adapter = network(config), config.adapter
        elif config.adapter != self._adapter:
            self._loaded = LoadedEngines(_adapted(self._loaded.engine, config.adapter), {})
            tell_unfinished(config.adapter)
            self._adapter = config.adapter
        return self._loaded

    def close(self) -> None:
        """Release what is loaded, with its memory."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            give_up(loaded)


class RemoteStage:
    """The workers of a cluster; models behind an API are called by this process, within its limits."""

    def __init__(self, players: Players, here: LocalStage) -> None:
        self._players, self._here = players, here

    def play(self, turn: Turn, how: How) -> RunResult:
        """See `Stage`."""
        cell, selection, out, sink, saved, beside = turn
        if is_served(cell.config):
            return self._here.play(turn, how)
        more: dict[str, Any] = {"sink": sink, "out": out, "at_once": how.at_once, "on_failure": how.on_failure}
        more |= {"selection": selection, "named": how.asked}
        if same := (*saved, *beside):
            begun = self._players.driver.ready(runs.work_of(self._players, RunRequest(cell.scenario, cell.config)))
            for run in same:
                check_engine(run, *runs.named(begun, cell.config), bits=run in saved)
        return runs.play(self._players, RunRequest(cell.scenario, cell.config, **more))

    def close(self) -> None:
        """Release what this process has loaded; workers belong to their owner."""
        self._here.close()


def is_served(config: RunConfig) -> bool:
    """Whether one of the models is behind an API."""
    return any(model.served for model in (config.own, *config.models.values()))


def _any_markers(config: RunConfig) -> RunConfig:
    """The options to load a network with: whether its markers suffice is checked for each cell, when it plays."""
    return config.model_copy(update={"leakage": "audit", "plain_markers": "accept", "games": 1})


def _adapted(engine: Any, adapter: str | None) -> EnginePort:
    """An engine with another adapter, which replaces this one."""
    found: EnginePort = engine.adapted(adapter)
    engine.close()
    return found


def check_models(configs: Iterable[RunConfig], elsewhere: bool = False) -> None:
    """Raise what is known to be wrong with models before any is loaded. `elsewhere`: models with weights are loaded,
    and checked, by others."""
    groups: dict[object, list[RunConfig]] = {}
    for config in configs:
        groups.setdefault((network(config), config.adapter), []).append(config)
    for group in groups.values():
        claims = all(required_markers(each.policy, each.plain_markers) == "refuse" for each in group)
        if not elsewhere or is_served(group[0]):
            check_loadable(group[0], "refuse" if claims else "accept")

"""Selects the checkpoint of a training by the score of games instead of the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.config import RunConfig
from agentcho.engine.lora_adapter import find_adapter
from agentcho.errors import TuneError, asking
from agentcho.events import Counting
from agentcho.games.runs.runtime import play, tasks_of
from agentcho.lab.collect import Interrupted, Playing
from agentcho.lab.tune.recipe import Recipe
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.trace import Workflow, read_traces
from agentcho.scenario import Scenario

SAMPLED = ("tasks", "seed", "temperature", "top_p", "max_tokens")
"""What a trace says about how its game was sampled, besides the scenario's options."""


class Validation(NamedTuple):
    """Selects the checkpoint by games instead of the loss: by the mean of `score` over `games` games, which `measured`
    returns for the adapter in a folder. On equal means, the lower loss wins."""

    score: str
    games: int
    measured: Callable[[Path], float]


class Choice(NamedTuple):
    """How the best checkpoint is selected: by the mean of `score` over the games of `playing` with these numbers, which
    are neither compared nor trained on."""

    playing: Playing
    numbers: range
    score: str

    def validation(self, here: Callable[[], Any], tell: ProgressCallback) -> Validation:
        """The validation of a training, on the engine that `here` returns."""
        return Validation(self.score, len(self.numbers), partial(self.measured, here=here, tell=tell))

    def measured(self, folder: Path, here: Callable[[], Any], tell: ProgressCallback) -> float:
        """The mean score of the adapter in a folder. A game without an outcome counts as 0."""
        base = here()
        adapter = find_adapter(folder)
        playing = self.playing._replace(engine=base.adapted(str(folder)), play_on=play, here=None)
        counting = Counting(tell, len(self.numbers))
        counting.what = f"games that choose the checkpoint ({folder.parent.name})"
        played = playing.play(self.numbers, {}, counting)
        if played.interrupted:
            raise Interrupted
        played.check(len(self.numbers))
        base.adapters.drop(adapter.digest)
        scores = [over.score.get(self.score, 0.0) for over in played.games if over.outcome is not None]
        return sum(scores) / len(self.numbers)


class UntracedGames(NamedTuple):
    """Games like those of a trace file, by their numbers, none of which is in it. `score`: what they are judged by."""

    scenario: Scenario
    config: RunConfig
    numbers: range
    score: str

    @classmethod
    def after(cls, file: Path, kind: type[Scenario], recipe: Recipe, score: str, games: int) -> UntracedGames:
        """The `games` games that follow those of a file, in the mode that `recipe` trains for.

        Raises:
            TuneError: The traces are of another scenario, were not written by `agentcho trace`, were sampled with
                different options, or have no score of this name.
            TaskError: There are too few tasks after those of the traces.
        """
        traces = read_traces(file)
        options, sampled = _settings(traces, file, kind.name)
        names = dict.fromkeys(name for trace in traces for name in trace.meta.get("score") or ())
        if score not in names:
            known = f"it has {', '.join(names)}" if names else "it has none"
            raise TuneError(str(file), f"has no score {score!r}; {known}{asking(score, names)}")
        first = max(int(trace.meta["game"]) for trace in traces) + 1
        how = {"mode": recipe.mode, "leakage": recipe.leakage, "games": first + games}
        scenario, config = kind(**options), RunConfig.model_validate(sampled | how)
        tasks_of(scenario, config)
        return cls(scenario, config, range(first, first + games), score)

    def on(self, engine: EnginePort) -> Choice:
        """The choice by these games, played on an engine."""
        return Choice(Playing(self.scenario, self.config, engine), self.numbers, self.score)


def _settings(traces: Sequence[Workflow], file: Path, scenario: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The scenario's options and the sampling options that all traces have."""
    needed = {"options", "game", *SAMPLED}
    for place, trace in enumerate(traces, start=1):
        if trace.workflow != scenario:
            raise TuneError(f"{file}:{place}", f"is a trace of {trace.workflow}, not of {scenario}")
        if not needed <= trace.meta.keys():
            what = "does not say how its game was sampled; --choose-by needs traces that `agentcho trace` wrote"
            raise TuneError(f"{file}:{place}", what)
        if different := sorted(n for n in needed - {"game"} if trace.meta[n] != traces[0].meta[n]):
            what = f"has other {', '.join(different)} than the first trace; --choose-by needs one kind of game"
            raise TuneError(f"{file}:{place}", what)
    known = traces[0].meta if traces else {}
    return dict(known.get("options", {})), {name: known[name] for name in SAMPLED if name in known}

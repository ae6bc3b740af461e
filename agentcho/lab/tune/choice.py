"""Selects the checkpoint of a training by the score of games instead of the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.config import RunConfig
from agentcho.config.options import checked
from agentcho.engine.lora_adapter import find_adapter
from agentcho.errors import ConfigError, TuneError, asking
from agentcho.events import Counting
from agentcho.games.runs.runtime import play, tasks_of
from agentcho.lab.collect import Interrupted, Playing, adapted
from agentcho.lab.tune.recipe import Recipe
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback, heard
from agentcho.records.trace import Workflow, read_traces
from agentcho.scenario import Scenario

SAMPLED = ("tasks", "digest", "seed", "temperature", "top_p", "max_tokens")
"""What a trace says about how its game was sampled, besides the scenario's options. `digest` is that of its tasks."""


class Validation(NamedTuple):
    """Selects the checkpoint by games instead of the loss: by the mean of `score` over `games` games, which `measured`
    returns for the adapter in a folder. On equal means, the lower loss wins. `measured` also gets a function that
    raises `KeyboardInterrupt` once Ctrl-C has arrived, and calls it now and then."""

    score: str
    games: int
    measured: Callable[[Path, Callable[[], None]], float]


class Choice(NamedTuple):
    """How the best checkpoint is selected: by the mean of `score` over the games of `playing` with these numbers, which
    are neither compared nor trained on."""

    playing: Playing
    numbers: range
    score: str

    def validation(self, here: Callable[[], Any], tell: ProgressCallback) -> Validation:
        """The validation of a training, on the engine that `here` returns."""
        return Validation(self.score, len(self.numbers), partial(self.measured, here=here, tell=tell))

    def measured(
        self, folder: Path, check: Callable[[], None], here: Callable[[], Any], tell: ProgressCallback
    ) -> float:
        """The mean score of the adapter in a folder. A game that ends without an outcome, or with an error, counts as
        0. `GamesFailed`: all ended with an error."""
        base = here()
        adapter = find_adapter(folder)
        counting = Counting(heard(tell, check), len(self.numbers), what="games that choose the checkpoint")
        try:
            with adapted(base, str(folder)) as engine:
                playing = self.playing._replace(engine=engine, play_on=play, here=None)
                played = playing.play(self.numbers, {}, counting)
        finally:
            base.adapters.drop(adapter.digest)
        if played.interrupted:
            raise Interrupted
        if len(played.errors) == len(self.numbers):
            played.check(len(self.numbers))
        scores = [over.score.get(self.score, 0.0) for over in played.games if over.outcome is not None]
        return sum(scores) / len(self.numbers)


class UntracedGames(NamedTuple):
    """Games like those of a trace file, with numbers that none of its games has. `score`: what they are judged by."""

    scenario: Scenario
    config: RunConfig
    numbers: range
    score: str

    @classmethod
    def after(
        cls, file: Path, kind: type[Scenario], recipe: Recipe, base: RunConfig, score: str, games: int
    ) -> UntracedGames:
        """The `games` games that follow those of a file, in the mode that `recipe` trains for. They have the scenario's
        options, the tasks, and the sampling options of the traces; all else is as in `base`.

        Raises:
            TuneError: The traces are of another scenario, were not written by `agentcho trace`, differ in their
                options, had other tasks, or have no score of this name.
            TaskError: There are too few tasks after those of the traces.
        """
        traces = read_traces(file)
        places = [n for n, raw in enumerate(file.read_bytes().splitlines(), start=1) if raw.strip()]
        options, sampled = _settings(traces, [f"{file}:{place}" for place in places], kind.name)
        names = dict.fromkeys(name for trace in traces for name in trace.meta.get("score") or ())
        if score not in names:
            known = f"it has {', '.join(names)}" if names else "it has none"
            raise TuneError(str(file), f"has no score {score!r}; {known}{asking(score, names)}")
        digest = sampled.pop("digest")
        try:
            first = max(int(trace.meta["game"]) for trace in traces) + 1
            how = {"mode": recipe.mode, "leakage": recipe.leakage, "games": first + games, "plain_markers": "accept"}
            scenario, config = kind(**options), checked(RunConfig, **(base.model_dump() | sampled | how))
        except (ConfigError, TypeError, ValueError) as error:
            raise TuneError(str(file), f"games cannot be played as its games were: {error}") from error
        tasks = tasks_of(scenario, config)
        if digest != (None if tasks is None else tasks.digest):
            raise TuneError(str(file), "its games had other tasks than are there now; restore them, or trace again")
        return cls(scenario, config, range(first, first + games), score)

    def on(self, engine: EnginePort) -> Choice:
        """The choice by these games, played on an engine."""
        return Choice(Playing(self.scenario, self.config, engine), self.numbers, self.score)


def _settings(
    traces: Sequence[Workflow], places: Sequence[str], scenario: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The scenario's options and the sampling options that all traces have."""
    needed = ("options", "game", *SAMPLED)
    for place, trace in zip(places, traces, strict=True):
        if trace.workflow != scenario:
            raise TuneError(place, f"is a trace of {trace.workflow}, not of {scenario}")
        whole = set(needed) <= trace.meta.keys() and isinstance(trace.meta.get("score") or {}, dict)
        if not whole:
            what = "does not say how its game was sampled; --choose-by needs traces that `agentcho trace` wrote"
            raise TuneError(place, what)
        if changed := [name for name in needed if name != "game" and trace.meta[name] != traces[0].meta[name]]:
            what = f"differs from the first trace in {', '.join(changed)}; --choose-by needs traces with equal options"
            raise TuneError(place, what)
    known = traces[0].meta if traces else {}
    return known.get("options", {}), {name: known.get(name) for name in SAMPLED}

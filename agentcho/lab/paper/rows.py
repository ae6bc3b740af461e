"""Maps a row of a table to its games: what is played, where its records are, and what is trained for it. Independent of
phases, whole tables and the results of games.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.config import RunConfig
from agentcho.games.runs import library
from agentcho.games.runs.runtime import tasks_of
from agentcho.lab.collect import Playing
from agentcho.lab.compare.columns import Column
from agentcho.lab.paper.adapters import Ends, Lesson
from agentcho.lab.paper.sets import Data, Sets
from agentcho.lab.paper.tables import TEACHING, Row, Table
from agentcho.lab.tune.choice import Choice
from agentcho.lab.tune.lessons import MOST_DEV
from agentcho.lab.tune.recipe import Recipe
from agentcho.protocol.progress import ProgressCallback
from agentcho.scenario import Scenario

SINGLE = "direct"
Open = Callable[[Scenario, RunConfig], Playing]
"""How games of a scenario are played: in this process, or by workers."""


class World(NamedTuple):
    """Where rows are played. `config`: what all rows share; `here`: an engine of this process, for training and timing;
    `folder` keeps everything. `fake`: the engine has no model, and can be neither trained nor timed. `top_p`: the value
    for all rows; None: each row's value in the paper. `traces`: the maximum of training traces per row; None: as many
    as in the paper. `recipe`: fields of recipes that differ from ours."""

    config: RunConfig
    open: Open
    here: Callable[[], Any]
    folder: Path
    tell: ProgressCallback
    fake: bool = False
    top_p: float | None = None
    traces: int | None = None
    recipe: Mapping[str, Any] = {}


class Taught(NamedTuple):
    """The numbers of the baseline games that an adapter is trained on, and of those that select its checkpoint. `held`
    of the former are held out, for the loss."""

    traces: range
    held: int
    dev: range


class Rows(NamedTuple):
    """All rows: the number of `games` of each, and their tasks."""

    world: World
    games: int
    data: Data
    sets: Mapping[str, Sets]

    def scenario(self, row: Row) -> Scenario:
        """The scenario of a row with its options."""
        return library.scenario(row.scenario)(**row.options)

    def config(self, row: Row, games: int | None = None, tasks: str | None = None) -> RunConfig:
        """The options of a row's games, without its adapter; `tasks` replaces its own."""
        own = self.sets[row.scenario].compared if row.scenario in self.sets else None
        given = {
            "games": games or self.games,
            "tasks": tasks or own,
            "mode": row.mode,
            "leakage": "audit",
            "top_p": row.top_p if self.world.top_p is None else self.world.top_p,
        }
        return RunConfig.model_validate(self.world.config.model_dump() | given)

    def playing(self, row: Row, column: Column, games: int | None = None, tasks: str | None = None) -> Playing:
        """How its games are played."""
        return self.world.open(self.scenario(row), column.config(self.config(row, games, tasks)))

    def folder(self, row: Row, column: Column, playing: Playing) -> Path:
        """The folder of its records; rows with the same games share one."""
        key = digest({"games": playing.asked, "column": column.name, "adapter": column.digest})
        return self.world.folder / "games" / f"{row.scenario}-{row.mode}-{key}"

    def lesson(self, table: Table, row: Row) -> Lesson:
        """The training of a tuned row. `TaskError`: there are no tasks left for it."""
        source = table.row(row.of) if row.of is not None else row
        if row.taught is not None:
            source = source._replace(options=row.taught)
        taught, folder = self.taught(table, source), self.world.folder
        config = self._training(source, taught)
        tasks_of(self.scenario(source), config)
        playing = self.world.open(self.scenario(source), config)
        teaching = TEACHING[table.name]
        held = taught.held / len(taught.traces)
        recipe = Recipe(mode=row.mode, leakage="audit", epochs=teaching.epochs, dev=held, **self.world.recipe)
        asked = {"games": playing.asked, "numbers": [taught.traces.start, taught.traces.stop]}
        name = digest(asked)
        single = None
        if row.of is not None:
            step = self.world.open(library.scenario(SINGLE)(), config)
            single = Ends(step, folder / "traces" / f"{SINGLE}-of-{source.scenario}-{name}.jsonl")
        choice = None
        if teaching.score is not None and taught.dev:
            choice = self._choice(row, config, taught, teaching.score)
        chosen = None if choice is None else [choice.score, choice.playing.asked, taught.dev.start, taught.dev.stop]
        trained = {"recipe": recipe.model_dump(mode="json"), "single": row.of is not None, "chosen": chosen}
        key = digest(asked | trained)
        return Lesson(
            playing=playing,
            numbers=taught.traces,
            file=folder / "traces" / f"{source.scenario}-{name}.jsonl",
            single=single,
            recipe=recipe,
            folder=folder / "adapters" / f"{row.adapter}-{key}",
            choice=choice,
        )

    def taught(self, table: Table, row: Row) -> Taught:
        """The baseline games that adapters of a row are trained on: as many as in the paper, or fewer if a published
        set has fewer tasks after those that are compared on. `TaskError`: there are too few."""
        teaching, held = TEACHING[table.name], MOST_DEV
        count = min(teaching.traces, self.world.traces or teaching.traces)
        traces, dev = count + held, teaching.dev * count // teaching.traces
        config, scenario = self.config(row), self.scenario(row)
        tasks = tasks_of(scenario, config)
        limited = None if tasks is None else tasks.size
        first = 0 if limited is None else self.games
        if limited is not None:
            room = limited // scenario.draws() - first
            if room < traces + dev:
                dev = room * dev // (traces + dev)
                traces = max(2, room - dev)
                held = min(held, max(1, traces // 10))
        return Taught(range(first, first + traces), held, range(first + traces, first + traces + dev))

    def _choice(self, row: Row, config: RunConfig, taught: Taught, score: str) -> Choice:
        """How a checkpoint is selected: by games of the row's own kind on held-out tasks."""
        sampled = self.config(row).model_dump(include={"temperature", "top_p"})
        given = {"games": taught.dev.stop, "mode": row.mode, "leakage": "audit"} | sampled
        playing = self.world.open(self.scenario(row), RunConfig.model_validate(config.model_dump() | given))
        return Choice(playing, taught.dev, score)

    def _training(self, row: Row, taught: Taught) -> RunConfig:
        """The config of baseline games that no row is compared on: with another seed for a generator, with the tasks
        after the compared ones for a published set."""
        base = self.world.config
        tasks = tasks_of(self.scenario(row), self.config(row))
        given: dict[str, Any] = {
            "games": taught.traces.stop,
            "tasks": self.sets[row.scenario].trained if row.scenario in self.sets else None,
            "seed": base.seed + 1 if tasks is None or tasks.size is None else base.seed,
            "temperature": 1.0,
            "top_p": 1.0,
            "mode": "baseline",
            "leakage": "audit",
        }
        return RunConfig.model_validate(base.model_dump() | given)


def column_of(row: Row, adapter: Path | None) -> Column:
    """The column of a row."""
    if adapter is None:
        return Column(mode=row.mode)
    from agentcho.engine.lora_adapter import find_adapter

    return Column(mode=row.mode, adapter=str(adapter), digest=find_adapter(adapter).digest)


def digest(asked: Mapping[str, Any]) -> str:
    """A short hash of these values."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]

"""From a row of a table to its games: what is played, where its records are, what is trained for it.

Does not know: phases, tables as a whole, what comes of the games.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.config import RunConfig
from agentcho.games import library
from agentcho.games.runtime import tasks_of
from agentcho.lab.collect import Playing
from agentcho.lab.compare.columns import Column
from agentcho.lab.paper.adapters import ENOUGH, Ends, Lesson
from agentcho.lab.paper.sets import Data, Sets
from agentcho.lab.paper.tables import Row, Table
from agentcho.lab.tune.recipe import Recipe
from agentcho.progress import Tell
from agentcho.scenario import Scenario

SINGLE = "direct"
Open = Callable[[Scenario, RunConfig], Playing]
"""How games of a scenario are played: here, or by workers."""


class World(NamedTuple):
    """Where rows are played. `config`: what all rows share; `here`: an engine of this process, to train and to time on;
    `folder` keeps everything. `fake`: the engine is one without a model, which can be neither trained nor timed."""

    config: RunConfig
    open: Open
    here: Callable[[], Any]
    folder: Path
    tell: Tell
    fake: bool = False


class Rows(NamedTuple):
    """All rows: how many `games` each has, and what they work at."""

    world: World
    games: int
    data: Data
    sets: Mapping[str, Sets]

    def scenario(self, row: Row) -> Scenario:
        """The scenario of a row with its options."""
        return library.scenario(row.scenario)(**row.options)

    def config(self, row: Row, games: int | None = None, tasks: str | None = None) -> RunConfig:
        """The options of its games, its adapter aside; `tasks` in the place of its own."""
        own = self.sets[row.scenario].compared if row.scenario in self.sets else None
        given = {"games": games or self.games, "tasks": tasks or own, "mode": row.mode, "leakage": "audit"}
        return RunConfig.model_validate(self.world.config.model_dump() | given)

    def playing(self, row: Row, column: Column, games: int | None = None, tasks: str | None = None) -> Playing:
        """How its games are played."""
        return self.world.open(self.scenario(row), column.config(self.config(row, games, tasks)))

    def folder(self, row: Row, column: Column, playing: Playing) -> Path:
        """Where its records are: of two rows that are the same games, in one place."""
        key = digest({"games": playing.asked, "column": column.name, "adapter": column.digest})
        return self.world.folder / "games" / f"{row.scenario}-{row.mode}-{key}"

    def lesson(self, table: Table, row: Row) -> Lesson:
        """What a trained row is trained on. `TaskError`: there are no tasks left for it."""
        source = table.row(row.of) if row.of is not None else row
        config = self._training(source)
        tasks_of(self.scenario(source), config)
        playing, folder = self.world.open(self.scenario(source), config), self.world.folder
        numbers = range(config.games - ENOUGH, config.games)
        recipe = Recipe(mode=row.mode, leakage="audit")
        asked = {"games": playing.asked, "numbers": [numbers.start, numbers.stop]}
        name = digest(asked)
        single = None
        if row.of is not None:
            step = self.world.open(library.scenario(SINGLE)(), config)
            single = Ends(step, folder / "traces" / f"{SINGLE}-of-{source.scenario}-{name}.jsonl")
        key = digest(asked | {"recipe": recipe.model_dump(mode="json"), "single": row.of is not None})
        file = folder / "traces" / f"{source.scenario}-{name}.jsonl"
        return Lesson(playing, numbers, file, single, recipe, folder / "adapters" / f"{row.adapter}-{key}")

    def _training(self, row: Row) -> RunConfig:
        """Baseline games that no row is compared on: of a generator those of another seed, of a published set those
        behind the ones that are compared."""
        generated = self.data == "generators"
        base = self.world.config
        given: dict[str, Any] = {
            "games": ENOUGH if generated else self.games + ENOUGH,
            "tasks": self.sets[row.scenario].trained,
            "seed": base.seed + 1 if generated else base.seed,
            "temperature": 1.0,
            "top_p": 1.0,
            "mode": "baseline",
            "leakage": "audit",
        }
        return RunConfig.model_validate(base.model_dump() | given)


def column_of(row: Row, adapter: Path | None) -> Column:
    """The way of reading of a row."""
    if adapter is None:
        return Column(mode=row.mode)
    from agentcho.engine.adapter import find_adapter

    return Column(mode=row.mode, adapter=str(adapter), digest=find_adapter(adapter).digest)


def digest(asked: Mapping[str, Any]) -> str:
    """Some digits that stand for these values."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]

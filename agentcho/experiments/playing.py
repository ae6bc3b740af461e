"""Plays the columns of a comparison, each in a folder of its own, and never a game twice.

A column's folder holds ordinary run records; what an earlier, broken-off comparison finished is read from them. Does
not know: statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from agentcho.config import RunConfig
from agentcho.events import Event, Over
from agentcho.experiments.columns import Column
from agentcho.game import Forced
from agentcho.record import Finished, SavedRun, runs
from agentcho.request import EnginePort
from agentcho.runtime import Part, play
from agentcho.scenario import Scenario
from agentcho.trace import Workflow
from agentcho.transcript import Entry

Tell = Callable[[str, int, int], None]
"""(column, games that are over, games in all)."""


class Games(NamedTuple):
    """What a column has come to: its games by number, and what was said in each."""

    finished: dict[int, Finished]
    said: dict[int, list[Entry]]
    workflows: dict[int, Workflow]


class Interrupted(Exception):
    """Ctrl-C while a column was played. What was over stays on disk."""


def folder_of(out: Path, column: Column) -> Path:
    """Where a column's records are."""
    name = column.name.replace(":", "-")
    return out / (name if column.digest is None else f"{name}-{column.digest[:8]}")


def collected(folder: Path) -> Games:
    """All games of all records in a folder. One that was ended by an error does not count: it is played again."""
    games = Games({}, {}, {})
    for run in runs(folder) if folder.is_dir() else ():
        _collect(run, games)
    return games


def _collect(run: SavedRun, games: Games) -> None:
    whole = {number: over for number, over in run.finished().items() if not over.failed}
    said, exported = run.games(), {int(w.meta["game"]): w for w in run.export(whole)}
    for number, over in whole.items():
        games.finished[number], games.said[number] = over, said.get(number, [])
        games.workflows[number] = exported[number]


def play_column(
    scenario: Scenario, config: RunConfig, engine: EnginePort, folder: Path, forced: Mapping[int, Forced],
    at_once: int | None, tell: Callable[[int], None],
) -> Games:  # fmt: skip
    """Play those of the column's games that are not over yet, and return all. `GamesFailed`, when the others are over,
    where errors ended some, and `Interrupted` after Ctrl-C."""
    over = collected(folder).finished
    left = tuple(number for number in range(config.games) if number not in over)
    if left:
        part = Part(left, lambda number: forced.get(number, {}))
        played = play(
            scenario, config, engine=engine, sink=_Counting(len(over), tell), out=folder, at_once=at_once, part=part
        )
        if played.interrupted:
            raise Interrupted
        played.check(len(left))
    return collected(folder)


class _Counting:
    """Hears of games as they end."""

    def __init__(self, over: int, tell: Callable[[int], None]) -> None:
        self._over, self._tell = over, tell

    def __call__(self, event: Event) -> None:
        if isinstance(event, Over):
            self._over += 1
            self._tell(self._over)


def forced_words(scenario: Scenario, games: Games) -> dict[int, Forced]:
    """The words of the messages that the scenario pairs, by game: what is said after the header."""
    return {
        number: {
            entry.message.id: _words(entry) for entry in said
            if entry.ended is None and entry.message.kind == "decode" and scenario.paired(entry.message.metadata)
        } for number, said in games.said.items()
    }  # fmt: skip


def _words(entry: Entry) -> tuple[int, ...]:
    message = entry.message
    assert message.sampled is not None
    return message.tokens[message.sampled[0] : min(message.sampled[1], message.content[1])]

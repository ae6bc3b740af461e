"""Plays the columns of a comparison, each in a folder of its own, and never a game twice.

A column's folder holds ordinary run records; what an earlier, broken-off comparison finished is read from them. Does
not know: statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from agentcho.calls.call import EnginePort
from agentcho.config import RunConfig
from agentcho.events import Sink
from agentcho.games.game import Forced
from agentcho.games.run import GameSelection
from agentcho.games.runtime import play
from agentcho.lab.compare.columns import Column
from agentcho.records.record import Over, SavedRun, runs
from agentcho.records.trace import Workflow
from agentcho.records.transcript import Entry
from agentcho.scenario import Scenario


class Games(NamedTuple):
    """What a column has come to: its games by number, and what was said in each."""

    finished: dict[int, Over]
    said: dict[int, list[Entry]]
    workflows: dict[int, Workflow]


class Interrupted(Exception):
    """Ctrl-C while a column was played. What was over stays on disk."""


def folder_of(out: Path, column: Column) -> Path:
    """Where a column's records are."""
    name = column.name.replace(":", "-")
    return out / (name if column.digest is None else f"{name}-{column.digest[:8]}")


def over(folder: Path, games: int) -> frozenset[int]:
    """Which of so many games are over by the records in a folder. One that was ended by an error is not."""
    numbers = {number for run in runs(folder) for number, game in run.finished().items() if not game.failed}
    return frozenset(numbers.intersection(range(games)))


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
    at_once: int | None, sink: Sink,
) -> Games:  # fmt: skip
    """Play those of the column's games that are not over yet, and return all. `GamesFailed`, when the others are over,
    where errors ended some, and `Interrupted` after Ctrl-C."""
    there = collected(folder).finished
    left = tuple(number for number in range(config.games) if number not in there)
    if left:
        selection = GameSelection(left, lambda number: forced.get(number, {}))
        played = play(scenario, config, engine=engine, sink=sink, out=folder, at_once=at_once, selection=selection)
        if played.interrupted:
            raise Interrupted
        played.check(len(left))
    return collected(folder)


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

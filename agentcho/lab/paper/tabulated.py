"""Computes a table from the scores of rows: means, paired differences, and their tests. Independent of games and
models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentcho.lab.compare.comparison import Metric, Preference
from agentcho.lab.compare.pairs import metrics
from agentcho.lab.paper.found import HeldOut, RowFound, Score, TableFound
from agentcho.lab.paper.tables import Row, Table
from agentcho.records.trace import Workflow
from agentcho.scenario import Judged


class Played(NamedTuple):
    """What is kept of a row's games: scores by game, the requested number of games and the number without an outcome,
    its tasks and their digest, texts for timing, texts to be judged, and what its adapter was trained on."""

    scores: Mapping[int, Mapping[str, float]]
    games: int
    without: int
    tasks: str | None = None
    digest: str | None = None
    words: Sequence[Workflow] = ()
    texts: Mapping[int, Judged] = {}
    held_out: HeldOut | None = None


def tabulated(
    table: Table,
    played: Mapping[str, Played | None],
    why: Mapping[str, str],
    preferred: Mapping[str, Preference],
    seed: int,
) -> TableFound:
    """The table of the played rows; `why` has the reason for each other row. Seeded: equal scores give equal
    figures."""
    there = {label: each for label, each in played.items() if each is not None}
    references = {row.label: row.against for row in table.rows if row.label in there and row.against in there}
    found = metrics({label: each.scores for label, each in there.items()}, seed, references) if there else ()
    known = {metric.name: metric for metric in found}
    made = [
        (row.label, _row(table=table, row=row, played=played[row.label], known=known, why=why[row.label]))
        for row in table.rows
    ]
    rows = tuple(row.model_copy(update={"preferred": preferred.get(label)}) for label, row in made)
    return TableFound(
        name=table.name,
        title=table.title,
        scores=table.scores,
        binary=tuple(name for name in table.scores if name in known and known[name].binary),
        rows=rows,
        notes=table.notes,
    )


def _row(table: Table, row: Row, played: Played | None, known: Mapping[str, Metric], why: str) -> RowFound:
    about = {"label": row.label, "scenario": row.scenario, "options": dict(row.options), "mode": row.mode}
    whole = RowFound.model_validate(about | {"adapter": row.adapter, "against": row.against})
    if played is None:
        return whole.model_copy(update={"left_out": why})
    scores = {
        name: Score(
            mean=metric.means[row.label],
            paper=None if (figure := table.paper(row.label, name)) is None else figure.value,
            difference=metric.differences.get(row.label),
        )
        for name, metric in known.items()
    }
    return whole.model_copy(
        update={
            "tasks": played.tasks,
            "digest": played.digest,
            "games": played.games,
            "without": played.without,
            "scores": scores,
            "held_out": played.held_out,
        }
    )

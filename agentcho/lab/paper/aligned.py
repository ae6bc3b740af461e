"""Aligns a result file with the rows of the current tables: figures move to where the tables have them now, whatever
their old labels, and missing rows are marked as not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentcho.lab.compare.pairs import exactly
from agentcho.lab.paper.found import PaperFound, RowFound, Score, TableFound, TimesFound
from agentcho.lab.paper.tables import NAMED, TABLES, Row, Table
from agentcho.lab.stats import holm

NOT_MEASURED = "not measured"
UNNAMED_SUBJECT = "parallel-debate"
Shape = tuple[Any, ...]


def aligned(found: PaperFound) -> PaperFound:
    """The same figures in the current rows, with the current paper figures. A row that another table of the file has is
    used too (Figure 8 has some of Table 3's rows, Table 6 has Table 4's). p-values are corrected over the current
    table, and differences of shares have the exact interval of today. The result is no longer the file itself: its old
    digest is kept, and no longer matches."""
    names = {table.name for table in found.tables}
    names |= {"6"} if "4" in names else set()
    own = {table.name: table for table in found.tables}
    there = {_found_shape(row, table): row for table in found.tables for row in table.rows if row.left_out is None}
    tables = (_table(table, own.get(table.name), there) for table in TABLES if table.name in names)
    times = tuple(_times(each, found.games) for each in found.times)
    return found.model_copy(update={"tables": tuple(tables), "times": times})


def _times(found: TimesFound, games: int) -> TimesFound:
    """Rename the subject of older files, whose Table 5 timed MADpar with names only, without saying so."""
    subjects = {row.subject for row in found.rows}
    if UNNAMED_SUBJECT not in subjects or NAMED in subjects:
        return found
    rows = tuple(
        row.model_copy(update={"subject": NAMED}) if row.subject == UNNAMED_SUBJECT else row for row in found.rows
    )
    lacks = (
        f"{NOT_MEASURED}, and `agentcho paper -n {games} --table {found.name}` measures it: {UNNAMED_SUBJECT}, whose "
    )
    return found.model_copy(update={"rows": rows, "notes": (*found.notes, lacks + "solvers have no names")})


def _table(planned: Table, found: TableFound | None, there: Mapping[Shape, RowFound]) -> TableFound:
    left = {} if found is None else {_found_shape(row, found): row for row in found.rows}
    known = left | {shape: row for shape, row in there.items() if shape not in left or left[shape].left_out}
    rows = [_row(planned, row, known.get(_shape(row, planned))) for row in planned.rows]
    return TableFound(
        name=planned.name,
        title=planned.title,
        scores=planned.scores,
        binary=planned.shares,
        rows=_corrected(planned, rows),
        notes=(*planned.notes, *([] if found is None else _gone(planned, found))),
    )


def _gone(planned: Table, found: TableFound) -> Iterator[str]:
    """Yield a note for each row of a file that is no longer played, with the current label of its reference."""
    labels = {_shape(row, planned): row.label for row in planned.rows}
    shapes = {row.label: _found_shape(row, found) for row in found.rows}
    for row in found.rows:
        if shapes[row.label] not in labels and row.left_out is None:
            beside = labels.get(shapes.get(row.against or "", ()), row.against)
            yield f"{row.label} was measured beside {beside}, and is no longer a row of this table"


def _corrected(planned: Table, rows: Sequence[RowFound]) -> tuple[RowFound, ...]:
    """The rows with Holm's correction over each score of this table."""
    scores = [dict(row.scores) for row in rows]
    for name in planned.scores:
        tested = [each for each in scores if name in each and each[name].difference is not None]
        found = [each[name].difference for each in tested]
        for each, difference, p in zip(tested, found, holm([one.p for one in found if one]), strict=True):
            assert difference is not None
            changed = difference.model_copy(update={"holm": p})
            each[name] = each[name].model_copy(update={"difference": changed})
    return tuple(row.model_copy(update={"scores": each}) for row, each in zip(rows, scores, strict=True))


def _row(table: Table, row: Row, found: RowFound | None) -> RowFound:
    about = {
        "label": row.label,
        "scenario": row.scenario,
        "options": dict(row.options),
        "mode": row.mode,
        "adapter": row.adapter,
        "against": row.against,
    }
    if found is None:
        return RowFound.model_validate(about | {"left_out": NOT_MEASURED})
    scores = {name: _score(table, row, name, found.scores[name]) for name in table.scores if name in found.scores}
    return found.model_copy(update={"label": row.label, "against": row.against, "scores": scores})


def _score(table: Table, row: Row, name: str, score: Score) -> Score:
    figure = table.paper(row.label, name)
    change = None if score.difference is None else exactly(score.difference)
    return score.model_copy(update={"paper": None if figure is None else figure.value, "difference": change})


def _shape(row: Row, table: Table) -> Shape:
    """The identity of a row: what is played, how, and compared with what."""
    against = None if row.against is None else _shape(table.row(row.against), table)
    return (row.scenario, _options(row.options), row.mode, row.adapter, against)


def _found_shape(row: RowFound, table: TableFound) -> Shape:
    beside = next((each for each in table.rows if each.label == row.against), None)
    against = None if beside is None else _found_shape(beside, table)
    return (row.scenario, _options(row.options), row.mode, row.adapter, against)


def _options(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(options.items()))

"""Checks a file that was written by `agentcho paper --export`: its schema, and that its figures are consistent.

Recomputes what can be: exact intervals and tests, corrections over a table, the digest. It cannot check that the games
were played; the sender has to vouch for that.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from math import isclose

from pydantic import ValidationError

from agentcho.audit.wording import listed
from agentcho.lab.compare.comparison import Difference, Mean, Preference
from agentcho.lab.paper.found import PaperFound, RowFound, Score, TableFound, Timed, digest_of
from agentcho.lab.paper.tables import TABLES, Row, Table
from agentcho.lab.stats import Spread, clopper_pearson, holm, mcnemar

Faults = Iterator[str]
HEX = frozenset("0123456789abcdef")


def faults(text: str) -> tuple[str, ...]:
    """Each fault as "place: what is wrong"; empty if the file is valid."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        return (f"line {getattr(error, 'lineno', 1)}: is no JSON: {getattr(error, 'msg', error)}",)
    if not isinstance(raw, dict):
        return ("the file: holds no object",)
    try:
        found = PaperFound.model_validate_json(text)
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False)
        return tuple(f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}" for each in wrong)
    return tuple(_whole(found, digest_of(raw)))


def _whole(found: PaperFound, digest: str) -> Faults:
    if found.digest != digest:
        yield f"digest: is not that of what the file holds, which is {digest}"
    if len(found.modules) != 64 or not set(found.modules) <= HEX:
        yield "modules: is no SHA-256 in hex"
    if found.games < 1:
        yield "games: fewer than 1"
    yield from _model(found)
    yield from _twice("tables", [table.name for table in found.tables])
    yield from _twice("phases", [phase.name for phase in found.phases])
    for number, table in enumerate(found.tables):
        yield from _table(f"tables.{number}", table, found)
    for number, timed in enumerate(found.times):
        for place, row in enumerate(timed.rows):
            yield from _times(f"times.{number}.rows.{place}", row)
    for number, each in enumerate(found.sets):
        if each.loaded is not None and not 0 <= each.loaded.same <= each.loaded.games <= found.games:
            told = f"{each.loaded.same} of {each.loaded.games} games, and {found.games} were asked for"
            yield f"sets.{number}.loaded: {told}"
    for number, phase in enumerate(found.phases):
        if phase.seconds < 0:
            yield f"phases.{number}.seconds: less than 0"


def _model(found: PaperFound) -> Faults:
    if not found.model.get("model"):
        yield "model.model: is missing"
    for key in ("machine", "commit", "python", "torch", "transformers", "agentcho"):
        if not found.machine.get(key):
            yield f"machine.{key}: is missing"


def _twice(place: str, names: Sequence[str]) -> Faults:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{place}: {name} stands there {count} times"


def _table(place: str, table: TableFound, found: PaperFound) -> Faults:
    known = next((each for each in TABLES if each.name == table.name), None)
    labels, planned = [row.label for row in table.rows], [] if known is None else list(known.rows)
    if known is None or labels != [row.label for row in planned]:
        yield f"{place}.rows: {_other_rows(table, labels, [row.label for row in planned], found)}"
        known, planned = None, []
    for number, row in enumerate(table.rows):
        where = f"{place}.rows.{number}"
        if known is not None:
            yield from _as_planned(where, row, known, planned[number])
        yield from _row(where, row, table, found)
    for name in table.scores:
        yield from _corrected(place, name, table)


def _other_rows(table: TableFound, labels: Sequence[str], planned: Sequence[str], found: PaperFound) -> str:
    """The fault and remedy for a table with other rows than those of this version."""
    lacks = [label for label in planned if label not in labels]
    more = [label for label in labels if label not in planned]
    told = [f"lack {_quoted(lacks)}"] if lacks else []
    told += [f"have {_quoted(more)}, which this version does not play"] if more else []
    commit, version = (found.machine.get(key, "?") for key in ("commit", "agentcho"))
    return (
        f"are not those of Table {table.name}: they {', and '.join(told) or 'stand in another order'}. The file is of "
        f"agentcho {version} at commit {commit[:10]}: check these rows with that, or play the table of today with "
        f"`agentcho paper --table {table.name}`"
    )


def _quoted(labels: Sequence[str]) -> str:
    return listed([repr(label) for label in labels])


def _as_planned(where: str, row: RowFound, known: Table, planned: Row) -> Faults:
    """Whether a row is what this version plays under its label, with the paper's figures."""
    shape = planned.scenario, dict(planned.options), planned.mode, planned.adapter, planned.against
    if (row.scenario, row.options, row.mode, row.adapter, row.against) != shape:
        yield f"{where}: is another row than this table's {row.label!r}"
    for name, score in row.scores.items():
        figure = known.paper(row.label, name)
        if score.paper is not None and (figure is None or score.paper != figure.value):
            wanted = "prints none" if figure is None else f"prints {figure.value:g}"
            yield f"{where}.scores.{name}.paper: {score.paper:g}, and the paper {wanted}"


def _row(place: str, row: RowFound, table: TableFound, found: PaperFound) -> Faults:
    if row.left_out is not None:
        if row.scores:
            yield f"{place}: is left out and has scores"
        return
    if not row.scores and row.without < row.games:
        yield f"{place}: has neither scores nor a reason"
    if row.games != found.games:
        yield f"{place}.games: {row.games}, and {found.games} were asked for"
    if not 0 <= row.without <= row.games:
        yield f"{place}.without: {row.without} of {row.games} games"
    if row.held_out is not None and row.held_out.seen > row.held_out.tasks:
        yield f"{place}.held_out: more tasks were seen than there are"
    if (row.held_out is None) != (row.adapter == "none"):
        yield f"{place}.held_out: goes with trained rows, and with all of them"
    for name, score in row.scores.items():
        where = f"{place}.scores.{name}"
        if name not in table.scores:
            yield f"{where}: is no score of this table"
        yield from _score(where, score, row, name in table.binary)
    if row.preferred is not None:
        yield from _preferred(f"{place}.preferred", row.preferred, row)


def _score(place: str, score: Score, row: RowFound, binary: bool) -> Faults:
    yield from _mean(f"{place}.mean", score.mean, row, binary)
    if score.difference is not None:
        if row.against is None:
            yield f"{place}.difference: the row is held against none"
        yield from _difference(f"{place}.difference", score.difference, score.mean, binary)


def _mean(place: str, mean: Mean, row: RowFound, binary: bool) -> Faults:
    if not 0 <= mean.games <= row.games - row.without:
        yield f"{place}.games: {mean.games} of {row.games - row.without} games that ended with an outcome"
        return
    yield from _within(place=place, value=mean.value, low=mean.span.low, high=mean.span.high, games=mean.games)
    if binary and mean.games:
        count = round(mean.value * mean.games)
        if not isclose(count, mean.value * mean.games, abs_tol=1e-6):
            yield f"{place}.value: is no share of {mean.games} games"
            return
        exact = clopper_pearson(count, mean.games)
        if not _close(exact.low, mean.span.low) or not _close(exact.high, mean.span.high):
            yield f"{place}.span: is not the exact interval of {count} of {mean.games}"


def _difference(place: str, found: Difference, mean: Mean, binary: bool) -> Faults:
    if not 0 <= found.games <= mean.games:
        yield f"{place}.games: {found.games} pairs of {mean.games} games"
    yield from _within(place=place, value=found.value, low=found.span.low, high=found.span.high, games=found.games)
    if not 0 <= found.p <= found.holm <= 1:
        yield f"{place}: p and its correction are not in order (0 <= p <= holm <= 1)"
    if not binary:
        return
    if found.gained is None or found.lost is None or found.gained + found.lost > found.games:
        yield f"{place}: gained and lost do not fit {found.games} pairs"
    elif not _close(found.value * found.games, found.gained - found.lost):
        yield f"{place}.value: is not (gained - lost) / games"
    elif not _close(found.p, mcnemar(found.gained, found.lost)):
        yield f"{place}.p: is not that of McNemar's exact test"


def _corrected(place: str, name: str, table: TableFound) -> Faults:
    """Check Holm's correction over all differences of one score."""
    there = [(number, row.scores[name].difference) for number, row in enumerate(table.rows) if name in row.scores]
    tested = [(number, found) for number, found in there if found is not None]
    for (number, found), wanted in zip(tested, holm([found.p for _, found in tested]), strict=True):
        if not _close(found.holm, wanted):
            yield f"{place}.rows.{number}.scores.{name}.difference.holm: is not Holm's correction over this table"


def _preferred(place: str, told: Preference, row: RowFound) -> Faults:
    if told.wins + told.losses + told.ties != told.games or told.games > row.games:
        yield f"{place}: wins, losses and ties do not fit {told.games} pairs"
    elif not _close(told.p, mcnemar(told.wins, told.losses)):
        yield f"{place}.p: is not that of McNemar's exact test"


def _times(place: str, row: Timed) -> Faults:
    if row.runs < 1:
        yield f"{place}.runs: fewer than 1"
    for name in ("first", "seconds", "waiting", "first_ratio", "seconds_ratio"):
        each: Spread = getattr(row, name)
        yield from _within(place=f"{place}.{name}", value=each.middle, low=each.low, high=each.high, games=row.runs)
        if each.low < 0 or (name == "waiting" and each.high > 1 + 1e-9):
            yield f"{place}.{name}: is no {'share' if name == 'waiting' else 'time'}"


def _within(place: str, value: float, low: float, high: float, games: int) -> Faults:
    if games and not low - 1e-9 <= value <= high + 1e-9:
        yield f"{place}: {value:g} is not in its interval, {low:g} to {high:g}"


def _close(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)

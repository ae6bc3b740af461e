"""Judges by one rule which of the paper's effects a result shows: reproduced, null, reversed, at floor or ceiling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Literal, NamedTuple, get_args

from agentcho.audit.measurement import Interval
from agentcho.lab.bench.arms import AUDIT
from agentcho.lab.paper.figures import GAIN, TIMES, Figure
from agentcho.lab.paper.found import PaperFound, TableFound, Timed, TimesFound
from agentcho.lab.paper.tables import COOPERATES, Name, Row, Table, table_named

Verdict = Literal["reproduced", "smaller", "null", "reversed", "ours alone", "no difference in both", "not measured"]
Bound = Literal["", "at floor", "at ceiling"]
Sign = Literal[-1, 0, 1]
SCORES: dict[Name, str] = {
    "1": "all right",
    "2": "covered",
    "3": COOPERATES,
    "4": "correct",
    "7": "bob predicts cooperation",
    "f8": COOPERATES,
}
"""The score by which each table is judged."""
CEILING, FLOOR = 0.95, 0.5
"""Means from `CEILING` on leave no room above; means below `FLOOR` times the paper's baseline leave none below."""
RULE = (
    "An effect is the difference between a row and its baseline. It is present if its 95% interval excludes 0. Where "
    "the paper prints no interval, that of two independent shares of its games is used, or what its text says. "
    "Reproduced: present in both, with the same sign. Reversed: present in both, with opposite signs. Null: present in "
    "the paper only. Ours alone: present here only. At ceiling: the baseline and the row both score 95% or more, so "
    "that no effect could show. At floor: the baseline scores less than half of what it scores in the paper. For "
    "times, the interval of the ratio has to exclude 1. For Figure 4, the largest gains are compared: smaller means "
    "smaller than the paper's"
)


class Effect(NamedTuple):
    """One effect: its table, row and score, the paper's value and ours (None: not measured), and the verdict. Values
    are differences of shares, or ratios (of times)."""

    table: str
    row: str
    score: str
    paper: float
    ours: float | None
    verdict: Verdict
    bound: Bound = ""


def effects(found: PaperFound) -> tuple[Effect, ...]:
    """All effects of the tables in a result that is aligned with the current tables."""
    tables = [each for each in found.tables if each.name in SCORES]
    told = [effect for each in tables for effect in _of_table(table_named(each.name), each)]
    told += [effect for times in found.times for effect in _of_times(times)]
    return tuple(told)


def counted(told: Sequence[Effect]) -> dict[Verdict, dict[Bound, int]]:
    """The number of effects by verdict and bound."""
    found: dict[Verdict, dict[Bound, int]] = {}
    for name in get_args(Verdict):
        bounds = Counter(effect.bound for effect in told if effect.verdict == name)
        found |= {name: dict(bounds)} if bounds else {}
    return found


def expected(table: Table, row: Row) -> Sign | None:
    """The sign of the paper's effect of a row in its table's score; None: the paper has no such row."""
    pair = _pair(table, row)
    return None if pair is None else _sign_of(*pair, games=table.games)


def verdict(paper: Sign, ours: Sign) -> Verdict:
    """The verdict from both signs."""
    if paper == 0:
        return "no difference in both" if ours == 0 else "ours alone"
    return "null" if ours == 0 else "reproduced" if ours == paper else "reversed"


def bounded(baseline: float, own: float, *, paper: float) -> Bound:
    """Whether our baseline and our row leave room for an effect, compared with the paper's baseline."""
    if baseline >= CEILING and own >= CEILING:
        return "at ceiling"
    return "at floor" if baseline < FLOOR * paper else ""


def sign(low: float, high: float, middle: float = 0.0) -> Sign:
    """The side of the middle on which an interval lies; 0: on both."""
    return 1 if low > middle else -1 if high < middle else 0


def _pair(table: Table, row: Row) -> tuple[Figure, Figure] | None:
    """The paper's figures of a row's reference and of the row."""
    score = SCORES[table.name]
    before, own = table.paper(row.against or "", score), table.paper(row.label, score)
    return None if before is None or own is None else (before, own)


def _sign_of(before: Figure, own: Figure, games: int) -> Sign:
    change = own.value - before.value
    if own.low is not None and own.high is not None:
        return sign(own.low, own.high)
    if own.differs is not None:
        return (1 if change > 0 else -1) if own.differs else 0
    half = 1.96 * sqrt(sum(each.value * (1 - each.value) / games for each in (before, own)))
    return sign(change - half, change + half)


def _of_table(table: Table, found: TableFound) -> Iterator[Effect]:
    name = SCORES[table.name]
    scored = {row.label: row.scores[name] for row in found.rows if name in row.scores}
    for row in table.rows:
        pair = _pair(table, row)
        if pair is None:
            continue
        before, own = pair
        change = own.value - before.value
        called = table.title.partition(":")[0]
        score, reference = scored.get(row.label), scored.get(row.against or "")
        if score is None or reference is None or score.difference is None or not score.difference.games:
            yield Effect(table=called, row=row.label, score=name, paper=change, ours=None, verdict="not measured")
            continue
        span: Interval = score.difference.span
        told = verdict(_sign_of(before, own, table.games), sign(span.low, span.high))
        bound = bounded(reference.mean.value, score.mean.value, paper=before.value)
        yield Effect(
            table=called,
            row=row.label,
            score=name,
            paper=change,
            ours=score.difference.value,
            verdict=told,
            bound=bound,
        )


def _of_times(found: TimesFound) -> Iterator[Effect]:
    called = found.title.partition(":")[0]
    own = [row for row in found.rows if row.arm == AUDIT]
    if found.name == "f4" and own:
        best = max(own, key=lambda row: row.seconds_ratio.middle)
        reached = best.seconds_ratio.middle
        told: Verdict = "reproduced" if reached >= GAIN else "smaller" if best.seconds_ratio.low > 1 else "null"
        yield Effect(
            table=called, row=f"{best.subject}, {AUDIT}", score="end to end", paper=GAIN, ours=reached, verdict=told
        )
    for row in own if found.name == "5" else ():
        if row.subject in TIMES:
            yield from _sooner(called, row)
    timed = {row.subject for row in own}
    for subject in (each for each in TIMES if each not in timed) if found.name == "5" and own else ():
        for score, (value, _, _) in (("first token", TIMES[subject].first), ("end to end", TIMES[subject].end)):
            yield Effect(
                table=called, row=f"{subject}, {AUDIT}", score=score, paper=value, ours=None, verdict="not measured"
            )


def _sooner(called: str, row: Timed) -> Iterator[Effect]:
    paper = TIMES[row.subject]
    for score, theirs, ours in (
        ("first token", paper.first, row.first_ratio),
        ("end to end", paper.end, row.seconds_ratio),
    ):
        value, low, high = theirs
        told = verdict(sign(low, high, 1.0), sign(ours.low, ours.high, 1.0))
        yield Effect(
            table=called, row=f"{row.subject}, {row.arm}", score=score, paper=value, ours=ours.middle, verdict=told
        )

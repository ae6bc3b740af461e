"""Means and paired differences without intervals and tests, if the library for these is not installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from agentcho.audit.measurement import Interval
from agentcho.lab.compare.comparison import Difference, Mean, Metric
from agentcho.lab.compare.pairs import Scores, values
from agentcho.lab.sweep.data import UNTESTED


def metrics(scores: Mapping[str, Scores], seed: int, references: Mapping[str, str]) -> tuple[Metric, ...]:
    """See `pairs.metrics`."""
    names = dict.fromkeys(name for games in scores.values() for score in games.values() for name in score)
    return tuple(
        _metric(name, {row: values(games, name) for row, games in scores.items()}, references) for name in names
    )


def difference(before: Mapping[int, float], after: Mapping[int, float], binary: bool, seed: int) -> Difference:
    """See `pairs.difference`; p is 1 and meaningless."""
    changes = [after[game] - before[game] for game in sorted(before.keys() & after.keys())]
    value = _mean(changes)
    return Difference(games=len(changes), value=value, span=_at(value), test=UNTESTED, p=1.0, holm=1.0)


def _metric(name: str, rows: Mapping[str, Mapping[int, float]], references: Mapping[str, str]) -> Metric:
    binary = {value for found in rows.values() for value in found.values()} <= {0.0, 1.0}
    means = {row: _mean_of([*found.values()]) for row, found in rows.items()}
    differences = {row: difference(rows[first], rows[row], binary, 0) for row, first in references.items()}
    return Metric(name=name, binary=binary, means=means, differences=differences)


def _mean_of(found: Sequence[float]) -> Mean:
    return Mean(games=len(found), value=_mean(found), span=_at(_mean(found)))


def _mean(found: Sequence[float]) -> float:
    return fmean(found) if found else 0.0


def _at(value: float) -> Interval:
    return Interval(low=value, high=value, method="not installed: no interval")

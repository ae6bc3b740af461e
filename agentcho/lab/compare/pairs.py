"""Computes means, paired differences and their tests from the scores of games."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from agentcho.lab.compare.comparison import Comparison, Difference, Mean, Metric
from agentcho.lab.stats import changed_share, clopper_pearson, holm, mcnemar, resampled, sign_flips

Scores = Mapping[int, Mapping[str, float]]
"""Scores by game and metric."""


def metrics(scores: Mapping[str, Scores], seed: int, references: Mapping[str, str] | None = None) -> tuple[Metric, ...]:
    """Every metric that any game has, in the order of first occurrence. `references`: the reference column of each
    column that has one; by default the first, for all others.

    A metric is binary if all games score it 0 or 1. Seeded: the same scores give the same figures.
    """
    first, *others = scores
    references = dict.fromkeys(others, first) if references is None else references
    names = dict.fromkeys(name for games in scores.values() for score in games.values() for name in score)
    return tuple(
        _metric(name, {column: values(games, name) for column, games in scores.items()}, references, seed)
        for name in names
    )


def values(games: Scores, name: str) -> dict[int, float]:
    """One metric, for the games that have it."""
    return {game: score[name] for game, score in games.items() if name in score}


def _metric(name: str, columns: Mapping[str, Mapping[int, float]], references: Mapping[str, str], seed: int) -> Metric:
    binary = {value for found in columns.values() for value in found.values()} <= {0.0, 1.0}
    found = {
        other: difference(columns[reference], columns[other], binary, seed) for other, reference in references.items()
    }
    means = {column: _mean(list(found.values()), binary, seed) for column, found in columns.items()}
    return Metric(name=name, binary=binary, means=means, differences=corrected(found))


def corrected(found: Mapping[str, Difference]) -> dict[str, Difference]:
    """Correct the p-values of these differences together, by Holm's method."""
    adjusted = holm([each.p for each in found.values()])
    return {name: each.model_copy(update={"holm": p}) for (name, each), p in zip(found.items(), adjusted, strict=True)}


def _mean(values: Sequence[float], binary: bool, seed: int) -> Mean:
    interval = clopper_pearson(int(sum(values)), len(values)) if binary else resampled(values, seed)
    return Mean(games=len(values), value=float(np.mean(values)) if values else 0.0, span=interval)


def difference(before: Mapping[int, float], after: Mapping[int, float], binary: bool, seed: int) -> Difference:
    """`after` minus `before`, over the games that both have. A binary metric is tested exactly, and its interval leaves
    out 0 exactly if its p is less than 0.05."""
    games = sorted(before.keys() & after.keys())
    changes = [after[game] - before[game] for game in games]
    count, value = len(games), float(np.mean(changes)) if changes else 0.0
    if not binary:
        span, p = resampled(changes, seed), sign_flips(changes, seed)
        return Difference(games=count, value=value, span=span, test="sign flips", p=p, holm=1.0)
    gained, lost = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
    return Difference(
        games=count,
        value=value,
        span=changed_share(gained, lost, count),
        test="exact McNemar",
        p=mcnemar(gained, lost),
        holm=1.0,
        gained=gained,
        lost=lost,
    )


def up_to_date(found: Comparison) -> Comparison:
    """A comparison from a file, with the intervals of today: see `exactly`."""
    metrics = [
        metric.model_copy(update={"differences": {name: exactly(each) for name, each in metric.differences.items()}})
        for metric in found.metrics
    ]
    return found.model_copy(update={"metrics": tuple(metrics)})


def exactly(found: Difference) -> Difference:
    """A difference with the interval of today: older files have a bootstrapped one for binary metrics, which can leave
    out 0 where their exact test shows nothing."""
    if found.gained is None or found.lost is None:
        return found
    return found.model_copy(update={"span": changed_share(found.gained, found.lost, found.games)})

"""The part on decisions with adapters of the page on a real model: how far a reader's answers are from the baseline's,
and from those of the baseline with the same adapter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from agentcho.lab.bench.arms import BASELINE
from agentcho.lab.display.reading import shown
from agentcho.lab.reading.result import DecisionsResult, Estimate
from agentcho.lab.stats import resampled

HEADS = (
    "conversations",
    "answer",
    "games",
    "way",
    "from the baseline",
    "with the adapter, from the baseline with it",
    "change (95%)",
    "the adapter alone moves the baseline by (95%)",
)
Odds = Mapping[str, float]
"""Log-odds by conversation."""


def distances(results: Sequence[DecisionsResult]) -> list[tuple[str, ...]]:
    """A row for each set of conversations, question and way that was read with an adapter and without one. Distances
    are absolute differences of log-odds in nats, with each conversation's own private messages."""
    return [row for found in results for row in _rows(found)]


def _rows(found: DecisionsResult) -> Iterator[tuple[str, ...]]:
    read = dict[tuple[str, str], dict[str, dict[str, float]]]()
    for each in found.answers:
        if each.own:
            read.setdefault((each.subject, each.question), {}).setdefault(each.way, {})[each.id] = each.odds
    for (subject, question), ways in read.items():
        for way in ways:
            plain, _, adapter = way.partition("@")
            reference = f"{BASELINE}@{adapter}"
            if not adapter or plain == BASELINE or not {plain, BASELINE, reference} <= ways.keys():
                continue
            ids = sorted(set.intersection(*(set(ways[name]) for name in (way, plain, BASELINE, reference))))
            before = np.abs(_apart(ways[plain], ways[BASELINE], ids))
            after = np.abs(_apart(ways[way], ways[reference], ids))
            moved = _apart(ways[reference], ways[BASELINE], ids)
            yield (
                subject,
                question,
                f"{len(ids)}",
                f"`{plain.partition(':')[2]}`",
                f"{before.mean():.3f}",
                f"{after.mean():.3f}",
                _estimate(after - before, found.seed),
                _estimate(moved, found.seed),
            )


def _apart(one: Odds, other: Odds, ids: Sequence[str]) -> NDArray[np.float64]:
    return np.array([one[id] - other[id] for id in ids])


def _estimate(values: NDArray[np.float64], seed: int) -> str:
    found = Estimate(value=float(values.mean()), span=resampled(values.tolist(), seed).interval)
    return shown(found, 3, "+")

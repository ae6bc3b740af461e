"""The part on decisions with adapters of the page on a real model: how far a reader's answers are from the baseline's,
and from those of the baseline with the same adapter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

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


class Distance(NamedTuple):
    """How far a reader's answers to a question, read in one way, are from the baseline's: without an adapter, and with
    one from the baseline that has it. `moved`: what the adapter alone changes in the baseline."""

    subject: str
    question: str
    games: int
    way: str
    before: float
    after: float
    change: Estimate
    moved: Estimate

    @property
    def row(self) -> tuple[str, ...]:
        """Its cells."""
        sizes = f"{self.before:.3f}", f"{self.after:.3f}"
        ends = shown(self.change, 3, "+"), shown(self.moved, 3, "+")
        return self.subject, self.question, f"{self.games}", self.way, *sizes, *ends

    @property
    def sentence(self) -> str:
        """It in words."""
        span = self.change.span
        told = "farther" if span.low > 0 else "nearer" if span.high < 0 else "no change shown"
        return (
            f"{self.subject}: under {self.way} Bob's {self.question} is {self.before:.3f} nats of log-odds from the "
            f"baseline's, and with an adapter {self.after:.3f} from that of the baseline with it: {told}, "
            f"{shown(self.change, 3, '+')}"
        )


def distances(results: Sequence[DecisionsResult]) -> list[Distance]:
    """One for each set of conversations, question and way that was read with an adapter and without one. Distances
    are absolute differences of log-odds in nats, with each conversation's own private messages."""
    return [row for found in results for row in _rows(found)]


def _rows(found: DecisionsResult) -> Iterator[Distance]:
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
            yield Distance(
                subject=subject,
                question=question,
                games=len(ids),
                way=f"`{plain.partition(':')[2]}`",
                before=float(before.mean()),
                after=float(after.mean()),
                change=_estimate(after - before, found.seed),
                moved=_estimate(moved, found.seed),
            )


def _apart(one: Odds, other: Odds, ids: Sequence[str]) -> NDArray[np.float64]:
    return np.array([one[id] - other[id] for id in ids])


def _estimate(values: NDArray[np.float64], seed: int) -> Estimate:
    return Estimate(value=float(values.mean()), span=resampled(values.tolist(), seed))

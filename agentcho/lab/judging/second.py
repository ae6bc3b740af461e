"""Evaluates a second look: a judge first reads reused encodings in a cheap mode, and reads everything encoded anew if
it is not sure of its pick. Computed from picks measured in both modes; no view implements it.

The margin that counts as sure is the same for all tasks. It is selected on one half of the choices and evaluated on the
other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcho.lab.judging.measured import JudgeOptions, PartialJudge, agreement
from agentcho.lab.judging.picked import BASELINE
from agentcho.lab.judging.result import AGREE, Look, Second

FULL = "full"
"""The mode of the second look."""


class _Both(NamedTuple):
    """One task: the margins of the first look, `[choices]`, in nats; whether its pick, and whether the second look's
    pick, is the baseline's, `[choices]`; and the shares of tokens that each encodes anew."""

    margins: NDArray[np.float64]
    first: NDArray[np.bool_]
    again: NDArray[np.bool_]
    anew: tuple[float, float]

    def half(self, which: int) -> _Both:
        """The choices to select on (0), or those held out (1)."""
        at = slice(which, None, 2)
        return self._replace(margins=self.margins[at], first=self.first[at], again=self.again[at])

    def agreed(self, cuts: NDArray[np.float64]) -> NDArray[np.int64]:
        """For each cut, how many picks are the baseline's if those with a margin below it are looked at again."""
        order = self.margins.argsort()
        looked = np.concatenate(([0], self.again[order].cumsum()))
        sure = self.first.sum() - np.concatenate(([0], self.first[order].cumsum()))
        at = self.looked(cuts)
        return np.asarray(looked[at] + sure[at])

    def looked(self, cuts: NDArray[np.float64]) -> NDArray[np.int64]:
        """For each cut, how many choices are looked at again."""
        return np.sort(self.margins).searchsorted(cuts)


def seconds(asked: JudgeOptions, kept: PartialJudge) -> tuple[Second, ...]:
    """What a second look keeps and costs after each mode except the baseline; empty if `full` was not measured."""
    names = [each.name for each in asked.ways]
    if FULL not in names:
        return ()
    return tuple(_second(asked, kept, name) for name in names if name not in (BASELINE, FULL))


def _second(asked: JudgeOptions, kept: PartialJudge, name: str) -> Second:
    tasks = {task: _both(kept, task, name, asked.n) for task in asked.tasks}
    halves = [each.half(0) for each in tasks.values()]
    cuts = np.concatenate(([0.0], np.nextafter(np.sort(np.concatenate([each.margins for each in halves])), np.inf)))
    enough = np.all([each.agreed(cuts) >= AGREE * len(each.margins) for each in halves], axis=0)
    if not enough.any():
        return Second(first=name, below=None, looks=())
    below = cuts[enough.argmax()]
    return Second(first=name, below=below, looks=tuple(_look(task, each, below) for task, each in tasks.items()))


def _look(task: str, every: _Both, below: float) -> Look:
    held, cut = every.half(1), np.array([below])
    share = float(held.looked(cut)[0]) / max(len(held.margins), 1)
    kept = agreement(int(held.agreed(cut)[0]), len(held.margins))
    return Look(task=task, again=share, kept=kept, anew=every.anew[0] + share * every.anew[1])


def _both(kept: PartialJudge, task: str, name: str, n: int) -> _Both:
    first, again, before = (kept.of(task, each, n) for each in (name, FULL, BASELINE))
    picks = [np.array([pick for block in blocks for pick in block.picks]) for blocks in (first, again, before)]
    margins = np.array([margin for block in first for margin in block.margins])
    anew = [sum(each.anew for each in blocks) / sum(each.read for each in blocks) for blocks in (first, again)]
    return _Both(margins, picks[0] == picks[2], picks[1] == picks[2], (anew[0], anew[1]))

"""Computes the effect of each option of a sweep: a value against the first of its axis, over all cells that are
otherwise equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agentcho.lab.compare.comparison import Difference
from agentcho.lab.compare.pairs import Scores, corrected, values
from agentcho.lab.sweep.data import Effect, Row

Played = frozenset[tuple[int, str | None, int]]
"""What a row plays: seed, digest of the tasks, tasks per game."""
Pairs = Sequence[tuple[Row, Row]]


class Effects(NamedTuple):
    """The rows, their scores by unit, what they play, and the function for the difference of two sets of scores."""

    rows: Sequence[Row]
    units: Mapping[str, Scores]
    played: Mapping[str, Played]
    difference: Callable[[Mapping[int, float], Mapping[int, float], bool, int], Difference]
    seed: int

    def of(self, metric: str) -> Iterator[Effect]:
        """The effects on one metric; their p-values are corrected together. None if only one option varies: the table
        of rows says the same."""
        axes = [axis for axis in self.rows[0].values if len({row.values[axis] for row in self.rows}) > 1]
        if len(axes) < 2:
            return
        named = {(axis, value): pairs for axis in axes for value, pairs in self._by_value(axis).items()}
        found = {f"{axis}={value}": self._effect(pairs, metric) for (axis, value), pairs in named.items()}
        tested = corrected({name: each for name, each in found.items() if each.games})
        for axis, value in named:
            if (each := tested.get(f"{axis}={value}")) is not None:
                first = self.rows[0].values[axis]
                yield Effect(axis=axis, value=value, reference=first, metric=metric, found=each)

    def _by_value(self, axis: str) -> dict[str, list[tuple[Row, Row]]]:
        """By each value except the first: pairs of rows that differ only in this axis and play some of the same tasks,
        the row with the axis's first value first."""
        first, found = self.rows[0].values[axis], defaultdict[str, list[tuple[Row, Row]]](list)
        before = {_others(row, axis): row for row in self.rows if row.values[axis] == first}
        for row in self.rows:
            other = before.get(_others(row, axis))
            if row.values[axis] != first and other is not None and self.played[other.name] & self.played[row.name]:
                found[row.values[axis]].append((other, row))
        return found

    def _effect(self, pairs: Pairs, metric: str) -> Difference:
        """The difference over many pairs of rows: a unit's is the mean over the pairs that have it, so that each game
        counts once."""
        changes = defaultdict[int, list[float]](list)
        for before, after in pairs:
            ones, others = values(self.units[before.name], metric), values(self.units[after.name], metric)
            for unit in ones.keys() & others.keys():
                changes[unit].append(others[unit] - ones[unit])
        means = {unit: sum(found) / len(found) for unit, found in changes.items()}
        return self.difference(dict.fromkeys(means, 0.0), means, False, self.seed)


def _others(row: Row, axis: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in row.values.items() if name != axis)

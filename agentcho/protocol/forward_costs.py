"""The time that the forwards of an engine take, by which it decides how many tokens to draft. Measured elsewhere."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class CostCurve(NamedTuple):
    """The `seconds` that a forward of so many `tokens` takes: at least two measured points, in ascending order."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]

    def of(self, tokens: float) -> float:
        """The seconds for a forward of this many tokens, by linear interpolation, or by extrapolation of the outermost
        two points."""
        at = min(max(bisect_right(self.tokens, tokens), 1), len(self.tokens) - 1)
        (x, y), (to_x, to_y) = ((self.tokens[i], self.seconds[i]) for i in (at - 1, at))
        return y + (tokens - x) * (to_y - y) / (to_x - x)


class ForwardCosts(NamedTuple):
    """A table of forwards of running rows: `seconds[i][j]` for one that feeds `tokens[j]` tokens, each of which attends
    to `depths[i]` others. Both ascend, and there are at least two of each."""

    tokens: tuple[int, ...]
    depths: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]

    def at(self, depth: float) -> CostCurve:
        """The seconds by number of tokens if each token attends to `depth` others. Beyond the largest measured depth
        they keep growing linearly, as attention does."""
        depth = max(depth, self.depths[0])
        columns = zip(*self.seconds, strict=True)
        return CostCurve(self.tokens, tuple(CostCurve(self.depths, column).of(depth) for column in columns))


def validated_costs(costs: ForwardCosts) -> ForwardCosts:
    """Return a table of costs if it is valid. Raises ValueError otherwise."""
    ascending = all(_ascends(axis) for axis in (costs.tokens, costs.depths))
    sizes = len(costs.seconds) == len(costs.depths) and {len(row) for row in costs.seconds} == {len(costs.tokens)}
    if not ascending or not sizes or not all(0 < each < float("inf") for row in costs.seconds for each in row):
        raise ValueError("is not a table of seconds per forward with ascending depths and token counts")
    return costs


def _ascends(axis: Sequence[int]) -> bool:
    return len(axis) > 1 and all(one < other for one, other in pairwise(axis))

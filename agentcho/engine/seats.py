"""Where a running row keeps what it attends to: in a lane of its own, or its context beside others that have the same.

Rows that begin together over the same encodings at the same places share them: they are gathered once, and read once a
step for all. Does not know: calls, when they run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from agentcho.engine.encoding import Context, Storage
from agentcho.engine.gate import LayerProof
from agentcho.engine.lanes import Lane, Lanes, Shared

LEAST = 64
"""Tokens of a context below which reading it apart takes longer than reading it several times."""
_Places = tuple[tuple[Storage, int], ...]


class Seats:
    """The lanes of rows. They `may_share` where that is exact and was found to pay: see `can_share`."""

    def __init__(self, lanes: Lanes, may_share: bool) -> None:
        self._lanes, self._may_share = lanes, may_share
        self._shared: dict[_Places, Shared] = {}
        self._expected: Counter[_Places] = Counter()

    def expect(self, contexts: Iterable[Context]) -> None:
        """Tell of all rows that wait: who begins alone shares with nobody."""
        self._expected = Counter(_places(context) for context in contexts) if self._may_share else Counter()

    def take(self, context: Context, feed: int, alone: bool, apart: bool) -> Lane:
        """A lane for a row that begins with so many tokens."""
        shared = None if alone or context.length < LEAST else self._common(context)
        if shared is None:
            return self._lanes.open(context.length + 2 * feed, alone, apart)
        try:
            lane = self._lanes.open(2 * feed, alone, apart, shared)
        except BaseException:
            if not shared.rows:
                self._forget(shared)
            raise
        shared.rows += 1
        return lane

    def _common(self, context: Context) -> Shared | None:
        """A context that others have too, or are going to have."""
        places = _places(context)
        if places not in self._shared and self._expected[places] > 1:
            self._shared[places] = self._lanes.share(context.length)
        return self._shared.get(places)

    @property
    def shared(self) -> tuple[Shared, ...]:
        """Contexts that rows have in common."""
        return tuple(self._shared.values())

    def leave(self, lane: Lane) -> None:
        """Give a lane up; a context goes with the last row over it."""
        shared = lane.shared
        self._lanes.close(lane)
        if shared is None:
            return
        shared.rows -= 1
        if not shared.rows:
            self._forget(shared)

    def clear(self) -> None:
        """After all rows have left, whether they had begun or not: no context is shared any more."""
        for shared in list(self._shared.values()):
            self._forget(shared)

    def _forget(self, shared: Shared) -> None:
        self._shared = {places: each for places, each in self._shared.items() if each is not shared}
        self._lanes.forget(shared)


def can_share(proofs: Sequence[LayerProof]) -> bool:
    """Whether contexts may be shared: every layer weighs all keys by a plain softmax, so that two parts of them can be
    weighed apart, and torch tells how much each part weighs, which it does on a CPU."""
    return all(proof.plain and proof.shape.device is not None and proof.shape.device.type == "cpu" for proof in proofs)


def _places(context: Context) -> _Places:
    return tuple((piece.storage, piece.offset) for piece in context.pieces)

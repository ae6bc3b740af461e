"""A runner without tensors, to be made into one that computes something else: its pages and slots only count.

Does not know: what that is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from agentcho.calls.call import Sampling
from agentcho.calls.owner import Owner
from agentcho.engine.base import Constraint, Ran, Row
from agentcho.engine.cache import KVEntry
from agentcho.engine.layout import Context, Segment
from agentcho.engine.sequence import Draw
from agentcho.engine.sequence import Sequence as Admitted
from agentcho.engine.waiting import Budget
from agentcho.errors import RequestError, StoreFull


class VirtualPages:
    """See `base.Pool`: a page is a token, and nothing is in it. Nothing leaves it but what is dropped."""

    page_tokens = 1

    def __init__(self, limit: int = 1 << 62) -> None:
        self.limit, self.free_pages = limit, list[int]()
        self.used = self.reserved = self.high_water = 0

    @property
    def allocated(self) -> int:
        """Tokens that encodings have."""
        return self.used

    @property
    def room(self) -> int:
        """Tokens that are neither of encodings nor promised."""
        return self.limit - self.used - self.reserved

    def pages_for(self, tokens: int) -> int:
        """One a token."""
        return tokens

    def reserve(self, tokens: int) -> int:
        """Promise room for so many tokens. `StoreFull`: nothing was promised."""
        if tokens > self.room:
            raise StoreFull(tokens, self.room)
        self.reserved += tokens
        return tokens

    def unreserve(self, pages: int) -> None:
        """Take a promise back."""
        self.reserved -= pages
        assert self.reserved >= 0

    def allocate(self, length: int) -> int:
        """Room for so many tokens, which is named by its length. `StoreFull`: there is none."""
        self.unreserve(self.reserve(length))
        self.used += length
        self.high_water = max(self.high_water, self.used)
        return length

    def free(self, pages: int) -> None:
        """Give it back."""
        self.used -= pages

    def copy_out(self, pages: int) -> int:
        """Nothing is in it."""
        return pages

    def copy_in(self, pages: int, copy: int) -> None:
        """Nothing is in it."""

    def checksum(self, copy: int) -> int:
        """Of nothing."""
        return 0


class VirtualSlot:
    """One row's place. `value` is whatever its runner puts there. Rows share no contexts, and each is by itself."""

    pool = SimpleNamespace(shared=None, kind=SimpleNamespace(alone=False))

    def __init__(self) -> None:
        self.value: Any = None


def virtual(segment: Segment) -> VirtualSlot | None:
    """The slot that a row is fed into."""
    slot: Any = segment.slot
    assert slot is None or isinstance(slot, VirtualSlot)
    return slot


class VirtualSlots:
    """See `base.Slots`."""

    def __init__(self) -> None:
        self._open: set[VirtualSlot] = set()
        self.shared: dict[object, object] = {}

    def __len__(self) -> int:
        return len(self._open)

    def expect(self, contexts: Iterable[Context]) -> None:
        """Nobody shares anything."""

    def take(self, context: Context, feed: int, alone: bool, apart: bool) -> VirtualSlot:
        """A slot for a row."""
        return self.open(feed)

    def open(self, tokens: int, alone: bool = False) -> VirtualSlot:
        """A slot."""
        slot = VirtualSlot()
        self._open.add(slot)
        return slot

    def close(self, slot: VirtualSlot) -> None:
        """Give it up."""
        self._open.remove(slot)

    def clear(self) -> None:
        """Nothing is shared."""


class VirtualRunner(ABC):
    """See `base.Runner`. Everything that can go into a forward goes into the next one, and every word is forced."""

    origin: str = "virtual"
    vocabulary: int | None = None
    asynchronous = False

    def __init__(self, limit: int = 1 << 62) -> None:
        self.pages, self.slots, self.owner = VirtualPages(limit), VirtualSlots(), Owner()
        self.budget = Budget(1 << 60, 1 << 60)

    @abstractmethod
    def feed(self, segment: Segment) -> None:
        """Take in a segment whose pieces were made, or stand before it in the same forward."""

    @abstractmethod
    def store(self, slot: VirtualSlot, start: int, entry: KVEntry) -> None:
        """Make an encoding of all that a row was fed."""

    def step(self, segments: Sequence[Segment]) -> Ran:
        """See `run`."""
        return self.run(segments)

    def run(self, segments: Sequence[Segment]) -> Ran:
        """One forward; there is nothing in its rows."""
        for segment in segments:
            self.feed(segment)
            if segment.entry is not None:
                segment.entry.segment, segment.entry.written = None, segment.entry.length
        return list(segments), [None for segment in segments for _ in segment.wanted]

    def make(self, entry: KVEntry) -> int:
        """Make an encoding by its recipe."""
        assert entry.recipe is not None
        self.run([entry.recipe.segment(entry)])
        return entry.length

    def select(self, groups: Sequence[Sequence[Admitted]]) -> int:
        """A repair encodes its first tokens anew: nothing tells one from another here."""
        for call in (call for group in groups for call in group):
            assert call.repair is not None
            call.choose(range(call.repair.count))
        return 0

    def constrain(self, sampling: Sampling) -> Constraint | None:
        """`RequestError`: there are no words."""
        raise RequestError("an engine without a model has nothing to say; force the words")

    def sample(self, rows: Sequence[Row], draws: Sequence[Draw]) -> list[int | None]:
        """None for each."""
        return [None for _ in rows]

    def keep(self, rows: Sequence[Row]) -> Sequence[Row]:
        """There is nothing in them."""
        return ()

    def synchronize(self) -> None:
        """All was done at once."""
        return

    def probe(self) -> None:
        """There is no device."""
        return

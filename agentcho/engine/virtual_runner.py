"""A base for runners without tensors, which compute something else, such as sets, or nothing. Pages and slots are only
counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Any

from agentcho.engine.call_layout import CallContext, ContextPiece, KVEntry, Reading, Segment, Slot
from agentcho.engine.generation import SamplingDraw
from agentcho.engine.protocols import Row, TokenConstraint
from agentcho.engine.queue import TokenBudget
from agentcho.engine.runner_port import Ran
from agentcho.engine.sequence import Sequence as Admitted
from agentcho.errors import RequestError, StoreDamaged, StoreFull
from agentcho.protocol.call import Logprobs, Sampling
from agentcho.protocol.forward_costs import ForwardCosts
from agentcho.protocol.ownership import Owner
from agentcho.protocol.tools import AnswerForm


class VirtualPages:
    """See `protocols.KVPool`. A page is one token and has no content. An entry that leaves it can only be dropped."""

    page_tokens = 1

    def __init__(self, limit: int = 1 << 62) -> None:
        self.limit = limit
        self.used = self.reserved = self.high_water = 0

    @property
    def room(self) -> int:
        """The number of tokens that are neither used nor promised."""
        return self.limit - self.used - self.reserved

    def pages_for(self, tokens: int) -> int:
        """One page per token."""
        return tokens

    def reserve(self, tokens: int) -> int:
        """Promise room for `tokens` tokens. Raises `StoreFull` if there is no room."""
        if tokens > self.room:
            raise StoreFull(tokens, self.room)
        self.reserved += tokens
        return tokens

    def unreserve(self, pages: int) -> None:
        """Take a promise back."""
        self.reserved -= pages
        assert self.reserved >= 0

    def allocate(self, length: int) -> int:
        """Allocate `length` tokens. Pages are represented by their number. Raises `StoreFull` if there is no room."""
        self.unreserve(self.reserve(length))
        self.used += length
        self.high_water = max(self.high_water, self.used)
        return length

    def free(self, pages: int) -> None:
        """Give pages back."""
        self.used -= pages

    def copy_out(self, pages: Sequence[int]) -> list[int]:
        """Return the page numbers as copies: pages have no content."""
        return list(pages)

    def copy_in(self, copies: Sequence[tuple[int, int]]) -> None:
        """Do nothing: pages have no content."""

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Do nothing: pages have no content."""

    def checksum(self, copy: int) -> int:
        """0, because pages have no content."""
        return 0

    def packed(self, copy: int) -> bytes:
        """The number of pages as text."""
        return b"%d" % copy

    def unpacked(self, data: bytes) -> int:
        """See `packed`."""
        return int(data)

    def check(self, stored: Sequence[tuple[int, int]]) -> None:
        """Raise `StoreDamaged` if the tokens in use are not those of the entries."""
        if self.used != sum(length for _, length in stored) or any(pages != length for pages, length in stored):
            raise StoreDamaged("pages in use do not add up")


class VirtualSlot:
    """The slot of one running decode. `value` is whatever its runner keeps there. Nothing is read in place."""

    alone = False
    readings: Sequence[Reading] = ()
    stored: Sequence[ContextPiece] = ()

    def __init__(self) -> None:
        self.pieces: Sequence[ContextPiece] = ()
        self.value: Any = None


def virtual(segment: Segment) -> VirtualSlot | None:
    """The slot that a row is fed into."""
    return None if segment.slot is None else _virtual(segment.slot)


def _virtual(slot: Slot) -> VirtualSlot:
    """Narrow a slot to a `VirtualSlot`."""
    assert isinstance(slot, VirtualSlot)
    return slot


class VirtualSlots:
    """See `runner_port.Slots`."""

    def __init__(self) -> None:
        self._open: set[VirtualSlot] = set()
        self.shared = ()

    def __len__(self) -> int:
        return len(self._open)

    def expect(self, contexts: Iterable[CallContext]) -> None:
        """Do nothing: no slots are shared."""

    def take(self, context: CallContext, feed: int, alone: bool, apart: bool) -> VirtualSlot:
        """Open a slot for a row."""
        slot = self.open(feed)
        slot.pieces = context.pieces
        return slot

    def open(self, tokens: int, alone: bool = False) -> VirtualSlot:
        """Open a slot."""
        slot = VirtualSlot()
        self._open.add(slot)
        return slot

    def close(self, slot: Slot) -> None:
        """Close a slot."""
        self._open.remove(_virtual(slot))

    def retract(self, slot: Slot, tokens: int) -> None:
        """Do nothing: only runners that keep no value in their slots verify draft tokens."""
        assert _virtual(slot).value is None

    def clear(self) -> None:
        """Do nothing: no slots are shared."""


class VirtualRunner(ABC):
    """See `runner_port.Runner`. A forward has no limit, so every call that can run does. All tokens are forced, unless
    a subclass samples."""

    origin: str = "virtual"
    vocabulary: int | None = None
    asynchronous = False
    block = 0
    costs: ForwardCosts | None = None

    def __init__(self, limit: int = 1 << 62) -> None:
        self.pages = VirtualPages(limit)
        self.slots = VirtualSlots()
        self.owner = Owner()
        self.budget = TokenBudget(1 << 60, 1 << 60)

    @abstractmethod
    def feed(self, segment: Segment) -> None:
        """Compute a segment. Each of its pieces is ready, or comes before it in the same forward."""

    @abstractmethod
    def keep_fed(self, slot: VirtualSlot, entry: KVEntry) -> None:
        """Make an entry of all tokens that a decode was fed."""

    def store(self, slot: Slot, start: int, entry: KVEntry) -> None:
        """See `Runner.store`."""
        self.keep_fed(_virtual(slot), entry)

    def step(self, segments: Sequence[Segment]) -> Ran:
        """See `run`."""
        return self.run(segments)

    def run(self, segments: Sequence[Segment]) -> Ran:
        """Run one forward. Its rows of logits are None."""
        for segment in segments:
            self.feed(segment)
            if segment.entry is not None:
                segment.entry.segment, segment.entry.written = None, segment.entry.length
        return list(segments), [None for segment in segments for _ in segment.wanted]

    def make(self, entry: KVEntry) -> int:
        """Make an entry by its recipe. Returns the number of tokens fed."""
        assert entry.recipe is not None
        self.run([entry.recipe.segment(entry)])
        return 0 if entry.recipe.anchors else entry.length

    def apart(self, tokens: Sequence[int], others: Sequence[Sequence[int]]) -> list[float]:
        """The distances between one-hot embeddings of the tokens."""
        pairs = (zip(tokens, other, strict=False) for other in others)
        return [sqrt(2 * sum(one != its for one, its in pair)) for pair in pairs]

    def select(self, groups: Sequence[Sequence[Admitted]]) -> int:
        """Choose the first tokens of each repair, because there are no values to choose by."""
        for call in (call for group in groups for call in group):
            assert call.repair is not None
            call.choose(range(call.repair.count))
        return 0

    def constrain(self, sampling: Sampling, forms: Sequence[AnswerForm], begun: bool) -> TokenConstraint | None:
        """Raise `RequestError`: nothing can be generated."""
        raise RequestError("an engine without a model cannot generate text; give forced tokens")

    def sample(self, rows: Sequence[Row], draws: Sequence[SamplingDraw]) -> list[int | None]:
        """None for each."""
        return [None for _ in rows]

    def likely(self, rows: Sequence[Row], asked: Sequence[tuple[int, int]]) -> list[Logprobs]:
        """Each token has probability 1, and there are no others."""
        return [((token, 0.0),) for token, _ in asked]

    def keep(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Nothing: rows have no content."""
        return ()

    def measure(self, context: int) -> ForwardCosts | None:
        """None: forwards take no time, and nothing is drafted."""
        return None

    def synchronize(self) -> None:
        """Do nothing: there is nothing to wait for."""
        return

    def probe(self) -> None:
        """Do nothing: there is no device."""
        return

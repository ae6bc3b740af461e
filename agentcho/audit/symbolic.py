"""An engine that computes sets instead of numbers: the value of an encoding is the set of messages that influenced it.

The usual core over a runner whose forward unites the sets of what was gathered. Tokens are words between spaces. Does
not know: agents, audiences, models.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentcho.backends.words import FakeFraming
from agentcho.calls.call import EncodingId
from agentcho.engine.cache import Encoding, KVEntry
from agentcho.engine.core import EngineCore
from agentcho.engine.layout import Piece, Segment
from agentcho.engine.virtual import VirtualRunner, VirtualSlot, virtual

Influence = frozenset[tuple[int, ...]]
"""The token ids of every message whose words went into an encoding, one tuple a message."""


class SetRunner(VirtualRunner):
    """Unites the influences of what is gathered. `values` has the influence of every entry that was ever made."""

    origin = "sets"

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[KVEntry, Influence] = {}

    def feed(self, segment: Segment) -> None:
        """The influences gathered for a segment, with its own tokens where it is a whole message."""
        base = () if segment.base is None else (segment.base,)
        value = self._gathered((*segment.pieces, *base))
        if (slot := virtual(segment)) is not None:
            slot.value = value | (slot.value or frozenset())
        if segment.entry is not None:
            self.values[segment.entry] = value | _words(segment.entry)

    def store(self, slot: VirtualSlot, start: int, entry: KVEntry) -> None:
        """The influences that a row has gathered, with its own tokens."""
        self.values[entry] = slot.value | _words(entry)

    def of(self, entry: KVEntry) -> Influence:
        """The influence on an entry, also on one that is still to be made."""
        if entry in self.values:
            return self.values[entry]
        assert entry.recipe is not None
        return self._gathered(entry.recipe.context.pieces) | _words(entry)

    def _gathered(self, pieces: Iterable[Piece]) -> Influence:
        """The union of the influences on these; the BOS has none."""
        return frozenset[tuple[int, ...]]().union(*(self.of(piece.entry) for piece in pieces if piece.id is not None))


def _words(entry: KVEntry) -> Influence:
    assert entry.recipe is not None
    return frozenset({entry.recipe.tokens})


class SymbolicEngine(EngineCore):
    """A core over sets. It has a BOS and no limit of context.

    Influences are kept after `release`, to be compared with what was written down.
    """

    _runner: SetRunner

    def __init__(self) -> None:
        self._made: dict[EncodingId, KVEntry] = {}
        super().__init__(SetRunner(), FakeFraming(), 1 << 60, 0)

    @property
    def fingerprint(self) -> dict[str, str]:
        """What a run record says of it."""
        return {"model": "symbolic", "model_type": "symbolic", "tokenizer": "words", "dtype": "none", "device": "none"}

    def influence(self, id: EncodingId) -> Influence:
        """Whose words reached an encoding that was finished, released or not. KeyError: it never was."""
        return self._runner.of(self._made[id])

    def _finished(self, encoding: Encoding) -> None:
        self._made[encoding.id] = encoding.entry
        super()._finished(encoding)

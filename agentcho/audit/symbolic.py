"""An engine that computes sets instead of numbers: what an encoding is worth is whose words have reached it.

A core like any other, for known words, over a runner whose forward takes in what is gathered, as it is. Tokens are
words between spaces. Does not know: agents, audiences, models.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentcho.backends.words import FakeFraming
from agentcho.calls.call import EncodingId
from agentcho.engine.cache import Encoding, Storage
from agentcho.engine.core import EngineCore
from agentcho.engine.layout import Piece, Segment
from agentcho.engine.virtual import VirtualRunner, VirtualSlot, virtual

Influence = frozenset[tuple[int, ...]]
"""The token ids of every message whose words went into an encoding, one tuple a message."""


class SetRunner(VirtualRunner):
    """Takes in what is gathered, as it is. `values` has the influence of all that was ever made."""

    origin = "sets"

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Storage, Influence] = {}

    def feed(self, segment: Segment) -> None:
        """What is gathered for it, with its own words where it is all of a message."""
        base = () if segment.base is None else (segment.base,)
        value = self._gathered((*segment.pieces, *base))
        if (slot := virtual(segment)) is not None:
            slot.value = value | (slot.value or frozenset())
        if segment.storage is not None:
            self.values[segment.storage] = value | _words(segment.storage)

    def store(self, slot: VirtualSlot, start: int, storage: Storage) -> None:
        """What a row has gathered, and what it said."""
        self.values[storage] = slot.value | _words(storage)

    def of(self, storage: Storage) -> Influence:
        """All that has reached an encoding, or will when it is made."""
        if storage in self.values:
            return self.values[storage]
        assert storage.recipe is not None
        return self._gathered(storage.recipe.context.pieces) | _words(storage)

    def _gathered(self, pieces: Iterable[Piece]) -> Influence:
        """All that has reached these; nothing has reached the BOS."""
        return frozenset[tuple[int, ...]]().union(*(self.of(piece.storage) for piece in pieces if piece.id is not None))


def _words(storage: Storage) -> Influence:
    assert storage.recipe is not None
    return frozenset({storage.recipe.tokens})


class SymbolicEngine(EngineCore):
    """A core over sets. It has a BOS and no limit of context.

    Influences are kept after `release`, to be compared with what was written down.
    """

    _runner: SetRunner

    def __init__(self) -> None:
        self._made: dict[EncodingId, Storage] = {}
        super().__init__(SetRunner(), FakeFraming(), 1 << 60, 0)

    @property
    def fingerprint(self) -> dict[str, str]:
        """What a run record says of it."""
        return {"model": "symbolic", "model_type": "symbolic", "tokenizer": "words", "dtype": "none", "device": "none"}

    def influence(self, id: EncodingId) -> Influence:
        """Whose words reached an encoding that was finished, released or not. KeyError: it never was."""
        return self._runner.of(self._made[id])

    def _finished(self, encoding: Encoding) -> None:
        self._made[encoding.id] = encoding.storage
        super()._finished(encoding)

"""An engine that computes sets instead of numbers: what an encoding is worth is whose words have reached it.

It keeps the engine's contract for known words: ids, positions, receipts, guards, what is refused. Tokens are
words between spaces; a call is finished in one step. Does not know: agents, audiences, models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentcho.backends.words import FakeFraming
from agentcho.calls.call import (
    ANY_TURN,
    Call,
    Decode,
    Encoded,
    EncodingId,
    Failure,
    Prefill,
    Receipt,
    Repair,
    Shadow,
    Spoken,
    StepResult,
    Turn,
)  # fmt: skip
from agentcho.calls.owner import Owner
from agentcho.engine.encoding import Piece, Storage
from agentcho.engine.layout import Layout, Rules, decoded, encoded, layout
from agentcho.errors import BadParent, LeakageError, RequestError, UnknownEncoding

Influence = frozenset[tuple[int, ...]]
"""The token ids of every message whose words went into an encoding, one tuple a message."""


@dataclass(eq=False)
class Symbol:
    """One id. `influence` is there once it is finished: what was really gathered, and its own words."""

    id: EncodingId
    call: Call
    words: Encoded
    parents: tuple[Symbol, ...]
    receipt: Receipt
    influence: Influence | None = None


class SymbolicEngine:
    """An `EnginePort`, with what replay needs besides. It has a BOS and no limit of context.

    Influences are kept after `release`, to be compared with what was written down.
    """

    bos, context = True, 1 << 60

    def __init__(self) -> None:
        self.framing = FakeFraming()
        self._rules = Rules(self.framing, Piece(None, Storage(b"", 0, 1), 0), self.context)
        self._all: dict[EncodingId, Symbol] = {}
        self._flying: list[Symbol] = []
        self._influences: dict[EncodingId, Influence] = {}
        self._last, self.owner = 0, Owner()

    @property
    def idle(self) -> bool:
        """Nothing submitted."""
        return not self._flying

    def frame(self, role: str, name: str | None, text: str, tokens: tuple[int, ...] | None = None) -> Encoded:
        """See `FramePort.frame`."""
        return encoded(self.framing, role, name, text, tokens)

    @property
    def fingerprint(self) -> dict[str, str]:
        """What a run record says of it."""
        return {"model": "symbolic", "model_type": "symbolic", "tokenizer": "words", "dtype": "none", "device": "none"}

    def influence(self, id: EncodingId) -> Influence:
        """Whose words reached an encoding that was finished, released or not. KeyError: it never was."""
        return self._influences[id]

    def submit(self, calls: Sequence[Call], turn: Turn = ANY_TURN) -> tuple[EncodingId, ...]:
        """See `EnginePort.submit`."""
        if not calls:
            raise RequestError("an empty list of calls; give at least one Prefill or Decode")
        local: dict[int, Symbol] = {}
        admitted: list[Symbol] = []
        for call in calls:
            symbol = self._admit(self._last + 1 + len(admitted), call, local)
            local[id(call)] = symbol
            admitted.append(symbol)
        self._all |= {symbol.id: symbol for symbol in admitted}
        self._flying += admitted
        self._last += len(admitted)
        return tuple(symbol.id for symbol in admitted)

    def step(self, deterministic: bool = False) -> StepResult:
        """See `EnginePort.step`. All that was submitted is finished or has failed."""
        spoken, finished, failed = list[Spoken](), list[EncodingId](), list[Failure]()
        flying, self._flying = self._flying, []
        for symbol in flying:
            try:
                self._gather(symbol)
            except (LeakageError, BadParent) as error:
                failed.append(Failure(symbol.id, error))
                del self._all[symbol.id]
            else:
                finished.append(symbol.id)
                spoken += _spoken(symbol)
        fed = sum(len(self._all[id].words.tokens) for id in finished)
        return StepResult(tuple(spoken), tuple(finished), tuple(failed), fed)

    def cancel(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.cancel`."""
        gone = set(ids)
        for symbol in [s for s in self._flying if s.id in gone]:
            self._flying.remove(symbol)
            del self._all[symbol.id]

    def release(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.release`."""
        for id in list(ids):
            self._finished(id)
            del self._all[id]

    def swap_out(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.swap_out`. Symbols take no room."""

    def message(self, id: EncodingId) -> Encoded:
        """See `EnginePort.message`."""
        return self._finished(id).words

    def receipt(self, id: EncodingId) -> Receipt:
        """See `EnginePort.receipt`."""
        return self._finished(id).receipt

    # -- one call ----------------------------------------------------------------------------------------

    def _gather(self, symbol: Symbol) -> None:
        """Ask the guard, then take in what is in the context, as it is."""
        if symbol.call.guard is not None:
            symbol.call.guard.admit(symbol.id, [parent.id for parent in symbol.parents])
        gathered: Influence = frozenset({symbol.words.tokens})
        for parent in symbol.parents:
            if parent.influence is None:
                raise BadParent("a parent was refused or cancelled before it was encoded")
            gathered |= parent.influence
        symbol.influence = self._influences[symbol.id] = gathered

    def _admit(self, id: EncodingId, call: Call, local: Mapping[int, Symbol]) -> Symbol:
        parents = tuple(self._parent(parent, local) for parent in call.parents)
        base = self._parent(call.of, local) if isinstance(call, Repair) else self._leader(call, local)
        if isinstance(call, Decode) and call.forced is None:
            raise RequestError("an engine without a model has nothing to say; force the words")
        places = [(parent.id, Storage(b"", parent.receipt.start, len(parent.words.tokens))) for parent in parents]
        placed = layout(self._rules, call, places, 0 if base is None else len(base.words.tokens))
        receipt = placed.context.receipt
        if base is not None and isinstance(call, Repair):
            words = base.words._replace(sampled=None, stopped=None)
            return Symbol(id, call, words, (*parents, base), receipt._replace(base=base.id))
        return Symbol(id, call, self._words(call, placed) if base is None else base.words, parents, receipt)

    def _parent(self, parent: EncodingId | Prefill | Repair, local: Mapping[int, Symbol]) -> Symbol:
        if isinstance(parent, Prefill | Repair):
            if id(parent) not in local:
                raise BadParent(f"a {type(parent).__name__} is named as parent and does not stand earlier in the list")
            return local[id(parent)]
        known = self._known(parent)
        if known.influence is None and not isinstance(known.call, Prefill | Repair):
            raise BadParent(f"encoding {parent} is not finished")
        return known

    def _leader(self, call: Call, local: Mapping[int, Symbol]) -> Symbol | None:
        if not isinstance(call, Shadow):
            return None
        if id(call.of) not in local:
            raise BadParent("a Shadow follows a Decode that does not stand earlier in the same list")
        return local[id(call.of)]

    def _words(self, call: Call, placed: Layout) -> Encoded:
        if isinstance(call, Decode):
            return decoded(call, placed.framed, self.framing.content.decode(placed.framed.content), "forced")
        assert placed.words is not None
        return placed.words

    def _known(self, id: EncodingId) -> Symbol:
        if id not in self._all:
            raise UnknownEncoding(id, released=0 < id <= self._last)
        return self._all[id]

    def _finished(self, id: EncodingId) -> Symbol:
        symbol = self._known(id)
        if symbol.influence is None:
            raise BadParent(f"encoding {id} is not finished")
        return symbol


def _spoken(symbol: Symbol) -> list[Spoken]:
    """What a decode said, at once; a shadow says nothing."""
    words = symbol.words
    if not isinstance(symbol.call, Decode) or words.sampled is None or words.sampled[0] == words.sampled[1]:
        return []
    return [Spoken(symbol.id, 0, words.tokens[words.sampled[0]], words.text)]

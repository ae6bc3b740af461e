"""An engine that keeps sets instead of keys and values: for each encoding, the calls that it depends on, transitively.

The value of an encoding is the id of the call that made its storage and the values of all storages that this call
gathered. Equal prefills of one class share storage, and so the value of the first of them, as in real engines.
Positions need no sets: by default a call directly follows what it gathers, and positions given as numbers are compared
between two plays in `test_same`. Independent of agents; obeys guards unless `guarded` is False.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentcho.engine.call_layout import encoded
from agentcho.engine.fake.toy_tokenizer import FakeFraming
from agentcho.errors import ContextOverflow, LeakageError, RequestError
from agentcho.message import Words
from agentcho.protocol.call import (
    DEFAULT_PRIORITY,
    Call,
    CallFailure,
    ContextEntry,
    Decode,
    EncodingId,
    Prefill,
    Receipt,
    Repair,
    SampledToken,
    SchedulingPriority,
    Shadow,
    StepResult,
)
from agentcho.protocol.ownership import Owner
from agentcho.reuse.kvcomm import KVComm

Key = str


@dataclass(eq=False)
class Store:
    """One storage: a digest of all that its keys depend on, the calls that reached it, and the count of its holders."""

    key: Key
    value: frozenset[EncodingId]
    holders: int = 1


@dataclass(eq=False)
class Kept:
    """A finished call."""

    store: Store
    words: Words
    receipt: Receipt


class Sets:
    """An `EnginePort` that finishes every call in one step, in the order of submission. Decodes generate their forced
    ids, or nothing after their header. Nothing may exceed position `context`."""

    bos = 1

    def __init__(self, guarded: bool = True, context: int = 1 << 20) -> None:
        self._guarded, self.context, self.framing = guarded, context, FakeFraming()
        self._waiting: list[tuple[EncodingId, Call]] = []
        self._kept: dict[EncodingId, Kept] = {}
        self._ids: dict[int, EncodingId] = {}
        self._shared: dict[Key, Store] = {}
        self._values: dict[EncodingId, frozenset[EncodingId]] = {}
        self._said: dict[EncodingId, tuple[int, ...]] = {}
        self._last, self.owner = 0, Owner()

    @property
    def idle(self) -> bool:
        """See `EnginePort.idle`."""
        return not self._waiting

    @property
    def held(self) -> frozenset[EncodingId]:
        """Finished encodings that are not released."""
        return frozenset(self._kept)

    def frame(self, role: str, name: str | None, text: str, tokens: tuple[int, ...] | None = None) -> Words:
        """See `FramePort.frame`."""
        return encoded(self.framing, role, name, text, tokens)

    @property
    def fingerprint(self) -> dict[str, str]:
        """See `EnginePort.fingerprint`."""
        return {"model": "sets"}

    def take_place(self, place: int, prefill_budget: int | None = None) -> None:
        """See `EnginePort.take_place`. Ids continue, and are at least as large as the place requires."""
        self._last = max(self._last, place << 40)

    def speculate(self, costs: object = None) -> None:
        """See `EnginePort.speculate`: there is no speculation."""

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        """See `EnginePort.submit`; invalid calls fail only when they run."""
        first = self._last + 1
        self._last += len(calls)
        ids = tuple(range(first, first + len(calls)))
        self._waiting += zip(ids, calls, strict=True)
        return ids

    def step(self, deterministic: bool = False) -> StepResult:
        """See `EnginePort.step`."""
        waiting, self._waiting = self._waiting, []
        self._ids = {id(call): number for number, call in waiting}
        finished, failed, spoken, fed = list[EncodingId](), list[CallFailure](), list[SampledToken](), 0
        for number, call in waiting:
            try:
                fed += self._run(number, call)
                finished.append(number)
            except (LeakageError, RequestError, ContextOverflow) as error:
                failed.append(CallFailure(number, error))
                continue
            for nth, token in enumerate(call.forced or () if isinstance(call, Decode) else ()):
                spoken.append(SampledToken(number, nth, token, self.framing.content.decode([token])))
        return StepResult(tuple(spoken), tuple(finished), tuple(failed), fed)

    def cancel(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.cancel`."""
        gone = set(ids)
        self._waiting = [(number, call) for number, call in self._waiting if number not in gone]

    def release(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.release`. KeyError: it is not held."""
        for number in list(ids):
            store = self._kept.pop(number).store
            store.holders -= 1
            if store.holders == 0 and self._shared.get(store.key) is store:
                del self._shared[store.key]

    def swap_out(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.swap_out`. Sets occupy no memory."""

    def message(self, id: EncodingId) -> Words:
        """See `EnginePort.message`."""
        return self._kept[id].words

    def receipt(self, id: EncodingId) -> Receipt:
        """See `EnginePort.receipt`."""
        return self._kept[id].receipt

    def value(self, id: EncodingId) -> frozenset[EncodingId]:
        """The calls whose tokens could have influenced an encoding. It outlives the encoding."""
        return self._values[id]

    def words(self, id: EncodingId) -> frozenset[tuple[int, ...]]:
        """The same, as the tokens of these calls: calls with the same tokens are not distinguished."""
        return frozenset(self._said[maker] for maker in self._values[id])

    def storage(self, id: EncodingId) -> Store:
        """The storage that a held encoding shares with its equals. Its key covers everything that its bits depend on:
        tokens, positions, class, whether it was fed at once or token by token, and the same for its whole context."""
        return self._kept[id].store

    # -- one call ----------------------------------------------------------------------------------------

    def _run(self, number: EncodingId, call: Call) -> int:
        """Gather, encode, keep; returns the number of encoded tokens."""
        parents = [self._resolved(parent) for parent in call.parents]
        words = self._words(call)
        base, anchors = self._kept_of(call, words)
        if self._guarded and call.guard is not None:
            call.guard.admit(number, [*parents, *base, *anchors])
        receipt = self._place(call, parents)._replace(base=base[0] if base else None, anchors=tuple(anchors))
        needed = max([entry.offset + entry.length for entry in receipt.context] + [receipt.start + len(words.tokens)])
        if needed > self.context:
            raise ContextOverflow(needed, self.context)
        gathered = [self._kept[parent].store for parent in (*parents, *base, *anchors)]
        at = tuple(entry.offset for entry in receipt.context)
        key = _digest(
            isinstance(call, Prefill), call.salt, words.tokens, receipt.start, at, *(store.key for store in gathered)
        )
        known = self._shared.get(key) if isinstance(call, Prefill) else None
        store = known or Store(key, frozenset({number}).union(*(g.value for g in gathered)))
        if known is not None:
            known.holders += 1
        elif isinstance(call, Prefill):
            self._shared[key] = store
        self._kept[number], self._values[number] = Kept(store, words, receipt), store.value
        self._said[number] = words.tokens
        return 0 if known is not None or anchors else len(words.tokens)

    def _kept_of(self, call: Call, words: Words) -> tuple[list[EncodingId], list[EncodingId]]:
        """The base that a repair keeps, and the encodings of its anchors. Without embeddings, a digest of the words
        decides whether the anchors suffice, which they do for two messages in three."""
        if not isinstance(call, Repair):
            return [], []
        base = [self._resolved(call.of)]
        if not isinstance(call.choose, KVComm):
            return base, []
        pairs = [(self._resolved(real), self._resolved(reused)) for real, reused in call.choose.anchors]
        kept = [(self._kept[real], real, reused) for real, reused in pairs]
        long = [pair for at, *pair in kept if at.receipt.base is None and len(at.words.tokens) >= len(words.tokens)]
        if len(long) < 2 or int(_digest(words.tokens), 16) % 3 == 0:
            return [], []
        return base, [id for pair in long for id in pair]

    def _resolved(self, parent: object) -> EncodingId:
        number = self._ids.get(id(parent)) if isinstance(parent, Prefill | Repair) else parent
        if not isinstance(number, int) or number not in self._kept:
            raise RequestError.parents(f"parent {number!r} is not there")
        return number

    def _place(self, call: Call, parents: Sequence[EncodingId]) -> Receipt:
        end, entries = 1, list[ContextEntry]()
        made = call.offsets == "made"
        offsets = [self._kept[p].receipt.start for p in parents] if call.offsets == "made" else call.offsets
        for parent, asked in zip(parents, offsets or [None] * len(parents), strict=True):
            length = len(self._kept[parent].words.tokens)
            entries.append(ContextEntry(parent, end if asked is None else asked, length))
            end = entries[-1].offset + length
        assert all(entry.offset >= 0 for entry in entries)
        end = max((entry.offset + entry.length for entry in entries), default=1) if made else end
        return Receipt(tuple(entries), end if call.new_offset is None else call.new_offset, True)

    def _words(self, call: Call) -> Words:
        framing, content = self.framing, self.framing.content
        if isinstance(call, Shadow):
            return self._followed(call)
        if isinstance(call, Repair):
            return self._kept[self._resolved(call.of)].words._replace(sampled=None, stopped=None)
        if isinstance(call, Prefill):
            own = tuple(content.encode(call.text)) if call.tokens is None else call.tokens
            opening = framing.opening(call.role, call.name) if call.opening is None else call.opening
            closing = framing.closing(call.role)
            span = (len(opening), len(opening) + len(own))
            return Words("", content.decode(own), (*opening, *own, *closing), span, None, None)
        forced = call.forced or ()
        opening, header = framing.opening("assistant", call.name, answer=True), tuple(content.encode(call.header))
        begin, stop = len(opening) + len(header), len(opening) + len(header) + len(forced)
        tokens = (*opening, *header, *forced, *framing.closing("assistant"))
        text = content.decode(forced)
        return Words(call.header, text, tokens, (len(opening), stop), (begin, stop), "forced")

    def _followed(self, shadow: Shadow) -> Words:
        leader = self._ids.get(id(shadow.of))
        if leader is None or leader not in self._kept:
            raise RequestError.parents("a shadow follows a decode that does not stand before it, or that failed")
        return self._kept[leader].words


def _digest(*parts: object) -> Key:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()

"""A fake engine, to test agents and scenarios without a model and without torch.

It keeps the engine's contract: ids, positions, receipts, endings, what is refused and what is freed. What it
says comes from `reply`, or from the call's seed and prompt. Does not know: attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agentcho.errors import (
    BadParent,
    BadSampling,
    EngineFailed,
    RequestError,
    UnknownEncoding,
)  # fmt: skip
from agentcho.request import (
    Call,
    ContextEntry,
    Decode,
    Encoded,
    EncodingId,
    Failure,
    Prefill,
    Receipt,
    Spoken,
    StepResult,
    Stopped,
)  # fmt: skip
from agentcho.testing.babble import babble, pick
from agentcho.testing.kept import Kept, places
from agentcho.testing.sample import smallest
from agentcho.testing.words import FakeFraming


class FakeEngine:
    """An `EnginePort` without a model.

    `reply(call, prompt)` gives the text of a decode, `prompt` being the text of its parents; by default words
    made from seed and prompt. `broken` makes the next step raise, `faulty(call)` fails single decodes.
    `steps`, `rows` and `pages` (one an encoding) count what is used; `batches` lists the ids of each step.
    """

    def __init__(
        self, reply: Callable[[Decode, str], str] | None = None, *, bos: bool = True, context: int = 4096,
        faulty: Callable[[Decode], Exception | None] | None = None,
    ) -> None:  # fmt: skip
        self._reply, self._bos, self._context, self._faulty = reply or babble, bos, context, faulty
        self.framing = FakeFraming()
        self.broken: Exception | None = None
        self.steps = 0
        self.batches: list[tuple[EncodingId, ...]] = []
        self._all: dict[EncodingId, Kept] = {}
        self._flying: list[Kept] = []
        self._kept: set[Kept] = set()
        self._last = 0

    # -- the contract ------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Nothing submitted, nothing running."""
        return not self._flying

    @property
    def rows(self) -> int:
        """Decodes running."""
        return sum(isinstance(kept.call, Decode) and kept.fed > 0 for kept in self._flying)

    @property
    def pages(self) -> int:
        """Encodings that something holds."""
        return len(self._kept)

    @property
    def fingerprint(self) -> dict[str, str]:
        """What a run record says of it."""
        return {"model": "fake", "model_type": "fake", "tokenizer": "fake", "dtype": "none", "device": "none"}

    def submit(self, calls: Sequence[Call]) -> tuple[EncodingId, ...]:
        """See `EnginePort.submit`."""
        if not calls:
            raise RequestError("an empty list of calls; give at least one Prefill or Decode")
        local: dict[int, Kept] = {}
        admitted: list[Kept] = []
        for call in calls:
            admitted.append(self._admit(call, local))
            local[id(call)] = admitted[-1]
        for kept in admitted:
            self._last += 1
            kept.id = self._last
            self._all[kept.id] = kept
            self._kept.add(kept)
            for parent in kept.parents:
                parent.holders += 1
        for kept in admitted:  # ids of parents in the same list are known only now
            kept.receipt = kept.receipt._replace(context=self._entries(kept))
        self._flying += admitted
        return tuple(kept.id for kept in admitted)

    def step(self) -> StepResult:
        """See `EnginePort.step`."""
        if self.broken is not None:
            error, self.broken = self.broken, None
            self.cancel([kept.id for kept in self._flying])
            raise EngineFailed(error) from error
        spoken, finished, failed, encoded = list[Spoken](), list[EncodingId](), list[Failure](), 0
        self.steps += bool(self._flying)
        self.batches.append(tuple(kept.id for kept in self._flying))
        for kept in list(self._flying):
            fault = self._error(kept)
            if fault is not None:
                self.cancel([kept.id])
                failed.append(Failure(kept.id, fault))
                continue
            encoded += self._feed(kept, spoken, finished)
        return StepResult(tuple(spoken), tuple(finished), tuple(failed), encoded)

    def cancel(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.cancel`."""
        for id in list(ids):
            kept = self._all.get(id)
            if kept is not None and not kept.done:
                self._flying.remove(kept)
                self._forget(kept)
                for parent in kept.parents:
                    self._drop(parent)

    def release(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.release`."""
        for id in list(ids):
            self._finished(id)
            self._forget(self._all[id])

    def message(self, id: EncodingId) -> Encoded:
        """See `EnginePort.message`."""
        return self._finished(id).words

    def receipt(self, id: EncodingId) -> Receipt:
        """See `EnginePort.receipt`."""
        return self._finished(id).receipt

    # -- admission ---------------------------------------------------------------------------------------

    def _admit(self, call: Call, local: dict[int, Kept]) -> Kept:
        if not isinstance(call, Prefill | Decode):
            raise RequestError(f"a call is a Prefill or a Decode, not {type(call).__name__}")
        parents = [self._parent(parent, local) for parent in call.parents]
        words, left = self._decode(call, parents) if isinstance(call, Decode) else (self._prefill(call), [])
        most = len(words.tokens) + (len(left) if isinstance(call, Decode) else 0)
        offsets, start = places(call, parents, most, self._bos, self._context)
        entries = tuple(ContextEntry(0, at, parent.length) for at, parent in zip(offsets, parents, strict=True))
        return Kept(0, call, Receipt(entries, start, self._bos), parents, words, len(words.tokens), left=left)

    def _parent(self, parent: EncodingId | Prefill, local: dict[int, Kept]) -> Kept:
        if isinstance(parent, Prefill):
            if id(parent) not in local:
                raise BadParent("a Prefill is named as parent and does not stand earlier in the same list")
            return local[id(parent)]
        kept = self._known(parent)
        if not kept.done and isinstance(kept.call, Decode):
            raise BadParent(f"encoding {parent} is not finished")
        return kept

    def _entries(self, kept: Kept) -> tuple[ContextEntry, ...]:
        pairs = zip(kept.parents, kept.receipt.context, strict=True)
        return tuple(entry._replace(id=parent.id) for parent, entry in pairs)

    def _prefill(self, call: Prefill) -> Encoded:
        content = self.framing.content.encode(call.text) if call.tokens is None else list(call.tokens)
        text = self.framing.content.decode(content)
        return self._framed(call.role, call.name, "", text, content, None)

    def _decode(self, call: Decode, parents: list[Kept]) -> tuple[Encoded, list[int]]:
        """Its words before it speaks, and the ids it is going to say."""
        encode, sampling = self.framing.content.encode, call.sampling
        words = self._framed("assistant", call.name, call.header, "", encode(call.header), None)
        if call.forced is not None:
            return words, list(call.forced)
        if sampling.choices is not None or sampling.json_schema is not None:
            text = pick(sampling.seed, sampling.choices) if sampling.choices else smallest(sampling.json_schema or {})
            if len(encode(text)) > sampling.max_tokens:
                raise BadSampling(f"the answer needs {len(encode(text))} tokens", "raise max_tokens")
            return words, encode(text)
        prompt = "\n".join(parent.words.header + parent.words.text for parent in parents)
        return words, encode(self._reply(call, prompt))[: sampling.max_tokens]

    def _framed(
        self, role: str, name: str | None, header: str, text: str, content: list[int], stopped: Stopped | None
    ) -> Encoded:
        opening, closing = self.framing.opening(role, name), self.framing.closing(role)
        begin = len(opening)
        start = begin + len(self.framing.content.encode(header))
        sampled = None if role != "assistant" or stopped is None else (start, begin + len(content))
        span = (begin, begin + len(content))
        return Encoded(role, name, header, text, (*opening, *content, *closing), span, sampled, stopped)

    # -- a step ------------------------------------------------------------------------------------------

    def _error(self, kept: Kept) -> Exception | None:
        if any(not parent.done and parent not in self._flying for parent in kept.parents):
            return BadParent("a parent was cancelled before it was encoded")
        return self._faulty(kept.call) if self._faulty and isinstance(kept.call, Decode) else None

    def _feed(self, kept: Kept, spoken: list[Spoken], finished: list[EncodingId]) -> int:
        """One forward's share of one call; returns the tokens fed."""
        if isinstance(kept.call, Prefill) or kept.stopped is not None:
            finished.append(self._finish(kept))
            return len(kept.words.tokens) - kept.fed
        fed = len(kept.words.tokens) - 1 if kept.fed == 0 else 1
        kept.fed += fed
        self._say(kept, kept.call, spoken)
        return fed

    def _say(self, kept: Kept, call: Decode, spoken: list[Spoken]) -> None:
        if len(kept.said) == len(kept.left):
            kept.stopped = "stop" if call.forced is None else "forced"
            return
        token = kept.left[len(kept.said)]
        kept.said.append(token)
        spoken.append(Spoken(kept.id, len(kept.said) - 1, token, self.framing.content.decode([token])))
        if call.forced is None and self._cut(call, kept.said) is not None:
            kept.stopped = "stop_string"
        elif call.forced is None and len(kept.said) == call.sampling.max_tokens:
            kept.stopped = "max_tokens"

    def _cut(self, call: Decode, said: list[int]) -> int | None:
        text = self.framing.content.decode(said)
        return min((at for stop in call.sampling.stop if (at := text.find(stop)) >= 0), default=None)

    def _finish(self, kept: Kept) -> EncodingId:
        if isinstance(kept.call, Decode):
            content = self.framing.content.encode(kept.call.header) + kept.said
            text = self.framing.content.decode(kept.said)[: self._cut(kept.call, kept.said)]
            kept.words = self._framed("assistant", kept.call.name, kept.call.header, text, content, kept.stopped)
            kept.length = len(kept.words.tokens)
        kept.done = True
        self._flying.remove(kept)
        for parent in kept.parents:
            self._drop(parent)
        return kept.id

    # -- holding -----------------------------------------------------------------------------------------

    def _known(self, id: EncodingId) -> Kept:
        if id not in self._all:
            raise UnknownEncoding(id, released=isinstance(id, int) and 0 < id <= self._last)
        return self._all[id]

    def _finished(self, id: EncodingId) -> Kept:
        kept = self._known(id)
        if not kept.done:
            raise BadParent(f"encoding {id} is not finished")
        return kept

    def _forget(self, kept: Kept) -> None:
        del self._all[kept.id]
        self._drop(kept)

    def _drop(self, kept: Kept) -> None:
        kept.holders -= 1
        if kept.holders == 0:
            self._kept.discard(kept)

"""A fake engine, to test agents and scenarios without a model and without torch.

It keeps the engine's contract: ids, positions, receipts, endings, what is refused, what is shared and what is
freed. What it says comes from `reply` and `answer`, or from the call's seed and prompt. Does not know: attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agentcho.backends.admission import Kept, Reply, Script, admit
from agentcho.backends.pages import Page, Pages, key_of
from agentcho.backends.words import FakeFraming
from agentcho.calls.call import (
    ANY_TURN,
    Begun,
    Call,
    Decode,
    EncodingId,
    Failure,
    Prefill,
    Receipt,
    Repair,
    Spoken,
    StepResult,
    Turn,
)
from agentcho.calls.checks import Bounds, asked, checked, known_as_id, named, readable
from agentcho.calls.ids import Ids
from agentcho.calls.owner import Owner, owned
from agentcho.calls.values import numbers
from agentcho.engine.encoding import Piece, Storage
from agentcho.engine.layout import Rules, encoded
from agentcho.errors import AgentchoError, CallFailed, EngineClosed, EngineFailed, RequestError, UnknownEncoding
from agentcho.message import Words


class FakeEngine:
    """An `EnginePort` without a model.

    `reply(call, prompt)` gives the text of a decode, `answer(call, prompt)` that of one with choices or a JSON
    schema, `prompt` being the text of its parents, stop strings included; by default words, a choice and the smallest
    document.
    `broken` makes the next step raise, as a device that fails does; `faulty(call)` fails single decodes, and
    `guilty(call)` gives what the forward of a call raises, alone or beside others (None: nothing). `steps`, `rows` and
    `pages` (one a stored message) count what is used, in a store of `store_tokens` (None: any number); `batches` lists
    the ids in each step, `swapped` what was swapped out.
    """

    def __init__(
        self, reply: Reply | None = None, *, answer: Reply | None = None, bos: bool = True, context: int = 4096,
        faulty: Callable[[Decode], Exception | None] | None = None, store_tokens: int | None = None,
    ) -> None:  # fmt: skip
        self._store_tokens = store_tokens
        self.framing, self._faulty = FakeFraming(), faulty
        self._script = Script(reply, answer)
        self._rules = Rules(self.framing, Piece(None, Storage(b"", 0, 1), 0) if bos else None, context)
        self.broken: Exception | None = None
        self.guilty: Callable[[Call], Exception | None] = lambda call: None
        self.steps = 0
        self.batches: list[tuple[EncodingId, ...]] = []
        self.swapped: list[EncodingId] = []
        self._pages = Pages()
        self._all: dict[EncodingId, Kept] = {}
        self._flying: dict[EncodingId, Kept] = {}
        self.owner, self._ids, self._closed = Owner(), Ids(), False

    def meet(self, *texts: str) -> None:
        """Know the long words of texts that another one said, so that they can be said again."""
        for text in texts:
            self.framing.content.encode(text)

    @property
    def idle(self) -> bool:
        """Nothing submitted, nothing running."""
        return not self._flying

    @property
    def rows(self) -> int:
        """Decodes running."""
        return sum(kept.speech is not None and kept.fed > 0 for kept in self._flying.values())

    @property
    def pages(self) -> int:
        """Stored messages that something holds."""
        return len(self._pages)

    @property
    def _held(self) -> float:
        """The share of its store that is taken. It may be more than all: nothing has to leave."""
        running = sum(kept.fed for kept in self._flying.values() if kept.page is None)
        return (self._pages.tokens + running) / self._store_tokens if self._store_tokens else 0.0

    @property
    def context(self) -> int:
        """Positions."""
        return self._rules.limit

    @property
    def bos(self) -> bool:
        """Whether every context begins after a BOS."""
        return self._rules.bos is not None

    def frame(self, role: str, name: str | None, text: str, tokens: tuple[int, ...] | None = None) -> Words:
        """See `FramePort.frame`."""
        own = None if tokens is None else numbers(tokens, "tokens")
        return encoded(self.framing, role, name, text, own)

    @property
    def fingerprint(self) -> dict[str, str]:
        """What a run record says of it."""
        return {"model": "fake", "model_type": "fake", "tokenizer": "fake", "dtype": "none", "device": "none"}

    @owned
    def close(self) -> None:
        """See `Engine.close`."""
        self.cancel(self._flying)
        self._all.clear()
        self._pages, self._closed = Pages(), True

    def __enter__(self) -> FakeEngine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @owned
    def submit(self, calls: Sequence[Call], turn: Turn = ANY_TURN) -> tuple[EncodingId, ...]:
        """See `EnginePort.submit`."""
        self._check_open()
        plain, _ = checked(calls, turn, Bounds())
        with readable("the list of calls"):
            admitted = admit(self._rules, self._script, self.framing.content, plain, self._ids, self._known)
        for kept in admitted:
            self._all[kept.id] = kept
            if kept.speech is None and kept.leader is None:
                kept.page = self._pages.take(self._key(kept), len(kept.words.tokens))
            self._pages.hold(_context(kept))
        self._ids.last += len(admitted)
        self._flying |= {kept.id: kept for kept in admitted}
        return tuple(kept.id for kept in admitted)

    @owned
    def step(self, deterministic: bool = False) -> StepResult:
        """See `EnginePort.step`."""
        self._check_open()
        if self.broken is not None:
            error, self.broken = self.broken, None
            self.cancel(self._flying)
            raise EngineFailed.of(error) from error
        if self.idle:
            return StepResult((), (), (), 0)
        self.steps += 1
        self.batches.append(tuple(self._flying))
        spoken, finished, failed, encoded = list[Spoken](), list[EncodingId](), list[Failure](), 0
        mute = [kept for kept in self._flying.values() if kept.speech is not None and not kept.speech.said]
        for kept in list(self._flying.values()):
            if kept.id not in self._flying:  # a shadow whose leader has just failed
                continue
            fault = self._error(kept)
            if fault is not None:
                self.cancel([kept.id])
                failed.append(Failure(kept.id, fault))
                continue
            encoded += self._feed(kept, spoken)
            if kept.done:
                finished.append(kept.id)
        begun = tuple(_begun(kept) for kept in mute if kept.speech is not None and kept.speech.said)
        return StepResult(tuple(spoken), tuple(finished), tuple(failed), encoded, self._held, begun)

    @owned
    def cancel(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.cancel`."""
        for id in named(ids):
            kept = None if self._ids.foreign(id) else self._all.get(id)
            if kept is not None and not kept.done:
                self.cancel([other.id for other in list(self._flying.values()) if other.leader is kept])
                del self._flying[id]
                self._pages.drop(_context(kept))
                self._forget(kept)

    @owned
    def release(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.release`."""
        given = named(ids)
        finished = [self._finished(id) for id in given]
        if len(set(given)) < len(given):
            raise UnknownEncoding(max(given, key=given.count), released=True)
        for kept in finished:
            self._forget(kept)

    @owned
    def swap_out(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.swap_out`. There is nowhere to go; `swapped` has the ids."""
        self.swapped += [self._finished(id).id for id in named(ids)]

    def message(self, id: EncodingId) -> Words:
        """See `EnginePort.message`."""
        return self._finished(id).words

    def receipt(self, id: EncodingId) -> Receipt:
        """See `EnginePort.receipt`."""
        return self._finished(id).receipt

    # -- a step ------------------------------------------------------------------------------------------

    def _error(self, kept: Kept) -> Exception | None:
        if not all(page.ready for page in _context(kept)):
            return RequestError.parents("a parent was cancelled before it was encoded")
        if kept.fed == 0:
            try:
                asked(kept.call.guard, kept.id, [parent.id for parent in kept.parents])
            except AgentchoError as error:
                return error
        if (raised := self.guilty(kept.call)) is not None:
            return CallFailed.of(raised)
        return self._faulty(kept.call) if self._faulty and isinstance(kept.call, Decode) else None

    def _feed(self, kept: Kept, spoken: list[Spoken]) -> int:
        """One forward's share of one call; returns the tokens fed."""
        if kept.leader is not None and not kept.leader.done:
            kept.fed, fed = kept.leader.fed, kept.leader.fed - kept.fed
            return fed
        if kept.speech is None or kept.speech.stopped is not None:
            return self._finish(kept)
        fed = len(kept.words.tokens) - 1 if kept.fed == 0 else 1
        kept.fed += fed
        said = kept.speech.go_on(kept.id)
        if said is not None:
            spoken.append(said)
        return fed

    def _finish(self, kept: Kept) -> int:
        if kept.speech is not None or kept.leader is not None:
            kept.words = _said(kept) if kept.leader is None else kept.leader.words
            kept.page = self._pages.add(self._key(kept), len(kept.words.tokens))
        assert kept.page is not None
        fed = 0 if kept.page.ready else len(kept.words.tokens) - kept.fed
        kept.done = kept.page.ready = True
        del self._flying[kept.id]
        self._pages.drop(_context(kept))
        return fed

    # -- holding -----------------------------------------------------------------------------------------

    def _key(self, kept: Kept) -> bytes:
        offsets = [entry.offset for entry in kept.receipt.context]
        kind = type(kept.call).__name__.lower() if isinstance(kept.call, Prefill | Repair) else "decode"
        if isinstance(kept.call, Repair):
            offsets, kind = [*offsets, 0], f"{kind} {kept.call.choose}"
        kind = f"{kind}/{kept.call.salt}"
        return key_of(list(zip(_context(kept), offsets, strict=True)), kept.receipt.start, kept.words.tokens, kind)

    def _known(self, id: EncodingId) -> Kept:
        self._check_open()
        if known_as_id(id) not in self._all or self._ids.foreign(id):
            raise UnknownEncoding(id, self._ids.gave(id), self._ids.foreign(id))
        return self._all[id]

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed("the engine was closed; make another to go on")

    def _finished(self, id: EncodingId) -> Kept:
        kept = self._known(id)
        if not kept.done:
            raise RequestError.parents(f"encoding {id} is not finished")
        return kept

    def _forget(self, kept: Kept) -> None:
        del self._all[kept.id]
        if kept.page is not None:
            self._pages.drop([kept.page])


def _context(kept: Kept) -> list[Page]:
    """The pages of its parents, which are held as long as it runs."""
    pages = [parent.page for parent in kept.parents]
    return [page for page in pages if page is not None]


def _begun(kept: Kept) -> Begun:
    """A decode as it was before it said anything."""
    end = kept.words.content[1]
    return Begun(kept.id, kept.words._replace(tokens=kept.words.tokens[:end], sampled=(end, end)), kept.receipt)


def _said(kept: Kept) -> Words:
    """The words of a decode that has ended."""
    words, speech = kept.words, kept.speech
    assert speech is not None
    end = words.content[1]
    tokens = (*words.tokens[:end], *speech.said, *words.tokens[end:])
    stop = end + len(speech.said)
    return words._replace(
        text=speech.text, tokens=tokens, content=(words.content[0], stop), sampled=(end, stop), stopped=speech.stopped,
        canonical=speech.canonical,
    )  # fmt: skip

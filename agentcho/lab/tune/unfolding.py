"""A workflow whose words are known as the segments of one forward: who attends to what, at which positions.

The workflow is replayed by the resolver that games use, on an engine that takes every call for done and computes
nothing, so that contexts and positions are those of inference. Does not know: losses, how a forward is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from agentcho.calls.call import (
    ANY_TURN,
    Call,
    Decode,
    Encoded,
    EncodingId,
    Failure,
    FramingPort,
    Prefill,
    Receipt,
    Repair,
    Shadow,
    Spoken,
    StepResult,
    Turn,
)  # fmt: skip
from agentcho.calls.owner import Owner
from agentcho.config import Leakage, Mode
from agentcho.engine.encoding import Context, Piece, Segment, Storage
from agentcho.engine.layout import Rules, decoded, encoded, layout
from agentcho.engine.template import Framing
from agentcho.errors import BadParent, RequestError
from agentcho.games.replayer import replay
from agentcho.records.trace import Workflow


class Unfolded(NamedTuple):
    """Segments in an order in which each stands after what it attends to, the BOS first where the model has one.

    Rows are wanted of what agents say alone: row by row, `targets` are the ids that these rows are to predict, those of
    the text and then the first of the closing, as in `Engine.score`.
    """

    segments: tuple[Segment, ...]
    targets: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Tokens that one forward over it feeds."""
        return sum(len(segment.ids) for segment in self.segments)


class Framed(Protocol):
    """What unfolding needs of an engine: how it frames messages, and how many positions it has."""

    framing: Framing
    context: int

    @property
    def fingerprint(self) -> dict[str, str]: ...


def unfold(workflow: Workflow, engine: Framed, mode: Mode, leakage: Leakage) -> Unfolded:
    """All that a play of this workflow by `mode` and `leakage` would feed, and every word that agents say.

    Raises what replay raises, before anything is computed: `RecordBroken`, `LeakageError`, `ContextOverflow`.
    """
    paper = Paper(engine)
    try:
        replay(workflow.whole, paper, mode, leakage, logits=False, shadow="never")
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    needed = _needed(paper.segments)
    return Unfolded(tuple(s for s in paper.segments if s in needed), tuple(paper.targets))


def _needed(segments: Sequence[Segment]) -> set[Segment]:
    """Those that something is asked of, and all that these attend to."""
    needed = set[Segment]()
    for segment in reversed(segments):
        if segment.wanted or segment in needed:
            needed.add(segment)
            needed.update(piece.storage.segment for piece in segment.pieces if piece.storage.segment is not None)
    return needed


class Kept(NamedTuple):
    """A finished call."""

    storage: Storage
    words: Encoded
    context: Context


class Paper:
    """An engine that writes down the segments of its calls and runs none of them. Equal prefills are one segment."""

    def __init__(self, engine: Framed) -> None:
        self.framing: FramingPort = engine.framing
        self._framing, self.context, self._print = engine.framing, engine.context, engine.fingerprint
        self.segments: list[Segment] = []
        self.targets: list[int] = []
        self._waiting: list[tuple[EncodingId, Call]] = []
        self._kept: dict[EncodingId, Kept] = {}
        self._local: dict[int, EncodingId] = {}
        self._shared: dict[bytes, Storage] = {}
        self._last, self.owner = 0, Owner()
        self._rules = Rules(engine.framing, self._begin(), engine.context)

    @property
    def idle(self) -> bool:
        """See `EnginePort.idle`."""
        return not self._waiting

    @property
    def bos(self) -> bool:
        """Whether every context begins after a BOS."""
        return self._framing.bos is not None

    def frame(self, role: str, name: str | None, text: str, tokens: tuple[int, ...] | None = None) -> Encoded:
        """See `FramePort.frame`."""
        return encoded(self.framing, role, name, text, tokens)

    @property
    def fingerprint(self) -> dict[str, str]:
        """That of the engine whose framing this is."""
        return self._print

    def submit(self, calls: Sequence[Call], turn: Turn = ANY_TURN) -> tuple[EncodingId, ...]:
        """See `EnginePort.submit`; what is wrong with a call shows when it runs."""
        ids = tuple(range(self._last + 1, self._last + 1 + len(calls)))
        self._last += len(calls)
        self._waiting += zip(ids, calls, strict=True)
        return ids

    def step(self, deterministic: bool = False) -> StepResult:
        """See `EnginePort.step`. Everything that waits is done, or has failed."""
        waiting, self._waiting = self._waiting, []
        self._local = {id(call): number for number, call in waiting}
        done, failed = list[EncodingId](), list[Failure]()
        for number, call in waiting:
            try:
                self._take(number, call)
                done.append(number)
            except RequestError as error:
                failed.append(Failure(number, error))
        spoken = (Spoken(n, 0, call.forced[0], "") for n, call in waiting if isinstance(call, Decode) and call.forced)
        return StepResult(tuple(each for each in spoken if each.id in done), tuple(done), tuple(failed), len(done))

    def cancel(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.cancel`."""
        gone = set(ids)
        self._waiting = [each for each in self._waiting if each[0] not in gone]

    def release(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.release`. What was written down stays."""
        for number in list(ids):
            del self._kept[number]

    def swap_out(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.swap_out`. Paper has room."""

    def message(self, id: EncodingId) -> Encoded:
        """See `EnginePort.message`."""
        return self._kept[id].words

    def receipt(self, id: EncodingId) -> Receipt:
        """See `EnginePort.receipt`."""
        return self._kept[id].context.receipt

    # -- one call ----------------------------------------------------------------------------------------

    def _begin(self) -> Piece | None:
        bos = self._framing.bos
        return None if bos is None else Piece(None, self._stored(b"bos", Context((), 0), (bos,), ()), 0)

    def _take(self, number: EncodingId, call: Call) -> None:
        if isinstance(call, Shadow | Repair):
            raise RequestError(f"a {type(call).__name__} cannot be unfolded: train without repairs and shadows")
        parents = [self._parent(parent) for parent in call.parents]
        placed = layout(self._rules, call, parents)
        context, words = placed.context, placed.words
        if words is None and isinstance(call, Decode):
            words = decoded(call, placed.framed, self.framing.content.decode(placed.framed.content), "forced")
        assert words is not None
        if words.sampled is None:
            key = context.key(words.tokens, call.salt, "whole")
            storage = self._shared.get(key) or self._stored(key, context, words.tokens, ())
        else:
            begin, end = words.sampled
            storage = self._stored(b"%d" % number, context, words.tokens, range(begin - 1, end))
            self.targets += words.tokens[begin : end + 1]
        self._kept[number] = Kept(storage, words, context)

    def _stored(self, key: bytes, context: Context, tokens: tuple[int, ...], wanted: Sequence[int]) -> Storage:
        storage = Storage(key, context.start, len(tokens))
        storage.segment = Segment(tokens, context.start, context.pieces, storage=storage, wanted=wanted)
        self._shared[key] = storage
        self.segments.append(storage.segment)
        return storage

    def _parent(self, parent: EncodingId | Prefill | Repair) -> tuple[EncodingId, Storage]:
        number = parent if isinstance(parent, int) else self._local.get(id(parent))
        if number is None or number not in self._kept:
            raise BadParent(f"parent {number!r} is not there")
        return number, self._kept[number].storage

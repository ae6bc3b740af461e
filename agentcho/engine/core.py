"""The core of an engine: all that it does but compute. Synchronous, one thread, no torch.

It knows tokens and encodings, and nothing of agents. `submit` and `step` take calls step by step, for the
choreographer; `prefill`, `decode` and `repair` run to the end. A `Runner` computes: a model, a fake, or sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from agentcho.calls.call import ANY_TURN, Call, Decode, EncodingId, Ids, Receipt, StepResult, Turn
from agentcho.calls.checks import Bounds, checked, is_id, known_as_id, named, readable
from agentcho.calls.owner import Owner, owned
from agentcho.calls.values import numbers
from agentcho.engine.admission import Admission, Local
from agentcho.engine.assembly import Assembly
from agentcho.engine.base import Constraint, Ran, Runner, Template
from agentcho.engine.blame import Blame
from agentcho.engine.debug import Debug
from agentcho.engine.direct import Direct
from agentcho.engine.encoding import Context, Encoding, Piece, Recipe, Storage
from agentcho.engine.integrity import Integrity
from agentcho.engine.layout import Rules, encoded
from agentcho.engine.plan import Plan
from agentcho.engine.scheduler import Scheduler
from agentcho.engine.sequence import Sequence as Admitted
from agentcho.engine.tiers import Fullness, Tiers
from agentcho.engine.trial import Trial
from agentcho.errors import EngineClosed, EngineFailed, RequestError, UnknownEncoding
from agentcho.message import Words


class EngineCore(Direct):
    """What a runner computes, kept under ids: at most `context` positions, in the words of `template`; `host_tokens` of
    what leaves the runner's pages are kept in host memory. As a context manager it closes itself."""

    def __init__(self, runner: Runner, template: Template, context: int, host_tokens: int) -> None:
        self._runner, self.framing, self.context = runner, template, context
        self.store = runner.pages
        self._tiers = Tiers(runner.pages, host_tokens)
        self._encodings: dict[EncodingId, Encoding] = {}
        self._waiting: dict[EncodingId, Admitted] = {}
        self._untold: list[EncodingId] = []
        self._ids, self._bounds = Ids(), Bounds(runner.vocabulary)
        self._assembly = Assembly(self._tiers, runner.make)
        self._blame = Blame(runner.probe)
        self._trial = Trial(runner, self._blame)
        self._scheduler = Scheduler(self._assembly, runner, self._finished, self._blame)
        rules = Rules(template, self._encode_bos(), context, runner.origin)
        self._admission = Admission(rules, template, self._constrain, self._assembly, self._parent, self.message)

    @property
    def owner(self) -> Owner:
        """Who may call it now."""
        return self._runner.owner

    def close(self) -> None:
        """Give up all that it keeps and its part in the network, at once: calls under way, encodings, memory. What is
        asked of it afterwards is refused with `EngineClosed`; to close it again is a no-op. Others on its network go
        on."""
        if vars(self):
            with self.owner.acting(None, "close"):
                self._scheduler.drop_all()
                vars(self).clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Of a closed engine nothing is left."""
            if vars(self) or name.startswith("__"):
                raise AttributeError(f"an engine has no {name!r}")
            raise EngineClosed("the engine was closed; load another to go on")

    @property
    def bos(self) -> bool:
        """Whether every context begins after a BOS."""
        return self.framing.bos is not None

    def frame(self, role: str, name: str | None, text: str, tokens: tuple[int, ...] | None = None) -> Words:
        """See `FramePort.frame`."""
        if tokens is not None:
            tokens = numbers(tokens, "tokens", self._bounds.vocabulary)
        return encoded(self.framing, role, name, text, tokens)

    @property
    def fullness(self) -> Fullness:
        """How full store and host memory are, and what had to move."""
        return self._tiers.fullness

    @property
    def debug(self) -> Debug:
        """What it is in the midst of, between steps."""
        calls, late = self._scheduler.calls, tuple(self._scheduler.deferred)
        return Debug(self._scheduler.rows, late, calls, self._runner.slots, self._encodings)

    @owned
    def check_integrity(self) -> None:
        """Raise `StoreDamaged` unless pages, counts, contents, recipes and labels are whole. See `Integrity`. Between
        steps. It reads all that is stored: for tests, and for whoever doubts a machine."""
        Integrity(self._tiers, self._encodings, (*self._scheduler.calls, *self._scheduler.deferred)).check()

    def message(self, id: EncodingId) -> Words:
        """The words of a finished encoding: `.role`, `.name`, `.header`, `.text`, `.tokens` (all ids fed, without BOS)
        and `.sampled`, the (start, stop) of sampled tokens within them. Raises `UnknownEncoding`."""
        return self._encoding(id).words

    def receipt(self, id: EncodingId) -> Receipt:
        """What an encoding really attended to: `.context`, as (encoding id, position, length) of each parent in tokens,
        `.start`, the position of its own first token, and `.bos`, whether BOS stood before."""
        return self._encoding(id).receipt

    # -- step by step ------------------------------------------------------------------------------------

    @owned
    def submit(self, calls: Sequence[Call], turn: Turn = ANY_TURN) -> tuple[EncodingId, ...]:
        """See `EnginePort.submit`."""
        plain, turn = checked(calls, turn, self._bounds)
        last = self._ids.last
        try:
            with readable("the list of calls"):
                admitted = self._admission.admit(plain, self._ids.new)
        except BaseException:
            self._ids.last = last  # nobody has heard of these
            raise
        for call in admitted:
            if call.entry is not None:
                self._waiting[call.id] = call
        self._scheduler.add(admitted, turn)
        return tuple(call.id for call in admitted)

    @owned
    def step(self, deterministic: bool = False) -> StepResult:
        """Schedule, run, collect. See `EnginePort.step`."""
        before = self._assembly.fed
        self._untold.clear()
        try:
            plan = self._scheduler.schedule(exact=deterministic)
            judged = self._trial.judge(plan) if plan.judged else 0
            result = self._scheduler.process(plan, *self._forward(plan))
            if self._runner.asynchronous:  # forced tokens are said without a look at what was computed
                self._runner.synchronize()
            for failure in result.failed:
                self._waiting.pop(failure.id, None)
            encoded = result.encoded + judged + self._assembly.fed - before
            return result._replace(encoded=encoded, held=(self.store.used + self.store.reserved) / self.store.limit)
        except BaseException as error:
            self._scheduler.drop_all()
            self._waiting.clear()
            self.release(self._untold)  # finished in this step, and nobody will hear of it
            if isinstance(error, Exception) and not isinstance(error, EngineFailed):
                raise EngineFailed.of(error) from error
            raise

    def _forward(self, plan: Plan) -> Ran:
        """The forward of a plan, kept: its segments in the order of their rows of logits, and these. Where it fails,
        and where each call depends on itself alone, one by one."""
        if not plan.segments:
            return [], []
        unjudged = bool(plan.judged) and any(call in plan.judged for call, _ in plan.failed)
        if not plan.exact and not unjudged:
            try:
                return self._runner.step(plan.segments)
            except Exception as error:
                self._trial.again(error, len(plan.segments))
        return self._trial.apart(plan)

    @owned
    def cancel(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.cancel`."""
        gone = {id for id in named(ids) if not self._ids.foreign(id)}
        self._scheduler.cancel(gone)
        self._waiting = {id: storage for id, storage in self._waiting.items() if id not in gone}

    @owned
    def release(self, ids: Iterable[EncodingId]) -> None:
        """Give up finished encodings; their pages are freed when nothing else holds them."""
        given = named(ids)
        encodings = [self._encoding(id) for id in given]
        if len(set(given)) < len(given):
            raise UnknownEncoding(max(given, key=given.count), released=True)
        for encoding in encodings:
            del self._encodings[encoding.id]
            self._scheduler.deferred.release([encoding.storage])

    @owned
    def swap_out(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.swap_out`."""
        self._tiers.swap_out([self._encoding(id).storage for id in named(ids)])

    def finished(self, id: EncodingId) -> bool:
        """Whether an id names an encoding: its call is done, and it was not released."""
        return is_id(id) and id in self._encodings and not self._ids.foreign(id)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return self._scheduler.idle

    @property
    def rows(self) -> int:
        """Decodes that run now."""
        return len(self._scheduler.rows)

    def _finished(self, encoding: Encoding) -> None:
        self._untold.append(encoding.id)
        self._waiting.pop(encoding.id, None)
        self._encodings[encoding.id] = encoding

    def _encoding(self, id: EncodingId) -> Encoding:
        if known_as_id(id) not in self._encodings or self._ids.foreign(id):
            raise self._missing(id)
        return self._encodings[id]

    def _missing(self, id: EncodingId) -> RequestError:
        if id in self._scheduler.in_flight and not self._ids.foreign(id):
            return RequestError.parents(f"encoding {id} is not finished")
        return UnknownEncoding(id, self._ids.gave(id), self._ids.foreign(id))

    def _parent(self, id: EncodingId) -> Storage:
        """The storage of a finished encoding, or of a prefill that waits."""
        there = id in self._waiting and not self._ids.foreign(id)
        return self._waiting[id].own if there else self._encoding(id).storage

    def _constrain(self, call: Decode, local: Local) -> Constraint | None:
        """What follows a decode whose words are not forced; `local` are the calls before it in its list."""
        return self._runner.constrain(call.sampling)

    def _encode_bos(self) -> Piece | None:
        """Encode the BOS once, at position 0, for every context to begin with."""
        if (bos := self.framing.bos) is None:
            return None
        return Piece(None, self._assembly.keep(Recipe((bos,), Context((), 0, self._runner.origin), "")), 0)

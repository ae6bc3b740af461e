"""The core of an engine: everything except computation, which a `Runner` does. Synchronous, one thread, no torch.

A model, a fake and a set-based audit engine share it, so that ids, errors and storage work the same in all of them. It
handles tokens and encodings; it must not depend on agents. `submit` and `step` run calls step by step, for the
choreographer; `prefill`, `decode` and `repair` run calls to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

from agentcho.engine.anchors import Pair, matched
from agentcho.engine.cache import NO_DISK, DiskQuota, Encoding, PoolUsage, SharedPrefix, TieredCache
from agentcho.engine.call_layout import (
    CallContext,
    ContextPiece,
    EncodingRecipe,
    KVEntry,
    Layout,
    Rules,
    anchors_key,
    check_origin,
    encoded,
    layout,
)
from agentcho.engine.debug import Debug
from agentcho.engine.forward_plan import FaultAttribution, ForwardPlan, IsolatedForwards
from agentcho.engine.generation import Generation
from agentcho.engine.ids import IdAllocator
from agentcho.engine.integrity import Integrity
from agentcho.engine.persistent_cache import PersistentCache
from agentcho.engine.protocols import Template, TokenConstraint
from agentcho.engine.restore import CacheRestorer, common_prefix
from agentcho.engine.runner_port import Ran, Runner
from agentcho.engine.scheduler import Scheduler
from agentcho.engine.sequence import Reuse
from agentcho.engine.sequence import Sequence as Admitted
from agentcho.engine.speculation import CorpusIndexes
from agentcho.engine.sync_api import SyncAPI
from agentcho.errors import EngineClosed, EngineFailed, RequestError, UnknownEncoding, shown
from agentcho.message import Words
from agentcho.protocol.call import (
    DEFAULT_PRIORITY,
    Call,
    Decode,
    EncodingId,
    Prefill,
    Receipt,
    Repair,
    SchedulingPriority,
    Shadow,
    StepResult,
)
from agentcho.protocol.call_validation import (
    TokenIdBounds,
    as_request_errors,
    checked_calls,
    checked_id,
    checked_ids,
    is_id,
)
from agentcho.protocol.forward_costs import ForwardCosts
from agentcho.protocol.ownership import Owner, owned
from agentcho.protocol.value_checks import WORD, checked_ints
from agentcho.reuse.anchors import Encoded
from agentcho.reuse.method import ByAnchors, ByDeviation, ByPlace

if TYPE_CHECKING:
    from agentcho.engine.persistent_files import PersistentFiles

Local = Mapping[int, Admitted]
"""Calls of the same list that are already admitted, by the `id()` of the call."""


class EngineCore(SyncAPI):
    """Stores what a runner computes under ids. As a context manager it closes itself.

    Args:
        runner: Computes forward passes and samples tokens.
        template: Frames messages as token ids.
        context: Number of positions.
        host_tokens: Tokens of evicted encodings to keep in host memory.
        disk: Tokens of encodings to keep on disk after they leave host memory.
        kept: Files of earlier runs that hold public encodings. None for none.
    """

    SCHEDULER: type[Scheduler] = Scheduler
    """Decides which calls run next."""

    def __init__(
        self,
        runner: Runner,
        template: Template,
        context: int,
        host_tokens: int,
        disk: DiskQuota = NO_DISK,
        kept: PersistentFiles | None = None,
    ) -> None:
        self._runner, self.framing, self.context = runner, template, context
        self.store = runner.pages
        self._tiers = TieredCache(runner.pages, host_tokens, disk)
        self._encodings: dict[EncodingId, Encoding] = {}
        self._waiting: dict[EncodingId, Admitted] = {}
        self._untold: list[EncodingId] = []
        self._indexes = CorpusIndexes()
        self._ids, self._bounds = IdAllocator(), TokenIdBounds(runner.vocabulary)
        self._assembly = CacheRestorer(self._tiers, runner.make)
        self._blame = FaultAttribution(runner.probe)
        self._trial = IsolatedForwards(runner, self._blame)
        self._keeper = PersistentCache(self._assembly, kept)
        self._scheduler = self.SCHEDULER(self._keeper, self._assembly, runner, self._finished, self._blame)
        self._shared: WeakValueDictionary[bytes, KVEntry] = WeakValueDictionary()
        first = Rules(template, self._encode_bos(runner.origin), context, runner.origin)
        self._rules: dict[str | None, Rules] = {None: first}

    @property
    def owner(self) -> Owner:
        """The owner of the engine, who alone may call it now."""
        return self._runner.owner

    def close(self) -> None:
        """Drop all running calls, all encodings, and their memory and files.

        Every later use raises `EngineClosed`. Closing again does nothing. Other engines on the same network go on.

        Raises:
            EngineBusy: The engine has another owner.
        """
        if vars(self):
            with self.owner.acting(None, "close"):
                self._scheduler.drop_all()
                self._tiers.close()
                self._keeper.close()
                vars(self).clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise `EngineClosed` for any use of a closed engine."""
            if vars(self) or name.startswith("__"):
                raise AttributeError(f"an engine has no attribute {name!r}")
            raise EngineClosed("the engine is closed; load another engine to continue")

    @property
    def bos(self) -> int:
        """The number of tokens that every context begins with, usually one (the BOS) or none."""
        return len(self.framing.begin)

    def frame(self, role: str, name: str | None, text: str, tokens: tuple[int, ...] | None = None) -> Words:
        """See `FramePort.frame`."""
        if tokens is not None:
            tokens = checked_ints(tokens, "tokens", self._bounds.vocabulary)
        return encoded(self.framing, role, name, text, tokens)

    @property
    def fullness(self) -> PoolUsage:
        """How full the store (in pages), host memory and disk (in tokens) are, and what was evicted, made again or
        kept."""
        return self._tiers.fullness._replace(found=self._keeper.found, kept=self._keeper.kept)

    @property
    def debug(self) -> Debug:
        """The running, waiting and deferred calls, to be read between steps."""
        calls, late = self._scheduler.calls, tuple(self._scheduler.deferred)
        return Debug(self._scheduler.rows, late, calls, self._runner.slots, self._encodings)

    @owned
    def check_integrity(self) -> None:
        """Check that pages, counts, contents, recipes and labels are intact. Call it between steps.

        It reads everything that is stored, so it is meant for tests and for deciding whether a machine can be trusted.

        Raises:
            StoreDamaged: Something has changed.
            EngineBusy: The engine has another owner.
        """
        Integrity(self._tiers, self._encodings, (*self._scheduler.calls, *self._scheduler.deferred)).check()

    def message(self, id: EncodingId) -> Words:
        """Return the words of a finished encoding.

        Args:
            id: The encoding.

        Returns:
            The words. `header` and `text` are text, `tokens` are all ids that were fed, without BOS, and `content` and
            `sampled` are the (start, stop) of the content and of the sampled ids within `tokens`.

        Raises:
            UnknownEncoding: The id is unknown, or was released.
            RequestError: The call is not finished.
        """
        return self._encoding(id).words

    def receipt(self, id: EncodingId) -> Receipt:
        """Return what an encoding actually attended to.

        Args:
            id: The encoding.

        Returns:
            The receipt. `context` has (id, position, length in tokens) of each parent, `start` is the position of its
            own first token, and `bos` the number of tokens before everything else, usually the BOS.

        Raises:
            UnknownEncoding: The id is unknown, or was released.
            RequestError: The call is not finished.
        """
        return self._encoding(id).receipt

    # -- step by step ------------------------------------------------------------------------------------

    def take_place(self, place: int, prefill_budget: int | None = None) -> None:
        """See `EnginePort.take_place`."""
        self._ids.go_to(place)
        self._scheduler.spare(prefill_budget)

    @owned
    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        """See `EnginePort.submit`."""
        plain, turn = checked_calls(calls, turn, self._bounds)
        admitted, last = dict[int, Admitted](), self._ids.last
        try:
            with as_request_errors("the list of calls"):
                for call in plain:
                    admitted[id(call)] = self._admit(call, admitted)
        except BaseException:
            for each in admitted.values():
                self._tiers.release(each.holds)
            self._ids.last = last  # these ids were never given out
            raise
        for each in admitted.values():
            if each.entry is not None:
                self._waiting[each.id] = each
        self._scheduler.add(admitted.values(), turn)
        return tuple(each.id for each in admitted.values())

    @owned
    def step(self, deterministic: bool = False) -> StepResult:
        """Run one step: schedule, forward, collect. See `EnginePort.step`."""
        before = self._assembly.fed
        self._untold.clear()
        try:
            result = self._advance(deterministic)
            for failure in result.failed:
                self._waiting.pop(failure.id, None)
            encoded = result.encoded + self._assembly.fed - before
            return result._replace(encoded=encoded, held=(self.store.used + self.store.reserved) / self.store.limit)
        except BaseException as error:
            self._scheduler.drop_all()
            self._waiting.clear()
            self.release(self._untold)  # calls that finished in this step, which nobody is told of
            if isinstance(error, Exception) and not isinstance(error, EngineFailed):
                raise EngineFailed.of(error) from error
            raise

    def _advance(self, exact: bool) -> StepResult:
        """Plan and run one forward pass, and return its result."""
        plan = self._scheduler.schedule(exact=exact)
        judged = self._trial.judge(plan) if plan.judged else 0
        result = self._scheduler.process(plan, *self._forward(plan))
        if self._runner.asynchronous:  # forced tokens do not wait for the device
            self._runner.synchronize()
        return result._replace(encoded=result.encoded + judged)

    def _forward(self, plan: ForwardPlan) -> Ran:
        """Run the forward pass of a plan and store its results.

        Returns its segments in the order of their rows of logits, and these rows. If the pass fails, and in the exact
        profile, its calls run one by one.
        """
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
        gone = {id for id in checked_ids(ids) if not self._ids.foreign(id)}
        self._scheduler.cancel(gone)
        self._waiting = {id: entry for id, entry in self._waiting.items() if id not in gone}

    @owned
    def release(self, ids: Iterable[EncodingId]) -> None:
        """Give up finished encodings. Their storage is freed when nothing else holds it.

        Args:
            ids: The encodings.

        Raises:
            UnknownEncoding: An id is unknown, was released, or is given twice. Nothing was given up.
            RequestError: A call is not finished. Nothing was given up.
            EngineBusy: The engine has another owner.
        """
        given = checked_ids(ids)
        encodings = [self._encoding(id) for id in given]
        if len(set(given)) < len(given):
            raise UnknownEncoding(max(given, key=given.count), released=True)
        for encoding in encodings:
            del self._encodings[encoding.id]
            self._scheduler.deferred.release([encoding.entry])

    @owned
    def swap_out(self, ids: Iterable[EncodingId]) -> None:
        """Move finished encodings out of the store until they are read. A hint that changes no result.

        Args:
            ids: The encodings.

        Raises:
            UnknownEncoding: An id is unknown, or was released.
            EngineBusy: The engine has another owner.
        """
        self._tiers.swap_out([self._encoding(id).entry for id in checked_ids(ids)])

    @owned
    def speculate(self, costs: ForwardCosts | None = None) -> ForwardCosts | None:
        """Let decodes with `corpora` guess tokens from now on. Generated text stays the same.

        Args:
            costs: Costs of forward passes that decide when guessing pays. None uses those that the engine has, or
                measures them now.

        Returns:
            The costs in use. None if nothing is ever guessed.

        Raises:
            EngineBusy: The engine has another owner.
        """
        self._runner.costs = costs or self._runner.costs or self._runner.measure(self.context)
        return self._runner.costs

    def finished(self, id: EncodingId) -> bool:
        """Return whether an id names an encoding: its call is done, and it was not released.

        Args:
            id: An id.

        Returns:
            True if it does. False for any other value.
        """
        return is_id(id) and id in self._encodings and not self._ids.foreign(id)

    @property
    def idle(self) -> bool:
        """Whether no call waits and none runs."""
        return self._scheduler.idle

    @property
    def rows(self) -> int:
        """The number of decodes and shadows that are running."""
        return len(self._scheduler.rows)

    def _finished(self, encoding: Encoding) -> None:
        self._untold.append(encoding.id)
        self._waiting.pop(encoding.id, None)
        self._encodings[encoding.id] = encoding

    def _encoding(self, id: EncodingId) -> Encoding:
        if checked_id(id) not in self._encodings or self._ids.foreign(id):
            raise self._missing(id)
        return self._encodings[id]

    def _missing(self, id: EncodingId) -> RequestError:
        if id in self._scheduler.in_flight and not self._ids.foreign(id):
            return RequestError.parents(f"encoding {id} is not finished")
        return UnknownEncoding(id, self._ids.issued(id), self._ids.foreign(id))

    def _encode_bos(self, origin: str, adapter: str | None = None) -> ContextPiece | None:
        """Encode once, at position 0, the ids that every context begins with, usually the BOS."""
        if not self.framing.begin:
            return None
        return ContextPiece(
            None, self._assembly.keep(EncodingRecipe(self.framing.begin, CallContext((), 0, origin, adapter), "")), 0
        )

    def _admit_adapter(self, adapter: str, origin: str) -> None:
        """Let calls name an adapter of the runner.

        `origin` names its keys: the runner's own if it changes none.
        """
        base = self._rules[None]
        bos = base.bos if origin == base.origin else self._encode_bos(origin, adapter)
        self._rules[adapter] = base._replace(bos=bos, origin=origin, adapter=adapter)

    def _rules_of(self, call: Call) -> Rules:
        if call.adapter not in self._rules:
            raise RequestError(
                f"adapter {shown(call.adapter)} is not loaded in this engine; Engine.mix(folder) loads an adapter and "
                "returns its digest, which calls can name"
            )
        return self._rules[call.adapter]

    # -- admission of a call, over stored encodings and the calls before it ------------------------------

    def _layout(self, call: Call, local: Local | None = None, own: int = 0) -> Layout:
        """See `call_layout.layout`. Parents are stored, waiting, or earlier in the same list."""
        rules, local = self._rules_of(call), local or {}
        return layout(rules, call, [self._resolve(parent, local, rules) for parent in call.parents], own)

    def _admit(self, call: Call, local: Local) -> Admitted:
        """Check a call against the stored encodings and prepare it to run: assign its id and positions, and check that
        it can ever fit. If it raises, the call holds nothing."""
        match call:
            case Prefill():
                sequence = self._prefill(call, self._layout(call, local))
            case Decode():
                sequence = self._decode(call, self._layout(call, local), local)
            case Shadow():
                sequence = self._shadow(call, local)
            case Repair():
                sequence = self._repair(call, local)
        self._assembly.check(sequence.needs, sequence.grows, sequence.context.length + sequence.grows)
        self._tiers.hold(sequence.holds)
        self._assembly.expect(sequence.needs)
        return sequence

    def _prefill(self, call: Prefill, placed: Layout) -> Admitted:
        assert placed.words is not None
        recipe = EncodingRecipe(placed.words.tokens, placed.context, call.salt)
        prefix = None if call.extends is None else self._prefix(recipe, call.extends)
        entry = self._entry(recipe)
        return Admitted(self._ids.new(), call, placed.context, placed.longest, placed.words, entry, prefix=prefix)

    def _prefix(self, recipe: EncodingRecipe, earlier: EncodingId) -> SharedPrefix | None:
        """The prefix that can be copied from an earlier state, if that is still stored. Raises `UnknownEncoding` if the
        id was never issued."""
        if not self._ids.issued(earlier):
            raise self._missing(earlier)
        known = self._encodings.get(earlier)
        return None if known is None else common_prefix(recipe, known.entry)

    def _decode(self, call: Decode, placed: Layout, local: Local) -> Admitted:
        constraint = self._constrain(call, local) if call.forced is None else None
        id = self._ids.new()
        indexes = None if self._runner.costs is None else self._indexes
        prompt = self._prompt(call, placed, local) if call.sampling.repetition_penalty != 1 else frozenset[int]()
        generation = Generation(id, call, placed, self.framing, constraint, indexes, prompt)
        return Admitted(id, call, placed.context, placed.longest, generation=generation)

    def _prompt(self, call: Decode, placed: Layout, local: Local) -> frozenset[int]:
        """The ids of all tokens that a decode reads, its own framing and header included."""
        found = {*placed.framed.begun, *(() if call.begins else self.framing.begin)}
        for parent in call.parents:
            there = local[id(parent)] if not isinstance(parent, int) else self._waiting.get(parent)
            if there is None and isinstance(parent, int):
                found.update(self.message(parent).tokens)
            elif there is not None and there.words is not None:
                found.update(there.words.tokens)
            elif there is not None and there.generation is not None:
                found.update(there.generation.tokens)
        return frozenset(found)

    def _constrain(self, call: Decode, local: Local) -> TokenConstraint | None:
        """The constraint of a decode whose words are not forced. `local` are the calls before it in its list."""
        try:
            return self._runner.constrain(call.sampling, call.forms, bool(call.header))
        except RequestError:
            if not call.cut:
                raise
            cut = call.sampling.model_copy(update={"max_tokens": WORD - 1})
            return self._runner.constrain(cut, call.forms, bool(call.header))

    def _shadow(self, call: Shadow, local: Local) -> Admitted:
        leader = local.get(id(call.of))
        if leader is None or leader.generation is None or leader.leader is not None:
            raise RequestError.parents("a Shadow follows a Decode that is not earlier in the same list")
        placed = self._layout(call, local, leader.longest)
        return Admitted(
            self._ids.new(), call, placed.context, placed.longest, generation=leader.generation, leader=leader
        )

    def _repair(self, call: Repair, local: Local) -> Admitted:
        base = self._resolve(call.of, local, self._rules_of(call))
        words = self.message(call.of) if isinstance(call.of, int) else local[id(call.of)].words
        assert words is not None
        placed = self._layout(call, local, len(words.tokens))
        words = words._replace(sampled=None, stopped=None)
        context, kept = placed.context, ContextPiece(base[0], base[1], placed.context.start)
        match call.choose:
            case ByAnchors() as choose:
                return self._by_anchors(call, choose, placed, words, kept, local)
            case ByDeviation() as choose:
                reuse = Reuse(kept, choose.count(len(words.tokens)), self._judged(call, context, local), ())
            case ByPlace() as choose:
                places = choose.places(len(words.tokens))
                reuse = Reuse(kept, len(places), None, places)
            case choose:
                raise TypeError(f"{choose!r} does not select by position, deviation or anchors")
        judged = reuse.judged
        recipe = EncodingRecipe(
            words.tokens,
            context,
            call.salt,
            base=reuse.base,
            choose=call.choose,
            places=tuple(reuse.places),
            judged=judged.key((), "", "whole") if judged else b"",
        )
        return Admitted(self._ids.new(), call, context, placed.longest, words, self._entry(recipe), reuse)

    def _by_anchors(
        self, call: Repair, choose: ByAnchors, placed: Layout, words: Words, base: ContextPiece, local: Local
    ) -> Admitted:
        """Admit a message that is composed of its base and of anchors' offsets. If the anchors do not suffice, it is
        encoded like a prefill of its ids."""
        context, rules = placed.context, self._rules_of(call)
        stored = ((self._resolve(each, local, rules) for each in anchor) for anchor in choose.anchors)
        pairs = [Pair(*(ContextPiece(id, entry, context.start) for id, entry in both)) for both in stored]
        anchors = matched(words.tokens, pairs, choose, self._runner.apart)
        recipe, reuse = EncodingRecipe(words.tokens, context, call.salt), None
        if anchors:
            reuse = Reuse(base, 0, None, (), anchors)
            how = choose.with_anchors(())
            recipe = recipe._replace(base=reuse.base, choose=how, judged=anchors_key(anchors), anchors=anchors)
        return Admitted(self._ids.new(), call, context, placed.longest, words, self._entry(recipe), reuse)

    def _judged(self, call: Repair, context: CallContext, local: Local) -> CallContext:
        """Return the context over which a repair compares its tokens with those of its base.

        It is the call's own context with the base of each repaired parent in that parent's place, because bases are
        stored already.
        """
        bos = len(context.pieces) - len(call.parents)
        repairs = [local[id(parent)].repair if isinstance(parent, Repair) else None for parent in call.parents]
        pieces = [
            piece if repair is None else ContextPiece(repair.base.id, repair.base.entry, piece.offset)
            for piece, repair in zip(context.pieces[bos:], repairs, strict=True)
        ]
        return CallContext((*context.pieces[:bos], *pieces), context.start, adapter=context.adapter)

    def _entry(self, recipe: EncodingRecipe) -> KVEntry:
        """Return the entry of an equal call, in whichever tier it is, or a new one that the forward pass of this call
        fills.

        An entry without holders is not taken, because it would have to be made again first, in a pass of its own.
        """
        entry = KVEntry.of(recipe)
        known = self._shared.get(entry.key)
        if known is not None and known.holders:
            return known
        self._shared[entry.key] = entry
        return entry

    def _resolve(self, parent: EncodingId | Encoded, local: Local, rules: Rules) -> tuple[EncodingId, KVEntry]:
        """Return the id and the entry of a parent that is stored, waits, or comes earlier in the same list.

        Raises `RequestError` if there is no such parent, or its keys are another adapter's.
        """
        if isinstance(parent, Encoded):
            if id(parent) not in local:
                raise RequestError.parents(
                    f"a {type(parent).__name__} is named as parent but is not earlier in the list"
                )
            number, entry = local[id(parent)].id, local[id(parent)].own
        else:
            there = parent in self._waiting and not self._ids.foreign(parent)
            number, entry = parent, self._waiting[parent].own if there else self._encoding(parent).entry
        check_origin(number, entry, rules, self._rules[None].origin)
        return number, entry

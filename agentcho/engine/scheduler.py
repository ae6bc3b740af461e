"""Plans the next forward (running decodes and shadows, and waiting calls within the budget), and turns its results into
tokens, finished encodings and failures.

While no call waits, a step only looks at the running decodes. Independent of the validation of calls and of how a
forward computes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from collections.abc import Sequence as Listed
from contextlib import suppress

from agentcho.engine.cache import Encoding
from agentcho.engine.call_layout import EncodingRecipe, KVEntry, Segment
from agentcho.engine.forward_plan import FaultAttribution, ForwardPlan
from agentcho.engine.logprobs import weigh
from agentcho.engine.persistent_cache import PersistentCache
from agentcho.engine.protocols import Row
from agentcho.engine.queue import BurstDetector, CallQueue, DeferredShadows, QueuedCall, TokenBudget, take_turns
from agentcho.engine.restore import CacheRestorer
from agentcho.engine.runner_port import Runner
from agentcho.engine.sequence import Sequence, Status
from agentcho.engine.speaking import Speaker
from agentcho.engine.speculation import worthwhile_drafts
from agentcho.protocol.call import CallFailure, EncodingId, SchedulingPriority, StepResult
from agentcho.protocol.forward_costs import ForwardCosts


class Scheduler:
    """Schedules the waiting calls and the running decodes and shadows. Finished encodings are passed to `finished`."""

    def __init__(
        self,
        keeper: PersistentCache,
        assembly: CacheRestorer,
        runner: Runner,
        finished: Callable[[Encoding], None],
        blame: FaultAttribution,
    ) -> None:
        self._tiers, self._assembly = assembly.tiers, assembly
        self._runner, self._slots, self._budget = runner, runner.slots, runner.budget
        self._finished, self._blame, self._keeper = finished, blame, keeper
        self._speaker = Speaker(runner, blame, self.cancel)
        self._waiting = CallQueue()
        self._running: list[Sequence] = []
        self._making: list[Sequence] = []
        self._rush = BurstDetector()
        self.deferred = DeferredShadows(assembly.tiers, finished)

    def spare(self, tokens: int | None) -> None:
        """Limit prefills to this many tokens per step from now on while decodes run. None means the budget of the
        runner, which is not limited in a burst."""
        own = self._runner.budget
        self._budget = own if tokens is None else TokenBudget(own.packed, tokens, strict=True)

    @property
    def idle(self) -> bool:
        """Whether no call waits and none runs. Deferred shadows do not count."""
        return not self._waiting.waiting and not self._running

    @property
    def in_flight(self) -> frozenset[EncodingId]:
        """The ids of all unfinished calls."""
        return frozenset(call.id for call in self.calls)

    @property
    def rows(self) -> tuple[Sequence, ...]:
        """The running decodes and shadows."""
        return tuple(self._running)

    @property
    def calls(self) -> tuple[Sequence, ...]:
        """All unfinished calls."""
        return (*self._waiting, *self._running)

    def add(self, calls: Iterable[Sequence], turn: SchedulingPriority) -> None:
        """Queue admitted calls."""
        self._waiting.add(calls, turn)

    # -- planning a forward ------------------------------------------------------------------------------

    def schedule(self, exact: bool = False) -> ForwardPlan:
        """The plan of the next forward: one feed of every running decode and shadow, and waiting calls within the
        budget.

        A waiting call goes into the forward in which all that it attends to is ready or completed, once the store has
        room for that and for its own tokens. No call overtakes one that waits for room. At least one call goes.
        `exact`: new rows share no tensor with others, no prefill is divided, and no shadow is deferred.
        """
        plan, waiting = ForwardPlan(exact), bool(self._waiting.waiting)
        followed = waiting
        for running in self._running:
            followed = followed or running.leader is not None
        if followed:
            take_turns([call for call in self.calls if call.entry is None], exact)
        if waiting:
            starting = [call for call in self._waiting if call.entry is None]
            self._slots.expect(call.context for call in starting)
        if self._runner.costs is not None and not exact:
            self._guess(self._runner.costs)
        for running in self._running:
            if running.leader is None or running.portion:
                try:
                    self._feed(plan, running)
                except Exception as error:  # this call alone has failed
                    plan.failed.append((running, self._blame.of(error)))
        if waiting:
            speaking = sum(row.leader is None for row, _ in plan.rows)  # shadows do not speak
            self._rush.see(sum(call.leader is None for call in starting), speaking)
            self._let_in(plan)
        else:
            self._rush.on = False
        return plan

    def _guess(self, costs: ForwardCosts) -> None:
        """Let decodes draft as many tokens as are worthwhile beside the other tokens of rows."""
        guesses = [row.guess() for row in self._running]
        if any(guess.tokens for guess in guesses):
            fed = sum(len(row.feed) if row.leader is None else row.portion for row in self._running)
            depth = sum(row.context.length + row.fed for row in self._running) / len(self._running)
            most_each = worthwhile_drafts(guesses, fed, costs.at(depth))
            for row, guess, most in zip(self._running, guesses, most_each, strict=True):
                row.speech.guessed = row.speech.guessed if row.leader else guess.tokens[:most]

    def _feed(self, plan: ForwardPlan, row: Sequence) -> None:
        segment = row.next_segment()
        plan.segments.append(segment)
        plan.sequences.append(row)
        plan.rows.append((row, segment))

    def _let_in(self, plan: ForwardPlan) -> None:
        """Begin waiting calls, or continue them."""
        exact, rush = plan.exact, self._rush.on and not self._budget.strict
        spared = bool(plan.rows) and not exact and not rush
        room = self._budget.room(sum(len(s.ids) for s in plan.segments), speaking=spared)
        making = {call.own for call in self._waiting if call.entry is not None}
        gone, crowded = set[EncodingId](), False
        for waiting in self.deferred.before(self._waiting.line(), gone):
            call = waiting.call
            if exact and call.divisible:
                self._afresh(call)
            if not exact and self.deferred.takes(call):
                gone |= {call.id} if self._begin(plan, waiting, 0) else set()
            elif not call.attendable:
                if not call.promised(making, self.deferred):
                    plan.failed.append((call, self.deferred.why(call)))
                    gone.add(call.id)
                    making -= set() if call.entry is None else {call.entry}
            elif call.due and (crowded or not waiting.spare):
                if call.prefix is not None and not call.placed:
                    call.copied = 0 if exact else self._assembly.copies(call.prefix, call.needs, call.grows)
                crowded = crowded or not (call.placed or self._assembly.fits(call.needs, call.grows))
                may = call.placed or not crowded
                divisible = call.divisible and not exact
                if may and (tokens := room.take(call.remaining, divisible, call.depth)) is not None:
                    self._waiting.serve(waiting, tokens)
                    gone |= {call.id} if self._begin(plan, waiting, tokens) else set()
        self._waiting.keep(lambda call: call.id not in gone)
        self._making += (*(call for call, _ in plan.failed), *plan.late)

    def _afresh(self, call: Sequence) -> None:
        """Discard the parts of a prefill that were encoded beside other calls. In the deterministic profile it is
        encoded at once, because its bits would otherwise depend on what ran beside it."""
        if call.slot is not None and not call.own.ready:
            self._leave_slot(call)
            call.own.written = call.copied = 0

    def _begin(self, plan: ForwardPlan, waiting: QueuedCall, tokens: int) -> bool:
        """Ask the call's guard about exactly the pieces that are gathered next, then start the call, continue it, or
        defer it. Returns whether it has left the queue."""
        call = waiting.call
        try:
            call.ask()
            done = self._start(plan, call) if call.entry is None else self._encode(plan, call, tokens)
        except Exception as error:
            plan.failed.append((call, self._blame.of(error)))
            return True
        if done:
            plan.begun.append(waiting)
        return done

    def _start(self, plan: ForwardPlan, call: Sequence) -> bool:
        if not plan.exact and call.late:
            plan.late.append(call)
            return True
        self._assembly.begin(call, call.needs)
        call.reserved = self._tiers.reserve(call.longest)
        call.slot = self._slots.take(call.context, len(call.feed), plan.exact, call.leader is not None)
        call.before, call.status = sum(piece.entry.length for piece in call.slot.pieces), Status.RUNNING
        self._running.append(call)
        self._feed(plan, call)
        return True

    def _encode(self, plan: ForwardPlan, call: Sequence, tokens: int) -> bool:
        entry = call.own
        made = entry.attendable or (
            not call.started and (self._keeper.take(call, plan.exact) or self._put_together(call))
        )
        if not made and not call.started and tokens < call.remaining:
            call.slot = self._slots.open(call.context.length + entry.length, alone=True)
        if not call.placed:
            self._assembly.begin(call, call.needs, None if entry.ready else entry, call.takes)
        if not made:
            plan.segments.append(call.encode(tokens))
            plan.sequences.append(call)
            if call.repair is not None and not call.repair.places:
                plan.judged.append(call)
        if not entry.attendable:
            return False
        if call.status is not Status.DEFERRED:
            plan.prefills.append(call)
            self._making.append(call)
        return True

    def _put_together(self, call: Sequence) -> bool:
        """Make the entry of a repair from anchors, which needs stored encodings but no forward. False for other
        calls."""
        if call.repair is None or not call.repair.anchors:
            return False
        entry = call.own
        self._assembly.begin(call, call.needs, entry)
        call.start()
        self._runner.make(entry)
        entry.written = entry.length
        return True

    # -- processing its results --------------------------------------------------------------------------

    def process(self, plan: ForwardPlan, order: list[Segment], logits: Listed[Row]) -> StepResult:
        """Turn the rows of logits `[vocab]`, in the order of the wanted tokens of `order`, into tokens, finished
        encodings and failures. Decodes that began and now have their contexts in slots unpin the entries in the store;
        others read them there until they are done."""
        failed, finished = list[CallFailure](), list[EncodingId]()
        for waiting in plan.begun:
            if waiting.call.entry is None and not waiting.call.reads_stored:
                self._tiers.unpin(waiting.call)
        if plan.failed:
            failed += self._leave_out(plan, order)
        asking = self._speaker.asking(plan, order, logits)
        tokens = self._speaker.choose(asking, plan.exact)
        if plan.prefills or plan.late or len(plan.rows) < len(plan.segments):
            finished += self._complete(plan)
        for row, _ in plan.rows:
            if row.speech.stopped is not None and self._finishes(row, failed):
                finished.append(row.id)
        if plan.late:
            finished += self._defer(plan, failed)
        self._making.clear()
        fed = 0
        for segment in order:
            fed += len(segment.ids)
        for row, segment in plan.rows:
            row.advance(len(segment.ids))
        spoken, begun, dropped = self._speaker.say(asking, tokens, failed)
        if plan.weighed:
            spoken, lost = weigh(self._runner, self._blame, plan, spoken)
            self.cancel(failure.id for failure in lost)
            failed += lost
        said, ended = tuple(spoken), tuple(finished)
        return StepResult(said, ended, tuple(failed), fed - dropped, begun=tuple(begun), dropped=dropped)

    def _complete(self, plan: ForwardPlan) -> list[EncodingId]:
        """Finish the calls of known words that are now encoded, and settle deferred shadows that are."""
        for call in plan.prefills:
            self._keeper.put(call, plan.exact)
        finished = [self._finish_known(call) for call in plan.prefills]
        self._making[:] = plan.late
        self.deferred.settle(segment.entry for segment in plan.segments if segment.entry is not None)
        return finished

    def _finish_known(self, call: Sequence) -> EncodingId:
        assert call.words is not None
        receipt = call.receipt
        self._finished(Encoding(call.id, call.own, call.words, receipt))
        self._leave_slot(call)
        self._let_go(call)
        return call.id

    def _finishes(self, row: Sequence, failed: list[CallFailure]) -> bool:
        """Finish a decode or a shadow. Returns False if it failed."""
        if row.status is not Status.RUNNING:  # a shadow whose leader has just failed
            return False
        try:
            self._finish_row(row)
        except BaseException as error:
            failed.append(self._failure(row, self._blame.of(error)))
            return False
        return True

    def _finish_row(self, row: Sequence) -> None:
        """Move the keys of a row's own tokens from its slot into the store."""
        slot, words = row.slot, row.speech.words()
        assert slot is not None
        feeds = (*row.feeds, len(row.feed)) if slot.alone else ()
        entry = KVEntry.of(EncodingRecipe(words.tokens, row.context, row.call.salt, "stepwise", feeds))
        self._unreserve(row)
        self._tiers.hold([entry])
        try:
            self._tiers.allocate(entry)
            self._runner.store(slot, row.before, entry)
        except BaseException:
            self._tiers.release([entry])
            raise
        entry.written = entry.length
        logits = row.speech.logits if row.leader is None else ()
        self._finished(Encoding(row.id, entry, words, row.context.receipt, logits))
        self._running.remove(row)
        self._leave_slot(row)
        self._let_go(row)

    def _defer(self, plan: ForwardPlan, failed: list[CallFailure]) -> list[EncodingId]:
        """Defer the late shadows of a plan, except those whose leaders failed."""
        lost = {failure.id for failure in failed}
        plan.late[:] = [call for call in plan.late if not self._follows(call, lost)]
        return [self.deferred.add(call) for call in plan.late]

    def _let_go(self, call: Sequence) -> None:
        call.status = Status.FINISHED
        self._tiers.unpin(call)
        self.deferred.release(call.uses)

    def _failure(self, call: Sequence, error: Exception) -> CallFailure:
        """Drop a call that failed, in whichever state it is, and its shadows."""
        self._making = [each for each in self._making if each is not call]
        self.deferred.refuse(call, error)
        if call in self.calls:
            self.cancel([call.id])
        elif call.status is not Status.FINISHED:  # a shadow that failed was dropped with its leader
            self._drop(call)
            self.cancel(self._shadows({call.id}))
        return CallFailure(call.id, error)

    def _leave_out(self, plan: ForwardPlan, order: list[Segment]) -> list[CallFailure]:
        """Undo the parts of a plan that its forward did not complete. Returns the failures.

        Failed calls are dropped with their shadows. Calls that would have read their result, or waited for them to
        encode the same, go back into the queue. A call that lacks only deferred shadows that could not be made fails
        with the same error.
        """
        failed = [self._failure(call, error) for call, error in plan.failed if not self.deferred.keeps(call, error)]
        lost, ran = {failure.id for failure in failed}, {id(segment) for segment in order}
        plan.rows[:] = [
            (row, segment) for row, segment in plan.rows if id(segment) in ran and row.status is Status.RUNNING
        ]
        plan.late[:] = [call for call in plan.late if not self._follows(call, lost)]
        fed = {row for row, _ in plan.rows}
        for waiting in plan.begun:
            if waiting.call.id not in lost and waiting.call.starved(fed):
                self._put_back(waiting)
        plan.prefills[:] = [call for call in plan.prefills if call.own.ready and call.id not in lost]
        unmade = self.deferred.unmade({call: error for call, error in plan.failed if self.deferred.keeps(call, error)})
        for call in list(self._waiting) if unmade else ():
            lacked = call.lacks
            if lacked and unmade.keys() >= set(lacked):
                failed.append(self._failure(call, unmade[lacked[0]]))
        return failed

    def _follows(self, late: Sequence, lost: Container[EncodingId]) -> bool:
        """Whether the leader of a late shadow has failed. If so, drops the shadow."""
        if late.leader is None or late.leader.id not in lost:
            return False
        self._making.remove(late)
        self._drop(late)
        return True

    def _put_back(self, waiting: QueuedCall) -> None:
        """Undo what was begun for a call in this forward. The call will begin again."""
        call = waiting.call
        self._tiers.unpin(call)
        self._making = [each for each in self._making if each is not call]
        if call.entry is None:
            self._running.remove(call)
            self._leave_slot(call)
            self._unreserve(call)
            call.status = Status.WAITING
        elif call.started:
            self._tiers.discard(call.entry)
            call.entry.written, call.started = 0, False
        if call.status is not Status.DEFERRED:
            self._waiting.put_back(waiting)

    def drop_all(self) -> None:
        """Drop all unfinished calls, those of a failed forward included, also on a device that has failed. Deferred
        shadows stay deferred."""
        for call in dict.fromkeys((*self._making, *self.calls)):
            if call.status is not Status.DEFERRED:
                with suppress(Exception):  # of the device, from closing its slot, which is the last thing
                    self._drop(call)
        self.deferred.put_back()
        with suppress(Exception):
            self._slots.clear()
        self._making, self._waiting, self._running = [], CallQueue(), []

    def cancel(self, ids: Iterable[EncodingId]) -> None:
        """Drop the waiting and running calls with these ids, their shadows, and all that they hold."""
        gone = frozenset(ids)
        gone |= self._shadows(gone)
        for call in [call for call in self.calls if call.id in gone]:
            self._drop(call)
        self._waiting.keep(lambda call: call.id not in gone)
        self._running = [call for call in self._running if call.id not in gone]

    def _shadows(self, leaders: Container[EncodingId]) -> frozenset[EncodingId]:
        return frozenset(call.id for call in self.calls if call.leader is not None and call.leader.id in leaders)

    def _drop(self, call: Sequence) -> None:
        if call.status is Status.FINISHED:
            return
        self._tiers.unpin(call)
        if call.started and not call.own.ready:
            call.own.written = 0  # another call that needs it begins from its first token
            self._tiers.discard(call.own)
        self.deferred.release(call.holds)
        self._unreserve(call)
        call.status = Status.FINISHED
        self._leave_slot(call)

    def _leave_slot(self, call: Sequence) -> None:
        """Close the slot of a call, if it has one, and drop the reference to its tensors."""
        slot, call.slot = call.slot, None
        if slot is not None:
            self._slots.close(slot)

    def _unreserve(self, call: Sequence) -> None:
        self._tiers.store.unreserve(call.reserved)
        call.reserved = 0

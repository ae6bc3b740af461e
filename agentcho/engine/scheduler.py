"""What runs in the next forward: waiting prefills, new decodes and running rows, and what comes of it.

Does not know: how calls are checked (`admission`), how a forward computes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

import torch
from torch import Tensor

from agentcho.calls.call import EncodingId, Failure, Spoken, StepResult, Turn
from agentcho.engine.assembly import Assembly
from agentcho.engine.blame import Blame
from agentcho.engine.encoding import Encoding, Recipe, Segment, Storage
from agentcho.engine.follower import Follower, take_turns
from agentcho.engine.lanes import Lanes
from agentcho.engine.pending import (
    Pending,
    PendingDecode,
    PendingPrefill,
    PendingRepair,
    PendingShadow,
    ask,
    attendable,
    begun,
    depth,
    divisible,
    due,
    gathered,
    held,
    longest,
    needed,
    promised,
    size,
)
from agentcho.engine.plan import Plan
from agentcho.engine.postponed import Postponed
from agentcho.engine.queue import Queue, Waiting
from agentcho.engine.room import Budget, Rush
from agentcho.engine.row import Row
from agentcho.engine.sampler import choose
from agentcho.engine.seats import Seats
from agentcho.engine.tiers import Tiers
from agentcho.errors import CallbackFailed, LeakageError, SamplingFailed


class Scheduler:
    """Waiting calls in order, running rows, and finished encodings handed to `store_encoding`."""

    def __init__(
        self, tiers: Tiers, assembly: Assembly, lanes: Lanes, seats: Seats, banned: Tensor, budget: Budget,
        finished: Callable[[Encoding], None], blame: Blame,
    ) -> None:  # fmt: skip
        self._tiers, self._assembly = tiers, assembly
        self._lanes, self._seats, self._banned, self._budget = lanes, seats, banned, budget
        self._finished, self._blame = finished, blame
        self._waiting = Queue()
        self._running: list[PendingDecode] = []
        self._making: list[Pending] = []
        self._rush = Rush()
        self.postponed = Postponed(tiers, finished)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs; what is postponed waits for nothing."""
        return not len(self._waiting) and not self._running

    @property
    def in_flight(self) -> frozenset[EncodingId]:
        """Ids of calls not finished."""
        return frozenset(call.id for call in self.calls)

    @property
    def rows(self) -> int:
        """Decodes and shadows that run."""
        return len(self._running)

    @property
    def calls(self) -> tuple[Pending, ...]:
        """Calls not finished."""
        return (*self._waiting, *self._running)

    def add(self, calls: Iterable[Pending], turn: Turn) -> None:
        """Queue admitted calls."""
        self._waiting.add(calls, turn)

    def plan(self, alone: bool = False) -> Plan:
        """One feed of every running row, and waiting calls as far as the budget goes.

        A call waits for the forward in which what it attends to is ready or completed, and until there is room for that
        and for itself in the store; nobody takes room before one that waits for it. One call always goes. `alone`: rows
        that begin share no lane's tensor with others, no prefill is divided, and no shadow postponed.
        """
        plan = Plan([], [], [], [], [], alone, [], [], [])
        take_turns([call.row for call in self.calls if isinstance(call, PendingDecode)], alone)
        starting = [call for call in self._waiting if isinstance(call, PendingDecode)]
        self._seats.expect(call.context for call in starting)
        for running in (call for call in self._running if call.row.due):
            self._trying(plan, running, lambda: self._plan_row(plan, running))  # noqa: B023
        self._rush.see(_rows(call.row for call in starting), _rows(row for row, _ in plan.rows))
        spared = bool(plan.rows) and not alone and not self._rush.on
        room = self._budget.room(sum(len(s.ids) for s in plan.segments), speaking=spared)
        making = {call.storage for call in self._waiting if isinstance(call, PendingPrefill)}
        gone, crowded = set[EncodingId](), False
        for waiting in self.postponed.before(self._waiting.line(), gone):
            call = waiting.call
            if alone and divisible(call):
                self._afresh(call)
            if not alone and self.postponed.takes(call):
                gone |= {call.id} if self._begin(plan, waiting, 0) else set()
            elif not attendable(call):
                if not promised(call, making, self.postponed):
                    plan.failed.append((call, self.postponed.why(call)))
                    gone.add(call.id)
                    making -= {call.storage} if isinstance(call, PendingPrefill) else set()
            elif due(call) and (crowded or not waiting.spare):
                crowded = crowded or not self._fits(call)
                may = begun(call) or not crowded
                if may and (tokens := room.take(size(call), divisible(call) and not alone, depth(call))) is not None:
                    self._waiting.serve(waiting, tokens)
                    gone |= {call.id} if self._begin(plan, waiting, tokens) else set()
        self._waiting.keep(lambda call: call.id not in gone)
        self._making += (*(call for call, _ in plan.failed), *plan.late)
        return plan

    def _afresh(self, call: PendingPrefill) -> None:
        """Forget parts that were encoded beside others: what is alone is encoded at once, or its bits would tell."""
        if call.lane is not None and not call.storage.ready:
            self._lanes.close(call.lane)
            call.lane, call.storage.written = None, 0

    def _fits(self, call: Pending) -> bool:
        """Whether there is room for all that it gathers and makes."""
        return begun(call) or self._assembly.fits(needed(call), longest(call))

    def _begin(self, plan: Plan, waiting: Waiting, tokens: int) -> bool:
        """Ask the call's guard about the very pieces that are gathered next, and start it, go on with it, or postpone
        it; returns whether it waits no more."""
        call = waiting.call

        def begin() -> bool:
            ask(call)
            return self._speak(plan, call) if isinstance(call, PendingDecode) else self._encode(plan, call, tokens)

        done = self._trying(plan, call, begin)
        if done:
            plan.begun.append(waiting)
        return done is not False

    def _trying(self, plan: Plan, call: Pending, begin: Callable[[], bool]) -> bool | None:
        """Do that for a call; None: it has failed by itself."""
        try:
            return begin()
        except Exception as error:
            plan.failed.append((call, self._blame.of(error)))
            return None

    def _speak(self, plan: Plan, call: PendingDecode) -> bool:
        if call.row.late and not plan.alone:
            plan.late.append(call)
            return True
        self._assembly.begin(call, needed(call))
        call.reserved = self._tiers.reserve(call.longest)
        call.row.lane = self._seats.take(call.context, len(call.row.feed), plan.alone, call.row.apart)
        self._running.append(call)
        return self._plan_row(plan, call)

    def _encode(self, plan: Plan, call: PendingPrefill, tokens: int) -> bool:
        storage, made = call.storage, call.storage.attendable
        if not made and not call.started and tokens < size(call):
            call.lane = self._lanes.open(call.context.length + size(call), alone=True)
        if not begun(call):
            self._assembly.begin(call, needed(call), None if storage.ready else storage)
        if not made:
            plan.segments.append(call.encode(tokens))
            plan.calls.append(call)
            if isinstance(call, PendingRepair) and not call.places:
                plan.judged.append(call)
        if not storage.attendable:
            return False
        if not isinstance(call, PendingShadow):
            plan.prefills.append(call)
            self._making.append(call)
        return True

    def _plan_row(self, plan: Plan, call: PendingDecode) -> bool:
        self._seats.widen(call.lane, call.width)
        segment = call.segment()
        plan.segments.append(segment)
        plan.calls.append(call)
        plan.rows.append((call.row, segment))
        return True

    def collect(self, plan: Plan, order: list[Segment], logits: list[Tensor]) -> StepResult:
        """Turn logits (rows `[vocab]` in `order`'s wanted order) into tokens, ends and failures. Rows that
        began have their contexts in lanes now, and need them in the store no more.
        """
        for call in self._running:
            self._tiers.unpin(call)
        spoken, failed = list[Spoken](), list[Failure]()
        if plan.failed:
            failed += self._leave_out(plan, order)
        fed = dict.fromkeys(row for row, _ in plan.rows)
        rows = {id(segment): row for row, segment in plan.rows if isinstance(row, Row)}
        asking = [rows[id(s)] for s in order if s.wanted]
        lines = iter(logits)
        asked = [[next(lines) for _ in segment.wanted] for segment in order if segment.wanted]
        for row, rows_of in zip(asking, asked, strict=True):
            row.logits += [line.cpu() for line in rows_of] if row.call.logits else []
        tokens = self._choose(asking, [rows_of[-1] for rows_of in asked], plan.alone)
        finished = [self._finish_prefill(prefill) for prefill in plan.prefills]
        self._making[:] = plan.late
        self.postponed.settle(segment.storage for segment in plan.segments if segment.storage is not None)
        finished += [row.id for row in list(fed) if row.ending and self._finishes(row, failed)]
        plan.late[:] = [call for call in plan.late if not self._follows(call, {failure.id for failure in failed})]
        finished += [self.postponed.add(call) for call in plan.late]
        self._making.clear()
        for call in (call for call in self._running if call.row in fed):
            call.feeds.append(len(call.row.feed))
        for speaker in fed:
            speaker.advance()
        mute = [row for row in asking if not row.sampled]
        for row, token in zip(asking, tokens, strict=True):
            self._say(row, token, spoken, failed)
        fed_tokens = sum(len(segment.ids) for segment in order)
        opened = tuple(row.begun for row in mute if row.sampled)
        return StepResult(tuple(spoken), tuple(finished), tuple(failed), fed_tokens, begun=opened)

    def _choose(self, rows: list[Row], logits: list[Tensor], alone: bool) -> list[int | None]:
        tokens: list[int | None] = [row.forced() for row in rows]
        free = [i for i, row in enumerate(rows) if row.asks and row.call.forced is None]
        for group in [[i] for i in free] if alone else [free] if free else []:
            for i, token in zip(group, self._drawn([rows[i] for i in group], [logits[i] for i in group]), strict=True):
                tokens[i] = token
        return tokens

    def _drawn(self, rows: list[Row], logits: list[Tensor]) -> list[int | None]:
        """A token a row; None where one has none, or cannot be drawn even by itself."""
        try:
            return choose(torch.stack(logits), [row.draw() for row in rows], self._banned)
        except BaseException as error:  # a grammar's library may panic, which is no `Exception`
            self._blame.of(error)
            return [None] if len(rows) == 1 else [self._drawn([r], [s])[0] for r, s in zip(rows, logits, strict=True)]

    def _say(self, row: Row, token: int | None, spoken: list[Spoken], failed: list[Failure]) -> None:
        if not row.asks:
            return
        try:
            if token is None:
                raise SamplingFailed("no finite logit among the tokens it may say")
            said = row.take(token)
        except BaseException as error:
            self.cancel([row.id])
            failed.append(Failure(row.id, self._blame.of(error)))
        else:
            spoken += () if said is None else (said,)

    def _failure(self, call: Pending, error: Exception) -> Failure:
        """Drop a call that failed, wherever it is by now, and its shadows."""
        self._making = [each for each in self._making if each is not call]
        self.postponed.refuse(call, error)
        if call in self.calls:
            self.cancel([call.id])
        else:
            self._drop(call)
            self.cancel(self._shadows({call.id}))
        return Failure(call.id, error)

    def _leave_out(self, plan: Plan, order: list[Segment]) -> list[Failure]:
        """Of a plan that was not run whole, what was lost: calls that failed, and their shadows. Who would have read
        something that was lost, or waited for it to encode the same, goes back in line."""
        failed = [self._failure(call, error) for call, error in plan.failed if not _kept(call, error)]
        lost, ran = {failure.id for failure in failed}, {id(segment) for segment in order}
        alive = {call.row for call in self._running}
        plan.rows[:] = [(row, segment) for row, segment in plan.rows if id(segment) in ran and row in alive]
        plan.late[:] = [call for call in plan.late if not self._follows(call, lost)]
        said = {row for row, _ in plan.rows}
        for waiting in plan.begun:
            if waiting.call.id not in lost and self._starved(waiting.call, said):
                self._put_back(waiting)
        plan.prefills[:] = [call for call in plan.prefills if call.storage.ready and call.id not in lost]
        return failed + self._unread({call: error for call, error in plan.failed if _kept(call, error)})

    def _unread(self, kept: Mapping[Pending, Exception]) -> list[Failure]:
        """What was postponed and could not be made stays so; who lacks nothing else fails with the same error."""
        unmade = dict[Storage, Exception]()
        for late in self.postponed if kept else ():
            errors = (unmade.get(piece.storage) for piece in late.context.pieces)
            if error := kept.get(late) or next(filter(None, errors), None):
                unmade[late.storage] = error
        failed = list[Failure]()
        for call in list(self._waiting) if unmade else ():
            lacked = [piece.storage for piece in gathered(call) if not piece.storage.attendable]
            if lacked and unmade.keys() >= set(lacked):
                failed.append(self._failure(call, unmade[lacked[0]]))
        return failed

    def _starved(self, call: Pending, said: Container[Row | Follower]) -> bool:
        """Whether nothing came of what was begun for a call."""
        if isinstance(call, PendingDecode):
            return call in self._running and call.row not in said
        return not call.storage.ready

    def _follows(self, late: PendingDecode, lost: set[EncodingId]) -> bool:
        """Whether the leader of a late shadow is lost, and it with it."""
        if not isinstance(late.row, Follower) or late.row.leader.id not in lost:
            return False
        self._making.remove(late)
        self._drop(late)
        return True

    def _put_back(self, waiting: Waiting) -> None:
        """Undo what was begun for a call in the forward that is over; it is begun anew."""
        call = waiting.call
        self._tiers.unpin(call)
        self._making = [each for each in self._making if each is not call]
        if isinstance(call, PendingDecode):
            self._running.remove(call)
            self._seats.leave(call.lane)
            self._unreserve(call)
            call.row.lane = None
        elif call.started:
            self._tiers.discard(call.storage)
            call.started = False
        if not isinstance(call, PendingShadow):
            self._waiting.put_back(waiting)

    def _finish_prefill(self, call: PendingPrefill) -> EncodingId:
        base = call.base.id if isinstance(call, PendingRepair) else None
        receipt = call.context.receipt._replace(base=base)
        self._finished(Encoding(call.id, call.storage, call.words, receipt))
        if call.lane is not None:
            self._lanes.close(call.lane)
        self._let_go(call)
        return call.id

    def _finishes(self, row: Row | Follower, failed: list[Failure]) -> bool:
        """Finish a row; False: it has failed by itself."""
        call = next((call for call in self._running if call.row is row), None)
        if call is None:  # the shadow of one that has just failed
            return False
        try:
            self._finish_row(call, row)
        except BaseException as error:
            failed.append(self._failure(call, self._blame.of(error)))
            return False
        return True

    def _finish_row(self, call: PendingDecode, row: Row | Follower) -> None:
        """Move a row's own keys from its lane to the store."""
        feeds = (*call.feeds, len(row.feed)) if call.lane.bucket.alone else ()
        storage, words = Recipe(row.tokens(), row.context, row.call.salt, "stepwise", feeds).storage(), row.words()
        self._unreserve(call)
        self._tiers.hold([storage])
        try:
            self._tiers.allocate(storage)
            own = call.lane.all(call.before, call.before + storage.length)
            self._tiers.store.write_all(storage.block, own)
        except BaseException:
            self._tiers.release([storage])
            raise
        storage.written = storage.length
        self._finished(Encoding(row.id, storage, words, row.context.receipt, row.logits))
        self._running.remove(call)
        self._seats.leave(call.lane)
        self._let_go(call)

    def drop_all(self) -> None:
        """Drop every call in flight, those of a forward that failed included; what was postponed stays so."""
        for call in dict.fromkeys((*self._making, *self.calls)):
            if not isinstance(call, PendingShadow):
                self._drop(call)
        self.postponed.put_back()
        self._seats.clear()
        self._making, self._waiting, self._running = [], Queue(), []

    def cancel(self, ids: Iterable[EncodingId]) -> None:
        """Drop waiting and running calls of these ids, and their shadows, with all they hold."""
        gone = frozenset(ids)
        gone |= self._shadows(gone)
        for call in [call for call in self.calls if call.id in gone]:
            self._drop(call)
        self._waiting.keep(lambda call: call.id not in gone)
        self._running = [c for c in self._running if c.id not in gone]

    def _shadows(self, leaders: Iterable[EncodingId]) -> frozenset[EncodingId]:
        ids, rows = frozenset(leaders), (call.row for call in self.calls if isinstance(call, PendingDecode))
        return frozenset(row.id for row in rows if isinstance(row, Follower) and row.leader.id in ids)

    def _drop(self, call: Pending) -> None:
        self._tiers.unpin(call)
        if isinstance(call, PendingPrefill) and call.started and not call.storage.ready:
            call.storage.written = 0  # who else wants it begins anew
            self._tiers.discard(call.storage)
        self.postponed.release(held(call))
        lane = call.row.lane if isinstance(call, PendingDecode) else call.lane
        if lane is not None:
            self._seats.leave(lane)
        if isinstance(call, PendingDecode):
            self._unreserve(call)

    def _unreserve(self, call: PendingDecode) -> None:
        self._tiers.store.unreserve(call.reserved)
        call.reserved = 0

    def _let_go(self, call: Pending) -> None:
        self._tiers.unpin(call)
        self.postponed.release([piece.storage for piece in gathered(call)])


def _kept(call: Pending, error: Exception) -> bool:
    """Whether a call that failed stays postponed: nobody refused it, so that it can be made when it is read again."""
    return isinstance(call, PendingShadow) and not isinstance(error, LeakageError | CallbackFailed)


def _rows(rows: Iterable[Row | Follower]) -> int:
    """How many of them speak, or will: shadows do not."""
    return sum(isinstance(row, Row) for row in rows)

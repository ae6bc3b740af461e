"""What runs in the next forward: waiting prefills, new decodes and running rows, and what comes of it.

Does not know: how calls are checked (`admission`), how a forward computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from agentcho.engine.assembly import Assembly
from agentcho.engine.encoding import Encoding, Recipe, Segment
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
from agentcho.engine.queue import Queue
from agentcho.engine.room import Budget
from agentcho.engine.row import Row
from agentcho.engine.sampler import choose
from agentcho.engine.seats import Seats
from agentcho.engine.tiers import Tiers
from agentcho.errors import AgentchoError, SamplingFailed
from agentcho.request import EncodingId, Failure, Spoken, StepResult, Turn


class Scheduler:
    """Waiting calls in order, running rows, and finished encodings handed to `store_encoding`."""

    def __init__(
        self, tiers: Tiers, assembly: Assembly, lanes: Lanes, seats: Seats, banned: Tensor, budget: Budget,
        finished: Callable[[Encoding], None],
    ) -> None:  # fmt: skip
        self._tiers, self._assembly = tiers, assembly
        self._lanes, self._seats, self._banned, self._budget = lanes, seats, banned, budget
        self._finished = finished
        self._waiting = Queue()
        self._running: list[PendingDecode] = []
        self._making: list[Pending] = []
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
        plan = Plan([], [], [], [], alone, [], [])
        take_turns([call.row for call in self.calls if isinstance(call, PendingDecode)], alone)
        self._seats.expect(call.context for call in self._waiting if isinstance(call, PendingDecode))
        for running in (call for call in self._running if call.row.due):
            self._plan_row(plan, running)
        room = self._budget.room(sum(len(s.ids) for s in plan.segments), speaking=bool(plan.rows) and not alone)
        making = {call.storage for call in self._waiting if isinstance(call, PendingPrefill)}
        gone, crowded = set[EncodingId](), False
        for waiting in self.postponed.before(self._waiting.line(), gone):
            call = waiting.call
            if alone and divisible(call):
                self._afresh(call)
            if not alone and self.postponed.takes(call):
                gone |= {call.id} if self._begin(plan, call, 0) else set()
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
                    gone |= {call.id} if self._begin(plan, call, tokens) else set()
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

    def _begin(self, plan: Plan, call: Pending, tokens: int) -> bool:
        """Ask the call's guard about the very pieces that are gathered next, and start it, go on with it, or postpone
        it; returns whether it waits no more."""
        try:
            ask(call)
        except AgentchoError as error:
            plan.failed.append((call, error))
            return True
        return self._speak(plan, call) if isinstance(call, PendingDecode) else self._encode(plan, call, tokens)

    def _speak(self, plan: Plan, call: PendingDecode) -> bool:
        if call.row.late and not plan.alone:
            plan.late.append(call)
            return True
        self._assembly.begin(call, needed(call))
        call.reserved = self._tiers.reserve(call.longest)
        self._running.append(call)
        call.row.lane = self._seats.take(call.context, len(call.row.feed), plan.alone, call.row.apart)
        self._plan_row(plan, call)
        return True

    def _encode(self, plan: Plan, call: PendingPrefill, tokens: int) -> bool:
        storage = call.storage
        if not begun(call):
            self._assembly.begin(call, needed(call), None if storage.ready else storage)
        if not storage.attendable:
            if not call.started and tokens < size(call):
                call.lane = self._lanes.open(call.context.length + size(call), alone=True)
            plan.segments.append(call.encode(tokens))
            if isinstance(call, PendingRepair) and not call.places:
                plan.judged.append(call)
        if not storage.attendable:
            return False
        if not isinstance(call, PendingShadow):
            plan.prefills.append(call)
            self._making.append(call)
        return True

    def _plan_row(self, plan: Plan, call: PendingDecode) -> None:
        self._seats.widen(call.lane, call.width)
        segment = call.segment()
        plan.segments.append(segment)
        plan.rows.append((call.row, segment))

    def collect(self, plan: Plan, order: list[Segment], logits: list[Tensor]) -> StepResult:
        """Turn logits (rows `[vocab]` in `order`'s wanted order) into tokens, ends and failures. Rows that
        began have their contexts in lanes now, and need them in the store no more.
        """
        for call in self._running:
            self._tiers.unpin(call)
        spoken, failed = list[Spoken](), [self._failure(call, error) for call, error in plan.failed]
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
        finished += [self._finish_row(row) for row in fed if row.ending]
        finished += [self.postponed.add(call) for call in plan.late]
        self._making.clear()
        for call in (call for call in self._running if call.row in fed):
            call.feeds.append(len(call.row.feed))
        for speaker in fed:
            speaker.advance()
        for row, token in zip(asking, tokens, strict=True):
            self._say(row, token, spoken, failed)
        return StepResult(tuple(spoken), tuple(finished), tuple(failed), sum(len(s.ids) for s in order))

    def _choose(self, rows: list[Row], logits: list[Tensor], alone: bool) -> list[int | None]:
        tokens: list[int | None] = [row.forced() for row in rows]
        free = [i for i, row in enumerate(rows) if row.asks and row.call.forced is None]
        for group in [[i] for i in free] if alone else [free] if free else []:
            drawn = choose(torch.stack([logits[i] for i in group]), [rows[i].draw() for i in group], self._banned)
            for i, token in zip(group, drawn, strict=True):
                tokens[i] = token
        return tokens

    def _say(self, row: Row, token: int | None, spoken: list[Spoken], failed: list[Failure]) -> None:
        if not row.asks:
            return
        if token is None:
            self.cancel([row.id])
            failed.append(Failure(row.id, SamplingFailed("no finite logit among the tokens it may say")))
            return
        said = row.take(token)
        if said is not None:
            spoken.append(said)

    def _failure(self, call: Pending, error: Exception) -> Failure:
        self._making.remove(call)
        self.postponed.refuse(call, error)
        self._drop(call)
        self.cancel(self._shadows({call.id}))
        return Failure(call.id, error)

    def _finish_prefill(self, call: PendingPrefill) -> EncodingId:
        base = call.base.id if isinstance(call, PendingRepair) else None
        receipt = call.context.receipt._replace(base=base)
        self._finished(Encoding(call.id, call.storage, call.words, receipt))
        if call.lane is not None:
            self._lanes.close(call.lane)
        self._let_go(call)
        return call.id

    def _finish_row(self, row: Row | Follower) -> EncodingId:
        """Move a row's own keys from its lane to the store."""
        call = next(call for call in self._running if call.row is row)
        feeds = (*call.feeds, len(row.feed)) if call.lane.bucket.alone else ()
        storage = Recipe(row.tokens(), row.context, row.call.salt, "stepwise", feeds).storage()
        self._unreserve(call)
        self._tiers.allocate(storage)
        self._tiers.hold([storage])
        own = call.lane.all(call.before, call.before + storage.length)
        self._tiers.store.write_all(storage.block, own)
        storage.written = storage.length
        self._finished(Encoding(row.id, storage, row.words(), row.context.receipt, row.logits))
        self._running.remove(call)
        self._seats.leave(call.lane)
        self._let_go(call)
        return row.id

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

"""Decides which calls vLLM is given, and turns its steps into tokens, finished encodings and failures.

vLLM decides what runs in a step. A decode is one vLLM request from its first token to its last: whenever it needs a
token, the engine draws it from the row of logits, as in its own forwards. A shadow is a request that gets the tokens of
its leader in blocks while they are generated; the shadow of a short message is encoded when a call first reads it.
Independent of how a step computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Listed
from typing import Any

from agentcho.engine.forward_plan import ForwardPlan, LogprobRequest
from agentcho.engine.logprobs import weigh
from agentcho.engine.queue import QueuedCall
from agentcho.engine.scheduler import Scheduler
from agentcho.engine.sequence import STRIDE, Sequence, Status
from agentcho.engine.speaking import Asking, Speaker
from agentcho.errors import EngineFailed
from agentcho.integrations.vllm.jobs import PAUSE, Job
from agentcho.integrations.vllm.runner import VllmRunner
from agentcho.protocol.call import CallFailure, DecodeStarted, EncodingId, SampledToken, StepResult

BLOCK = STRIDE
"""Tokens of its leader that a shadow is given at a time."""
ROOMY, TIGHT = 0.5, 0.9
"""Usage of vLLM's cache below which shadows begin (`ROOMY`), and above which they give their blocks back (`TIGHT`)."""


class VllmScheduler(Scheduler):
    """See `Scheduler`. `step` takes the place of `schedule`, a forward, and `process`."""

    _runner: VllmRunner

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._speaker = Speaker(self._runner, self._blame, lambda ids: None)  # a step of vLLM must not be interrupted
        self._jobs = dict[Job, Sequence]()
        self._spoken, self._begun = list[SampledToken](), list[DecodeStarted]()
        self._failed, self._ended = list[CallFailure](), list[EncodingId]()
        self._fed = 0
        self._runner.jobs.sample = self._sample

    @property
    def idle(self) -> bool:
        """Whether no call waits and vLLM has nothing to do."""
        return super().idle and not self._jobs

    @property
    def calls(self) -> tuple[Sequence, ...]:
        """All unfinished calls."""
        making = (call for call in self._making if call.status is not Status.DEFERRED)
        return (*self._waiting, *making, *self._running)

    def cancel(self, ids: Iterable[EncodingId]) -> None:
        """See `Scheduler.cancel`."""
        gone = frozenset(ids)
        gone |= self._shadows(gone)
        super().cancel(gone)
        self._making = [call for call in self._making if call.status is Status.DEFERRED or call.id not in gone]
        self._jobs = {job: call for job, call in self._jobs.items() if job.sent}

    def step(self) -> StepResult:
        """Give vLLM the calls that can begin, run a step, and collect its results."""
        self._let_all_in()
        self._follow_leaders()
        if any(job.sent for job in self._jobs):
            self._runner.advance()
        for job, call in list(self._jobs.items()):
            if job.error is not None:
                self._fail(call, job.error)
            elif job.done:
                self._collect(call)
        self._jobs = {job: call for job, call in self._jobs.items() if job.sent}
        result = StepResult(
            tuple(self._spoken),
            tuple(self._ended),
            tuple(self._failed),
            self._fed,
            begun=tuple(self._begun),
        )
        self._spoken, self._begun = [], []
        self._failed, self._ended = [], []
        self._fed = 0
        return result

    # -- beginning calls -------------------------------------------------------------------------------------

    def _let_all_in(self) -> None:
        making = {call.own for call in (*self._waiting, *self._jobs.values()) if call.entry is not None}
        gone, crowded = set[EncodingId](), False
        for waiting in self.deferred.before(self._waiting.line(), gone):
            call = waiting.call
            if call.leader is not None and not self._may_follow(call):
                if call.speech.stopped is not None and call.leader.status is Status.FINISHED:
                    gone |= {call.id} if self._put_off(call) else set()
            elif not call.attendable:
                if not call.promised(making, self.deferred):
                    self._fail(call, self.deferred.why(call))
                    gone.add(call.id)
            elif call.due and not call.started:
                # no call takes room ahead of one that waits for room
                crowded = crowded or not (call.placed or self._assembly.fits(call.needs, call.grows))
                if (call.placed or not crowded) and self._give(waiting):
                    gone.add(call.id)
        self._waiting.keep(lambda call: call.id not in gone)

    def _put_off(self, shadow: Sequence) -> bool:
        """Defer a shadow whose leader has ended, once all that it reads is stored or deferred. Returns whether it left
        the queue."""
        if not all(entry in self.deferred for entry in shadow.lacks):
            return False
        try:
            shadow.ask()
        except Exception as error:
            self._fail(shadow, error)
            return True
        self._ended.append(self.deferred.add(shadow))
        return True

    def _may_follow(self, shadow: Sequence) -> bool:
        """Whether a shadow begins while its leader is generating; it is given all tokens so far."""
        if shadow.speech.stopped is not None or shadow.lacking < BLOCK or not shadow.attendable:
            return False
        if self._runner.usage > ROOMY or self._tight:
            return False
        shadow.portion = shadow.lacking
        return True

    @property
    def _tight(self) -> bool:
        """Whether vLLM has taken blocks away from a decode, or soon will."""
        return self._runner.usage > TIGHT or any(job.begun > 1 for job in self._jobs)

    def _follow_leaders(self) -> None:
        """Give running shadows the new tokens of their leaders, a block or more at a time, and at the end the rest."""
        following = [call for call in self._running if call.leader is not None]
        if following and self._tight:
            for call in following:
                self._stand_back(call)
        for call in following:
            job, ended = call.slot, call.speech.stopped is not None
            assert isinstance(job, Job)
            if job.sent and job.paused and (ended or call.lacking >= BLOCK):
                job.follows, job.done = not ended, not call.lacking
                self._follow(call, job, self._runner.go_on)
            elif not job.sent and ended:
                self._follow(call, job, self._begin_again)

    def _follow(self, shadow: Sequence, job: Job, give: Callable[[Job, Listed[int]], None]) -> None:
        if shadow.lacking:
            shadow.portion = shadow.lacking
            feed, shadow.portion = shadow.feed, 0
            self._feeds(shadow, feed)
            give(job, feed)

    def _stand_back(self, shadow: Sequence) -> None:
        """Let a shadow give its blocks back to decodes. It is encoded when its leader has ended."""
        if isinstance(shadow.slot, Job) and shadow.slot.sent:
            self._slots.close(shadow.slot)
            shadow.slot, shadow.fed = self._slots.take(shadow.context, 0, False, True), 0
            shadow.feeds.clear()

    def _begin_again(self, job: Job, tokens: Listed[int]) -> None:
        job.own, shadow = tuple(tokens), next(call for call in self._running if call.slot is job)
        job.asks = shadow.ask
        self._send(job, shadow)

    def _give(self, waiting: QueuedCall) -> bool:
        """Begin a call; return whether it has left the queue."""
        call = waiting.call
        try:
            call.ask()
            self._waiting.serve(waiting, call.longest if call.entry is None else call.remaining)
            if call.entry is None:
                self._begin_decode(call)
            elif call.own.ready:
                self._end_known(call)
            else:
                self._begin_known(call)
        except EngineFailed:  # vLLM failed while recomputing an entry, so nothing in it can be trusted
            raise
        except Exception as error:
            self._fail(call, error)
        return True

    def _begin_decode(self, call: Sequence) -> None:
        self._assembly.begin(call, call.needs)
        call.reserved = self._tiers.reserve(call.longest)
        slot = self._slots.take(call.context, len(call.feed), False, False)
        assert isinstance(slot, Job)
        call.slot = slot
        call.before = slot.before
        call.status = Status.RUNNING
        self._running.append(call)
        slot.own, slot.asks = call.feed, call.ask
        slot.follows = call.leader is not None
        self._feeds(call, call.feed)
        call.portion = 0
        self._send(slot, call)

    def _begin_known(self, call: Sequence) -> None:
        """Encode known words: those of a prefill or of a deferred shadow."""
        assert call.words is not None
        if self._keeper.take(call, exact=False):
            self._end_known(call)
            return
        self._assembly.begin(call, call.needs, call.own)
        call.start()
        call.encoded = True
        job = self._runner.job(call.context.pieces, call.context.start, call.words.tokens, call.ask)
        call.slot = job
        self._making.append(call)
        self._fed += len(job.own)
        self._send(job, call)

    def _send(self, job: Job, call: Sequence) -> None:
        self._jobs[job] = call
        self._runner.send(job)

    # -- drawing tokens within a step of vLLM --------------------------------------------------------------------

    def _sample(self, waiting: Listed[tuple[Job, Any]]) -> list[int]:
        """The next token of each request. What is requested here is computed by the end of the step."""
        asking, plan = list[Asking](), ForwardPlan(exact=False)
        for job, logits in waiting:
            call = self._jobs.get(job)
            if call is None or call.entry is not None or call.leader is not None or job.known:
                continue
            speech = call.speech
            if speech.stopped is None and job.error is None:
                asking.append(Asking(call, [logits]))
                if speech.call.logits:
                    speech.logits += self._runner.keep([logits])
                if speech.call.logprobs is not None:
                    plan.weighed[call.id] = LogprobRequest(logits, len(speech.sampled), speech.call.logprobs)
        if asking:
            self._say(asking, plan)
        return [job.next(PAUSE) for job, _ in waiting]

    def _say(self, asking: list[Asking], plan: ForwardPlan) -> None:
        """Draw the next tokens of these decodes, as their calls require."""
        tokens, failed = self._speaker.choose(asking, exact=False), list[CallFailure]()
        for row, _ in asking:
            row.speech.feed = ()
        spoken, begun, _ = self._speaker.say(asking, tokens, failed)
        if plan.weighed:
            spoken, lost = weigh(self._runner, self._blame, plan, spoken)
            failed += lost
        self._spoken += spoken
        self._begun += begun
        gone = {failure.id for failure in failed}
        for failure in failed:
            row = next(row for row, _ in asking if row.id == failure.id)
            assert isinstance(row.slot, Job) or row.slot is None
            if row.slot is not None:
                row.slot.error = failure.error
        for row, _ in asking:
            if row.id not in gone and isinstance(row.slot, Job):
                feed = row.speech.feed
                self._feeds(row, feed)
                row.slot.known.extend(feed)

    def _feeds(self, row: Sequence, feed: Listed[int]) -> None:
        """Note that the next tokens of a call are being computed."""
        self._fed += len(feed)
        row.fed += len(feed)
        row.feeds.append(len(feed))

    # -- results -----------------------------------------------------------------------------------------------

    def _collect(self, call: Sequence) -> None:
        """Take what a request has computed, and release it."""
        if call.entry is None:
            if self._finishes(call, self._failed):
                self._ended.append(call.id)
            return
        job = call.slot
        assert isinstance(job, Job)
        try:
            self._runner.store(job, job.before, call.own)
        except EngineFailed:  # a rank has died, so no other call can be saved either
            raise
        except Exception as error:
            self._fail(call, error)
            return
        call.own.written = call.own.length
        self._making = [each for each in self._making if each is not call]
        if call.status is Status.DEFERRED:
            self._leave_slot(call)
            self._tiers.unpin(call)
            self.deferred.settle([call.own])
        else:
            self._keeper.put(call, exact=False)
            self._end_known(call)

    def _end_known(self, call: Sequence) -> None:
        self._ended.append(self._finish_known(call))

    def _fail(self, call: Sequence, error: Exception) -> None:
        """Drop a call that failed. A deferred one stays deferred unless its guard refused it."""
        failure = self._blame.of(error)
        if isinstance(call.slot, Job):
            self._runner.end(call.slot)
        if not self.deferred.keeps(call, failure):
            self._failed.append(self._failure(call, failure))
            return
        self._making = [each for each in self._making if each is not call]
        self._tiers.unpin(call)
        call.started, call.slot = False, None
        call.own.written = 0
        self._tiers.discard(call.own)
        for reader in [each for each in self._waiting if call.own in each.lacks]:
            self._failed.append(self._failure(reader, failure))

    def drop_all(self) -> None:
        """See `Scheduler.drop_all`."""
        for job in list(self._jobs):
            self._runner.end(job)
        self._jobs.clear()
        super().drop_all()

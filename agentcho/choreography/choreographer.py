"""The choreographer of one engine: takes requests from tasks, steps the engine, and wakes the tasks whose requests are
done.

A request that arrives while a step runs joins the next step. Steps are made in a thread, in hops of one or several, and
only a hop touches the engine, so no lock is needed. `StepClock` decides when to step. Independent of agents, audiences
and message contents; `game` submits the calls.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import Any, NamedTuple, Unpack

import anyio
import anyio.lowlevel
import anyio.to_thread

from agentcho.choreography.prefetch import Make, Prefetch
from agentcho.choreography.requests import FinishedCall, Handle, Request, RequestResult, checked_request
from agentcho.choreography.step_clock import Deliver, StepClock
from agentcho.choreography.wait_sites import WaitSite
from agentcho.config import DEFAULT_POLICY, Mode, ReuseOptions, ReusePolicy, by_position
from agentcho.errors import (
    AgentchoError,
    CallbackFailed,
    ContextOverflow,
    EngineBusy,
    EngineClosed,
    EngineFailed,
    Overloaded,
    RequestError,
    UnknownEncoding,
)
from agentcho.events import Stepped
from agentcho.protocol.call import EncodingId, EnginePort, FramePort, StepResult
from agentcho.protocol.call_validation import checked_ids
from agentcho.protocol.ids import same_engine

ENGINE = logging.getLogger("agentcho.engine")
"""Logs ids, counts and error classes, never message contents."""


class _Work(NamedTuple):
    """The work of one step, in this order: cancel, release, submit, swap out, step."""

    cancel: list[EncodingId]
    release: list[EncodingId]
    swap: list[EncodingId]
    submit: list[Handle]
    exact: bool


class _Step(NamedTuple):
    """The outcome of one step."""

    submitted: list[Handle]
    result: StepResult | None
    made: dict[EncodingId, FinishedCall]
    refused: list[tuple[Handle, Exception]]
    error: Exception | None
    began: float = 0.0
    ended: float = 0.0


class Choreographer:
    """Runs requests on one engine, as an async context manager. Games of any reuse policy share it.

    It owns the engine's network from entry to exit. At exit it leaves nothing in the engine, no row and no page, and
    waiting submitters get `EngineClosed`. While a request of the deterministic profile is running, every step is in
    that profile.

    Args:
        engine: The engine.
        reuse: Reuse policy of games that give none, or its mode.
        *fields: Further fields of the policy by position. Deprecated; they go in 0.6.
        max_requests: Maximum number of requests at once.
        quiet_after: Seconds without anything to do after which the log says which tasks wait for what.
        name: Name of its model, if a run has several. None for the run's own.
        place: Number of its engine among those of a run.
        beside: A choreographer that it steps together with, in the same thread. It must be opened first. None for a
            clock of its own.
        prefill_budget: Maximum number of prefill tokens per step while decodes run. None means what the engine finds
            right.
        **changes: Fields of `reuse` to change, by name, such as `leakage="audit"`.

    Attributes:
        steps: Number of engine steps.
        encoded: Number of tokens that these steps fed.
        stepped: Called for each step, soon after it, with the share of the store that is held.
        watchers: Each is called for each step, soon after it, with a description of it.

    Raises:
        EngineBusy: On entry, if the engine has another owner or unfinished calls.

    Example::

        async with Choreographer(engine, leakage="audit") as choreographer:
            over = await Game(choreographer).play(scenario)
    """

    def __init__(
        self,
        engine: EnginePort,
        reuse: ReusePolicy | Mode = DEFAULT_POLICY,
        *fields: Any,
        max_requests: int = 100_000,
        quiet_after: float = 60.0,
        name: str | None = None,
        place: int = 0,
        beside: Choreographer | None = None,
        prefill_budget: int | None = None,
        **changes: Unpack[ReuseOptions],
    ) -> None:
        given = by_position(reuse, fields, ReusePolicy._fields)
        policy = reuse if isinstance(reuse, ReusePolicy) else ReusePolicy(**given)
        self.reuse = policy._replace(**changes)
        self._max_requests = max_requests
        self.name = name
        self.place = place
        self._prefill_budget = prefill_budget
        self._clock: StepClock = StepClock(quiet_after) if beside is None else beside._clock
        self._leads = beside is None
        self._engine = engine
        self.tasks = self._clock.tasks
        self.steps = self.encoded = 0
        self._open, self._arrived = set[Handle](), list[Handle]()
        self._prefetch = Prefetch()
        self._under_way: dict[EncodingId, Handle] = {}
        self._held: set[EncodingId] = set()
        self._share, self._wakes_nobody, self._listened, self._is_exact = -1.0, False, False, False
        self._cancel, self._release, self._swap = list[EncodingId](), list[EncodingId](), list[EncodingId]()
        self.stepped: Callable[[float], None] = lambda held: None
        self.watchers: list[Callable[[Stepped], None]] = []
        self._closed = True

    async def __aenter__(self) -> Choreographer:
        self._hold()
        self._home = threading.get_ident(), anyio.lowlevel.current_token()
        self._hopping = threading.Lock()  # a hop's thread keeps running when its task is cancelled by force
        self._clock.add(self)
        if self._leads:
            await self._clock.__aenter__()
        self._closed = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._closed = True
        try:
            return await self._clock.__aexit__(kind, error, trace) if self._leads else False
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await self._clock.leave(self)
                    await self._leave_nothing()
                self._engine.take_place(self.place)  # with a budget of its own again
            finally:
                self._engine.owner.let_go(self)

    def _hold(self) -> None:
        """Take ownership of the network. Anything that a choreographer without a clean exit left in the engine is
        dropped first."""
        owner, ids = self._engine.owner, (self._under_way, self._held, self._cancel, self._release)
        running, drop = partial(_running, anyio.lowlevel.current_token()), partial(_drop, self._engine, *ids)
        owner.hold(self, "a choreographer", running, drop)
        if not self._engine.idle:
            owner.let_go(self)
            raise EngineBusy("calls that were submitted directly and are not done")
        self._engine.take_place(self.place, self._prefill_budget)

    @property
    def frames(self) -> FramePort:
        """The immutable part of the engine, which may be called at any time."""
        return self._engine

    @property
    def tokenizer(self) -> str | None:
        """The digest of its engine's tokenizer. None if the engine does not report one."""
        return self._engine.fingerprint.get("tokenizer")

    @property
    def rests(self) -> int:
        """How often there was nothing to do and every task waited. Common to all choreographers of a run."""
        return self._clock.rests

    def _check_here(self) -> None:
        """Raise `EngineBusy` if this is open in another thread."""
        if not self._closed and threading.get_ident() != self._home[0]:
            raise EngineBusy(self._engine.owner.words)

    async def run(self, request: Request) -> RequestResult:
        """Submit a request, and wait for its result, whose encodings stay held until `release`.

        A cancelled request frees its rows at the next step.

        Args:
            request: The request.

        Returns:
            The result.

        Raises:
            RequestError: The engine refuses the request.
            CallFailed: A call of the request failed.
            StoreFull: The store has no room for the request.
            EngineFailed: A forward pass of the request failed.
            EngineClosed: The choreographer has ended.
            Overloaded: `max_requests` requests are running already.
            EngineBusy: The running event loop is not the one that it was opened on.
        """
        if self._closed:
            raise EngineClosed
        if anyio.lowlevel.current_token() != self._home[1]:
            raise EngineBusy(self._engine.owner.words)
        if len(self._open) >= self._max_requests:
            raise Overloaded(self._max_requests)
        handle = Handle(checked_request(request), self.tasks.current())
        self._open.add(handle)
        self._arrived.append(handle)
        self._clock.arrived()
        try:
            await handle.done.wait()
        except BaseException:
            self._abandon(handle)
            raise
        finally:
            self._open.discard(handle)
        if handle.result is None:
            assert handle.error is not None
            raise handle.error
        return handle.result

    def release(self, ids: Iterable[EncodingId]) -> None:
        """Give up encodings. Their pages are freed at the next step. After the end this does nothing.

        Args:
            ids: The encodings.

        Raises:
            UnknownEncoding: An id is not held here. Nothing was given up.
            EngineBusy: The choreographer is open in another thread.
        """
        self._check_here()
        given = set[EncodingId]() if self._closed else set(checked_ids(ids))
        one = next(iter(self._held), None)
        for id in (each for each in given if each not in self._held or not same_engine(each, one)):
            raise UnknownEncoding(id, released=False)
        self._held -= given
        self._release.extend(sorted(given))
        self._clock.wake()

    def held(self, ids: Iterable[EncodingId]) -> list[EncodingId]:
        """Return those of the given encodings that are held here, and can be released.

        Args:
            ids: Encodings.

        Returns:
            Those that are held.
        """
        return [id for id in ids if id in self._held]

    def offer(self, owner: Any, make: Make) -> None:
        """Offer a request of prefills that runs beside decodes, in a step without new requests.

        `make` returns the request, or None if it is no longer needed. The request wakes no task, and its failure is not
        reported.
        """
        self._check_here()
        self._prefetch.offer(owner, make)

    def forget(self, owner: Any) -> None:
        """Drop an owner's offers, running or not. The owner releases the encodings that they have made."""
        for handle in self._prefetch.forget(owner):
            self._abandon(handle)

    def waiting(self) -> tuple[WaitSite, ...]:
        """Return the tasks of its games that wait, and what each waits for.

        If no request is running, tasks that wait for each other's events wait forever. Whether something outside the
        process will end a wait cannot be known.

        Returns:
            One entry per waiting task, with the names of whoever waits, the line of code, and what it awaits.
        """
        return self._clock.waiting()

    def swap_out(self, ids: Iterable[EncodingId]) -> None:
        """Let encodings make room at the next step. They come back when they are read.

        Args:
            ids: Encodings. Those that are not held here are ignored.

        Raises:
            UnknownEncoding: A value is not an id.
            EngineBusy: The choreographer is open in another thread.
        """
        self._check_here()
        self._swap.extend(sorted(self._held.intersection(checked_ids(ids))))
        self._clock.wake()

    @property
    def busy(self) -> bool:
        """Whether a step has anything to do."""
        return bool(self._arrived or self._under_way or self._cancel or self._release or self._swap)

    @property
    def quiet(self) -> bool:
        """See `ClockMember`."""
        return self._wakes_nobody and not (self._closed or self._cancel or self._release or self._swap)

    def take(self) -> Callable[[], Deliver]:
        """Take what a step is to do now: see `ClockMember`."""
        swap = [id for id in self._swap if id in self._held]
        if not self._arrived and any(handle.first for handle in self._under_way.values()):
            self._arrived = self._prefetch.take()
        arrived = sorted(self._arrived, key=lambda t: t.place)
        running = (*self._under_way.values(), *arrived)
        self._is_exact = any(map(self._exact, running))
        self._listened = any(each.request.on_token or each.request.on_thought for each in running)
        work = _Work(cancel=[*self._cancel], release=[*self._release], swap=swap, submit=arrived, exact=self._is_exact)
        for taken in (self._cancel, self._release, self._swap, self._arrived):
            taken.clear()
        return partial(self._hop, work)

    def again(self) -> Deliver:
        """See `ClockMember`."""
        return self._hop(_Work(cancel=[], release=[], swap=[], submit=[], exact=self._is_exact))

    def _exact(self, handle: Handle) -> bool:
        asked = handle.request.exact
        return self.reuse.deterministic if asked is None else asked

    def _hop(self, work: _Work) -> Deliver:
        """Do everything that one step does with the engine. Runs in the thread."""
        with self._hopping, self._engine.owner.acting(self, "step"):
            step = self._step(work)
        self._wakes_nobody = step.result is not None and self._has_only_tokens(step.result)
        return partial(self._deliver, step)

    def _has_only_tokens(self, result: StepResult) -> bool:
        """Whether a result has nothing but tokens to which no function of a user listens. If the share of the store
        that is held has changed, a waiting game may begin; a prefetch that was offered is taken before the next
        step."""
        share, self._share = self._share, result.held
        news = result.begun or result.finished or result.failed or result.held != share
        return not (news or self._listened or self._prefetch.offered)

    def _step(self, work: _Work) -> _Step:
        self._engine.cancel(work.cancel)
        self._engine.release(work.release)
        refused = [(handle, error) for handle in work.submit if (error := self._submit(handle)) is not None]
        try:
            if work.swap:
                self._engine.swap_out(work.swap)
            if self._engine.idle:
                return _Step(submitted=work.submit, result=None, made={}, refused=refused, error=None)
            began = perf_counter()
            result = self._engine.step(work.exact)
            ended = perf_counter()
        except BaseException as error:  # Ctrl-C never reaches this thread
            return _Step(submitted=work.submit, result=None, made={}, refused=refused, error=_as_ours(error))
        made = {id: FinishedCall(id, self._engine.message(id), self._engine.receipt(id)) for id in result.finished}
        return _Step(
            submitted=work.submit, result=result, made=made, refused=refused, error=None, began=began, ended=ended
        )

    def _submit(self, handle: Handle) -> Exception | None:
        try:
            handle.ids = self._engine.submit(handle.request.calls, handle.request.turn)
        except ContextOverflow as error:
            return error if self.name is None else ContextOverflow(error.needed, error.limit, self.name)
        except BaseException as error:
            return _as_ours(error)
        return None

    def _deliver(self, step: _Step) -> None:
        """Deliver a step on the event loop: journals record the results first, then the submitters wake."""
        for handle in step.submitted:
            self._under_way.update(dict.fromkeys(handle.ids, handle))
            handle.entered = self.steps + 1
            if handle.abandoned:
                self._give_up(handle)
        for handle, error in step.refused:
            handle.finish(None, error)
        if step.error is not None:
            for handle in dict.fromkeys(self._under_way.values()):
                self._fail(handle, step.error)
        if step.result is not None:
            self.steps += 1
            self.encoded += step.result.encoded
            self._log(step.result)
            self._deliver_result(step.result, step.made)
            self.stepped(step.result.held)
            for watch in self.watchers:
                watch(self._told(step.result, step))

    def _told(self, result: StepResult, step: _Step) -> Stepped:
        counts = result.encoded, len(result.spoken), len(result.finished), len(result.failed)
        return Stepped(self.name, self.steps, *counts, result.held, step.began, step.ended)

    def _log(self, result: StepResult) -> None:
        fed = result.encoded
        sampled = len(result.spoken)
        done = len(result.finished)
        failed = len(result.failed)
        ENGINE.debug("step %d: %d tokens fed, %d sampled, %d done, %d failed", self.steps, fed, sampled, done, failed)
        for failure in result.failed:
            ENGINE.warning("encoding %d failed: %s", failure.id, type(failure.error).__name__)

    def _deliver_result(self, result: StepResult, made: dict[EncodingId, FinishedCall]) -> None:
        self._held.update(result.finished)
        for id in result.finished:
            if (handle := self._under_way.get(id)) is not None:
                handle.made[id] = made[id]
        self._report(result)
        for failure in result.failed:
            if (handle := self._under_way.get(failure.id)) is not None:
                self._fail(handle, failure.error)
        for id in result.finished:
            self._finish_call(id)

    def _report(self, result: StepResult) -> None:
        """Record all tokens of the step before any of them goes to a listener of a request."""
        begun = {each.id: each for each in result.begun}
        heard = [(self._under_way[spoken.id], spoken) for spoken in result.spoken if spoken.id in self._under_way]
        for handle, spoken in heard:
            self._notify(handle, "on_piece", partial(handle.take_in, spoken, begun.pop(spoken.id, None), self.steps))
        for flush in {id(handle.request.flush): handle.request.flush for handle, _ in heard}.values():
            self._flush(flush, [handle for handle, _ in heard if handle.request.flush is flush])
        for handle, spoken in heard:
            what = "on_thought" if spoken.thought else "on_token"
            listener = handle.request.on_thought if spoken.thought else handle.request.on_token
            if listener and spoken.text and not handle.done.is_set():
                self._notify(handle, what, partial(listener, spoken.text))

    def _flush(self, flush: Callable[[], None] | None, handles: list[Handle]) -> None:
        """Call the flush of these requests. If it fails, all requests that share it fail with it."""
        if flush is not None and not self._notify(handles[0], "flush", flush):
            for handle in handles[1:]:
                assert handles[0].error is not None
                self._fail(handle, handles[0].error)

    def _finish_call(self, id: EncodingId) -> None:
        handle = self._under_way.pop(id, None)
        if handle is None:  # its request failed or was abandoned while the step ran
            self.release(self.held([id]))
            return
        handle.delivered += 1
        if handle.delivered < len(handle.ids):
            return
        now = perf_counter()
        first = (handle.first or now) - handle.submitted
        made = tuple(handle.made[i] for i in handle.ids)
        steps = handle.entered, handle.spoke or self.steps, self.steps
        result = RequestResult(made=made, ttft=first, seconds=now - handle.submitted, at=handle.submitted, steps=steps)
        done = handle.request.on_done
        if done is None or self._notify(handle, "on_done", partial(done, result)):
            handle.finish(result, None)

    def _notify(self, handle: Handle, what: str, hear: Callable[[], None]) -> bool:
        """Call a function of a request. Returns False if it raised; only that request fails."""
        error = _raised(hear)
        if error is not None:
            self._fail(handle, error if isinstance(error, AgentchoError) else CallbackFailed(what, error))
        return error is None

    def _fail(self, handle: Handle, error: Exception) -> None:
        if not handle.done.is_set():
            self._give_up(handle)
            _raised(partial(handle.drop, "failed"))  # the request fails with `error` already
            handle.finish(None, error)

    def _abandon(self, handle: Handle) -> None:
        """Drop a request whose submitter was cancelled, perhaps while its calls were submitted or its result came. What
        it has said by now is recorded."""
        self._clock.deliver()
        handle.abandoned = True
        self._clock.wake()
        if handle in self._arrived:
            self._arrived.remove(handle)
        elif handle.result is not None:
            if handle.request.on_done is None:
                self.release(self.held(handle.ids))
        elif any(id in self._under_way for id in handle.ids):
            self._give_up(handle)
            handle.drop("cancelled")

    def _give_up(self, handle: Handle) -> None:
        for id in handle.ids:
            self._under_way.pop(id, None)
        self._cancel.extend(id for id in handle.ids if id not in handle.made)
        self.release(self.held(handle.made))

    async def _leave_nothing(self) -> None:
        """After the loop has ended, drop and release everything, and fail the requests that are not done."""
        flying, held = [*self._under_way, *self._cancel], [*self._held, *self._release]
        for left in (self._arrived, self._under_way, self._cancel, self._release, self._held):
            left.clear()
        await anyio.to_thread.run_sync(self._clear, flying, held, limiter=self._clock.thread)
        for handle in self._open:
            if not handle.done.is_set():
                _raised(partial(handle.drop, "failed"))  # an error here must not keep the others from being told
                handle.finish(None, EngineClosed())

    def _clear(self, flying: list[EncodingId], held: list[EncodingId]) -> None:
        with self._hopping, self._engine.owner.acting(self, "the end of a choreographer"):
            self._engine.cancel(flying)
            self._engine.release(held)


def _raised(hear: Callable[[], None]) -> BaseException | None:
    """Return the error that a function raises, even one that would end a task or the process. Ctrl-C is re-raised."""
    try:
        hear()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    return None


def _as_ours(error: BaseException) -> Exception:
    """Return the error that a submitter gets. A panicking library raises errors that are no `Exception` and would end
    this thread; these become `EngineFailed`."""
    return error if isinstance(error, Exception) else EngineFailed.of(error)


def _running(loop: anyio.lowlevel.EventLoopToken) -> bool:
    """Return whether an event loop may still run. asyncio has `is_closed`; trio refuses work once its loop is over."""
    native: Any = loop.native_token
    try:
        return not native.is_closed() if hasattr(native, "is_closed") else native.run_sync_soon(int) is None
    except RuntimeError:
        return False


def _drop(engine: EnginePort, *left: Iterable[EncodingId]) -> None:
    """Drop what a choreographer without a clean exit had running or held. Some of it may be gone already."""
    ids = list(dict.fromkeys(id for some in left for id in some))
    engine.cancel(ids)
    for id in ids:
        with suppress(RequestError):
            engine.release([id])

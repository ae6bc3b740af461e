"""The plan of one forward, and the handling of its failure.

If a forward of many calls fails, it is repeated call by call, so that only the faulty call is lost.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from agentcho.engine.call_layout import Segment, SharedRun
from agentcho.engine.protocols import Row
from agentcho.engine.queue import QueuedCall
from agentcho.engine.runner_port import Ran, Runner
from agentcho.engine.sequence import Sequence
from agentcho.errors import AgentchoError, CallFailed, EngineFailed
from agentcho.protocol.call import EncodingId

log = logging.getLogger(__name__)
Fed = tuple[Sequence, Segment]


class LogprobRequest(NamedTuple):
    """A decode that asks for the log-probability of its next token: the row of logits that the token is sampled from,
    the number of tokens sampled before, and how many of the likeliest tokens to report as well."""

    row: Row
    before: int
    most: int


@dataclass
class ForwardPlan:
    """The plan of one forward.

    - `segments` are fed; `sequences` are the calls they belong to, in the same order. `rows` are the decodes and
      shadows among them, each with its segment.
    - `prefills` are the calls of known words that are complete after this forward; `judged` the repairs whose tokens
      must be chosen before it.
    - `late` are shadows that finish with this forward without being encoded; they are encoded when first read.
    - `failed` are calls that failed before the forward or in it; `begun` the calls that left the queue for it.
    - `weighed` are the decodes that ask for log-probabilities, by id.
    - `exact`: the result of each call depends on that call alone, to the bit (the deterministic profile).
    """

    exact: bool
    segments: list[Segment] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)
    rows: list[Fed] = field(default_factory=list)
    prefills: list[Sequence] = field(default_factory=list)
    failed: list[tuple[Sequence, Exception]] = field(default_factory=list)
    judged: list[Sequence] = field(default_factory=list)
    late: list[Sequence] = field(default_factory=list)
    begun: list[QueuedCall] = field(default_factory=list)
    weighed: dict[EncodingId, LogprobRequest] = field(default_factory=dict)


class FaultAttribution:
    """Determines whether one call or a device caused a failure: a device has failed if a trivial operation on it fails
    too."""

    def __init__(self, touch: Callable[[], None]) -> None:
        self._touch = touch

    def of(self, error: BaseException) -> AgentchoError:
        """The error to report for a call that raised `error` while it was computed alone. Raises `EngineFailed` if the
        device has failed. The stack frames of the failed work are cleared, so that the memory they hold is freed.
        Ctrl-C is re-raised."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        traceback.clear_frames(error.__traceback__)
        try:
            self.probe()
        except Exception:
            raise EngineFailed.of(error) from error
        if isinstance(error, AgentchoError):
            return error
        return CallFailed.of(error)

    def probe(self) -> None:
        """See `Runner.probe`."""
        self._touch()


class IsolatedForwards:
    """Runs the calls of a plan one by one. A call that fails alone is added to the plan's `failed`, and calls that
    would have read its result are not run."""

    def __init__(self, runner: Runner, blame: FaultAttribution) -> None:
        self._runner, self._blame = runner, blame

    def judge(self, plan: ForwardPlan) -> int:
        """Choose the tokens of the plan's repairs. Returns the number of tokens fed. See `Runner.select`."""
        try:
            return self._runner.select([[call] for call in plan.judged] if plan.exact else [plan.judged])
        except Exception as error:
            self.again(error, len(plan.judged))
        fed = 0
        for call in plan.judged:
            try:
                fed += self._runner.select([[call]])
            except Exception as error:
                plan.failed.append((call, self._blame.of(error)))
        return fed

    def again(self, error: Exception, count: int) -> None:
        """Log that calls are now tried one by one. Raises `EngineFailed` if a device has failed, because a retry is
        useless then."""
        self._blame.of(error)
        log.warning("a forward of %d calls failed (%s); each is tried by itself", count, type(error).__name__)

    def apart(self, plan: ForwardPlan) -> Ran:
        """Run the segments of a plan in forwards in which no call's bits depend on another call, every segment after
        those that it reads. Each segment gets a forward of its own, except that rows of the deterministic profile
        without an adapter share forwards of up to `Runner.block` tokens. If the segment that would gather a shared run
        fails, the next segment over that run gathers it. Returns the segments in the order of their rows of logits, and
        these rows."""
        return _Apart(self._runner, self._blame, plan).run()


class _Apart:
    """The forwards of one plan. `_block`: rows that wait to share a forward. `_left`: the shared runs that are not
    gathered, because the segment that claimed them failed or was not run."""

    def __init__(self, runner: Runner, blame: FaultAttribution, plan: ForwardPlan) -> None:
        self._runner, self._blame, self._plan = runner, blame, plan
        self._order, self._rows = list[Segment](), list[Row]()
        self._block, self._left = list[Fed](), set[SharedRun]()

    def run(self) -> Ran:
        """See `IsolatedForwards.apart`."""
        lost = {call for call, _ in self._plan.failed}
        for call, segment in zip(self._plan.sequences, self._plan.segments, strict=True):
            if self._left and segment.slot is not None:
                reads = [reading.run for reading in segment.slot.readings]
                segment.claims = [run for run in reads if run in segment.claims or run in self._left]
            if call in lost or not all(entry.ready for entry in segment.sources):
                self._left |= {*segment.claims}
            elif self._plan.exact and segment.alone and not segment.adapter and len(segment.ids) <= self._runner.block:
                self._join(call, segment)
            else:
                self._forward([(call, segment)])
        self._close()
        return self._order, self._rows

    def _join(self, call: Sequence, segment: Segment) -> None:
        if sum(len(each.ids) for _, each in self._block) + len(segment.ids) > self._runner.block:
            self._close()
        self._block.append((call, segment))

    def _close(self) -> None:
        block, self._block = self._block, []
        if block:
            self._forward(block)

    def _forward(self, fed: list[Fed]) -> None:
        """Run one forward. If several calls fail together, each is tried by itself, with the same bits as in a shared
        forward."""
        segments = [segment for _, segment in fed]
        gathering = {run for segment in segments for run in segment.claims}
        try:
            ran = self._runner.run(segments)
        except Exception as error:
            failure = self._blame.of(error)
            if len(fed) > 1:
                for each in fed:
                    self._forward([each])
                return
            self._plan.failed.append((fed[0][0], failure))
            self._left |= gathering
        else:
            self._left -= gathering
            self._order += ran[0]
            self._rows += ran[1]

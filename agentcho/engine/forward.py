"""One forward: what is planned for it, and, where it fails, whose fault that was: what fails when it is done at once is
done one by one, so that the guilty call alone is lost.

Does not know: how it was planned, what comes of it.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from agentcho.engine.base import Ran, Row, Runner, SharedContext
from agentcho.engine.layout import Segment
from agentcho.engine.sequence import Sequence
from agentcho.engine.waiting import Waiting
from agentcho.errors import AgentchoError, CallFailed, EngineFailed

log = logging.getLogger(__name__)
Fed = tuple[Sequence, Segment]


@dataclass
class Plan:
    """One forward: segments with the sequence of each, and of these the decodes and shadows (`rows`); known words that
    end with it; calls that fail before it or in it; repairs whose tokens are chosen (`judged`) first; shadows that are
    `late`: done with it, and encoded when somebody reads them; and who has left the line (`begun`) for it. `exact`:
    each sequence depends on itself alone, to the bit."""

    exact: bool
    segments: list[Segment] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)
    rows: list[Fed] = field(default_factory=list)
    prefills: list[Sequence] = field(default_factory=list)
    failed: list[tuple[Sequence, Exception]] = field(default_factory=list)
    judged: list[Sequence] = field(default_factory=list)
    late: list[Sequence] = field(default_factory=list)
    begun: list[Waiting] = field(default_factory=list)


class Blame:
    """Asked after each failure. A device has failed when a trivial operation on it fails too."""

    def __init__(self, touch: Callable[[], None]) -> None:
        self._touch = touch

    def of(self, error: BaseException) -> AgentchoError:
        """What a call fails with that raised this by itself. `EngineFailed`: it was a device. What the failed work held
        is let go, so that memory that was short is there for the next. Ctrl-C is nobody's fault, and comes out."""
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
        """Something trivial on each device: see `Runner.probe`. Raises what that raises."""
        self._touch()


class Trial:
    """A call whose segment fails by itself is added to the plan's `failed`. Who would have read it does not run."""

    def __init__(self, runner: Runner, blame: Blame) -> None:
        self._runner, self._blame = runner, blame

    def judge(self, plan: Plan) -> int:
        """See `Runner.select`."""
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
        """Go on one by one, unless it was a device: then `EngineFailed`."""
        self._blame.of(error)
        log.warning("a forward of %d calls failed (%s); each is tried by itself", count, type(error).__name__)

    def apart(self, plan: Plan) -> Ran:
        """The forwards of a plan one by one, kept, each after those it reads. The shared context of one that fails is
        gathered by the next. The segments are in the order of their rows of logits."""
        order, rows = list[Segment](), list[Row]()
        lost = {call for call, _ in plan.failed}
        left: set[SharedContext] = set()
        for call, segment in zip(plan.sequences, plan.segments, strict=True):
            if segment.shared in left:
                segment.pieces = call.context.pieces
            if call in lost or not all(piece.entry.ready for piece in segment.pieces):
                left |= _gathering(segment)
                continue
            try:
                ran = self._runner.run([segment])
            except Exception as error:
                plan.failed.append((call, self._blame.of(error)))
                left |= _gathering(segment)
            else:
                left -= _gathering(segment)
                order += ran[0]
                rows += ran[1]
        return order, rows


def _gathering(segment: Segment) -> set[SharedContext]:
    """The shared context that it gathers, for itself and others."""
    return {segment.shared} if segment.shared is not None and segment.pieces else set()

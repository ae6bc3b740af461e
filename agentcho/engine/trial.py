"""Does one by one what fails when it is done all at once, so that the guilty one alone is lost.

Does not know: how it was planned, what comes of it.
"""

from __future__ import annotations

import logging

from agentcho.engine.base import Ran, Row, Runner, SharedContext
from agentcho.engine.blame import Blame
from agentcho.engine.encoding import Segment
from agentcho.engine.plan import Plan

log = logging.getLogger(__name__)


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
            if call in lost or not all(piece.storage.ready for piece in segment.pieces):
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

"""The times of one workflow, played once by one arm: when each call was ready, had its first token, and ended.
Independent of engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class CallTimes(NamedTuple):
    """Seconds since the workflow began: when the last message that the call reads ended, its first token, its end."""

    ready: float
    first: float
    ended: float


class ArmUnavailable(Exception):
    """An arm that does not run on this machine, or with this version of its library."""


class WorkflowTimes(NamedTuple):
    """All calls by message id, the number of tokens fed, and the number of forwards, if known."""

    calls: Mapping[str, CallTimes]
    encoded: int
    steps: int | None = None

    @property
    def ttft(self) -> float:
        """Mean seconds from when a call could be made to its first token, waiting included."""
        return sum(call.first - call.ready for call in self.calls.values()) / len(self.calls)

    @property
    def seconds(self) -> float:
        """Seconds until the last call ended."""
        return max(call.ended for call in self.calls.values())

    @property
    def prefill(self) -> float:
        """The share of the workflow's time in which at least one call waits for its first token."""
        covered, reached = 0.0, 0.0
        for call in sorted(self.calls.values()):
            covered += max(0.0, call.first - max(call.ready, reached))
            reached = max(reached, call.first)
        return covered / self.seconds

    def figures(self) -> dict[str, float]:
        """The figures to keep in a result."""
        counted = {} if self.steps is None else {"forwards": float(self.steps)}
        whole = {"ttft": self.ttft, "seconds": self.seconds, "prefill": self.prefill}
        return {**whole, "encoded": float(self.encoded), **counted}

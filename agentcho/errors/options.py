"""What was asked for contradicts itself, or is not there."""

from __future__ import annotations

from collections.abc import Iterable

from agentcho.errors.base import AgentchoError


class BadColumn(AgentchoError, ValueError):
    """A column of a comparison names no way of reading."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"column {name!r}: {what}. Columns are such as baseline or choreographed:enforce:in-place")


class ArmUnavailable(AgentchoError):
    """An arm of a benchmark that this machine, or this version of its library, does not run."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not available here: {reason}")
        self.reason = reason


class BadArm(AgentchoError, ValueError):
    """An arm or a workflow that no benchmark has."""

    def __init__(self, kind: str, name: str, choices: Iterable[str]) -> None:
        super().__init__(f"no {kind} {name!r}; give one of {', '.join(choices)}")


class OptionsClash(AgentchoError, ValueError):
    """Options of a run that contradict each other; `what` says which, and what to give instead."""

    def __init__(self, what: str) -> None:
        super().__init__(what)

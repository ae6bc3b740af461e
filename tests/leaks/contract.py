"""Helpers for tests of both engines: run calls to their end, count resources, guards that record or refuse."""

from __future__ import annotations

from collections.abc import Sequence

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.errors import LeakageError
from agentcho.protocol.call import Call, EncodingId, StepResult
from agentcho.testing import FakeEngine


class Bench:
    """An engine under test. `steps` are the results of all its steps, `held` its finished and unreleased encodings."""

    def __init__(self, engine: FakeEngine | Engine) -> None:
        self.engine = engine
        self.steps: list[StepResult] = []
        self.held: set[EncodingId] = set()

    @property
    def used(self) -> tuple[int, int]:
        """Pages that are used and pages that are reserved."""
        if isinstance(self.engine, FakeEngine):
            return self.engine.pages, 0
        return self.engine.fullness.used, self.engine.fullness.reserved

    def words(self, text: str) -> tuple[int, ...]:
        """The token ids of a text."""
        return tuple(self.engine.framing.content.encode(text))

    def submit(self, *calls: Call) -> tuple[EncodingId, ...]:
        """Submit; nothing runs yet."""
        return self.engine.submit(calls)

    def step(self, deterministic: bool = False) -> StepResult:
        """One step."""
        result = self.engine.step(deterministic)
        self.steps.append(result)
        self.held.update(result.finished)
        return result

    def run(self, *calls: Call, deterministic: bool = False) -> tuple[EncodingId, ...]:
        """Submit and step to the end."""
        ids = self.submit(*calls)
        while not self.engine.idle:
            self.step(deterministic)
        return ids

    def ended(self, id: EncodingId) -> int:
        """The index of the step in which a call finished, counted from the first step."""
        return next(number for number, result in enumerate(self.steps) if id in result.finished)

    def failures(self) -> dict[EncodingId, Exception]:
        """The calls that have failed so far, and their errors."""
        return {failure.id: failure.error for result in self.steps for failure in result.failed}

    def clear(self) -> None:
        """Release everything."""
        self.engine.release(self.held)
        self.held.clear()


class Asked:
    """A guard that admits everything and records it."""

    def __init__(self) -> None:
        self.calls: list[tuple[EncodingId, tuple[EncodingId, ...]]] = []

    def admit(self, id: EncodingId, context: Sequence[EncodingId]) -> None:
        """See `Guard.admit`."""
        self.calls.append((id, tuple(context)))


class Shut:
    """A guard that refuses everything."""

    def admit(self, id: EncodingId, context: Sequence[EncodingId]) -> None:
        """See `Guard.admit`."""
        raise LeakageError("bob", ("alice.1", "alice.0"))


def secret() -> Prefill:
    """A message that is not public."""
    return Prefill("The secret is plum.", role="system")


def speech(*parents: EncodingId | Prefill, forced: tuple[int, ...] | None = None, most: int = 6) -> Decode:
    """A decode over these parents."""
    return Decode("So: ", parents, sampling=Sampling(max_tokens=most, temperature=0), forced=forced)

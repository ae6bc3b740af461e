"""Calls that block until they are done: the paper's API, over an engine that goes step by step.

Does not know: how a step computes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, overload

from agentcho.errors import RequestError
from agentcho.protocol.call import (
    DEFAULT_PRIORITY,
    Call,
    Decode,
    EncodingId,
    Prefill,
    Repair,
    SchedulingPriority,
    StepResult,
)
from agentcho.protocol.ownership import Owner


class SyncAPI(ABC):
    """Each of `prefill`, `decode` and `repair` submits calls, steps the engine until they are done, and returns their
    ids."""

    @property
    @abstractmethod
    def owner(self) -> Owner:
        """See `EnginePort.owner`."""

    @abstractmethod
    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        """See `EnginePort.submit`."""

    @abstractmethod
    def step(self, deterministic: bool = False) -> StepResult:
        """See `EnginePort.step`."""

    @abstractmethod
    def cancel(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.cancel`."""

    @abstractmethod
    def release(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.release`."""

    @abstractmethod
    def finished(self, id: EncodingId) -> bool:
        """Whether an id names an encoding: its call is done, and it was not released."""

    @overload
    def prefill(self, calls: str | Prefill, **options: Any) -> EncodingId: ...
    @overload
    def prefill(self, calls: Sequence[Prefill], **options: Any) -> list[EncodingId]: ...
    def prefill(self, calls: str | Prefill | Sequence[Prefill], **options: Any) -> EncodingId | list[EncodingId]:
        """Encode one message of known text over its parents, or a list of messages in one forward.

        The keyword options are the fields of `Prefill`, where a text is given. Returns one new id for each call.
        `RequestError`: a call is wrong, and nothing has changed. `StoreFull`: there is no room.
        """
        if isinstance(calls, str):
            calls = Prefill(calls, **options)
        if isinstance(calls, Prefill):
            return self._complete([calls])[0]
        return self._complete(self._all(calls, Prefill))

    @overload
    def decode(self, calls: str | Decode = "", **options: Any) -> EncodingId: ...
    @overload
    def decode(self, calls: Sequence[Decode], **options: Any) -> list[EncodingId]: ...
    def decode(self, calls: str | Decode | Sequence[Decode] = "", **options: Any) -> EncodingId | list[EncodingId]:
        """Generate one message after `header` over its parents, or a list of messages side by side.

        The keyword options are the fields of `Decode`, where a header is given. Returns one new id for each call.
        Raises as `prefill` does, and `CallFailed` where one of them cannot be computed or sampled.
        """
        if isinstance(calls, str):
            calls = Decode(calls, **options)
        if isinstance(calls, Decode):
            return self._complete([calls])[0]
        return self._complete(self._all(calls, Decode))

    @overload
    def repair(self, calls: Repair) -> EncodingId: ...
    @overload
    def repair(self, calls: Sequence[Repair]) -> list[EncodingId]: ...
    def repair(self, calls: Repair | Sequence[Repair]) -> EncodingId | list[EncodingId]:
        """Encode some tokens of a stored message anew over other parents, or those of a list of messages in one
        forward.

        Returns one new id for each call. Raises as `prefill` does.
        """
        if isinstance(calls, Repair):
            return self._complete([calls])[0]
        return self._complete(self._all(calls, Repair))

    def _all(self, calls: Sequence[Any], kind: type) -> list[Any]:
        for call in calls:
            if not isinstance(call, kind):
                raise RequestError(f"a list of {kind.__name__} contains a {type(call).__name__}")
        return list(calls)

    def _complete(self, calls: Sequence[Call]) -> list[EncodingId]:
        """Run until these calls are done. If one of them fails, the others are given up, and its error is raised."""
        with self.owner.acting(None, type(calls[0]).__name__.lower() if calls else "submit"):
            return self._run(calls)

    def _run(self, calls: Sequence[Call]) -> list[EncodingId]:
        ids = self.submit(calls)
        left = set(ids)
        try:
            while left:
                result = self.step()
                left -= set(result.finished)
                for failure in result.failed:
                    if failure.id in left:
                        raise failure.error
        except BaseException:
            self.cancel(ids)
            self.release(id for id in ids if self.finished(id))
            raise
        return list(ids)

"""Blocking calls: the paper's API, over an engine that works step by step. Scripts and tests need no event loop."""

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
    """`prefill`, `decode` and `repair`: each submits calls, steps the engine until they are done, and returns their
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
        """Return whether an id names an encoding: its call is done, and it was not released.

        Args:
            id: An id.

        Returns:
            True if it does. False for any other value.
        """

    @overload
    def prefill(self, calls: str | Prefill, **options: Any) -> EncodingId: ...
    @overload
    def prefill(self, calls: Sequence[Prefill], **options: Any) -> list[EncodingId]: ...
    def prefill(self, calls: str | Prefill | Sequence[Prefill], **options: Any) -> EncodingId | list[EncodingId]:
        """Encode one message of known text over its parents, or a list of messages in one forward pass.

        Args:
            calls: A text, a `Prefill`, or a list of `Prefill` calls.
            **options: Fields of `Prefill`, if a text is given.

        Returns:
            The new id, or a list with one new id per call. Each is held until `release`.

        Raises:
            RequestError: A call is wrong. Nothing was encoded.
            StoreFull: The store has no room.
            EngineBusy: The engine has another owner.

        Example::

            rules = engine.prefill("Answer in one word.", role="system")
            question = engine.prefill("Which colour has the sky?", parents=[rules])
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
        """Generate one message over its parents, or a list of messages side by side.

        Args:
            calls: A header, a `Decode`, or a list of `Decode` calls.
            **options: Fields of `Decode`, if a header is given.

        Returns:
            The new id, or a list with one new id per call. Each is held until `release`.

        Raises:
            RequestError: A call is wrong. Nothing was generated.
            StoreFull: The store has no room.
            CallFailed: A call cannot be computed, or no token can be sampled. The other calls of the list are dropped
                too.
            EngineBusy: The engine has another owner.

        Example::

            answer = engine.decode(parents=[rules, question], sampling=Sampling(max_tokens=8, temperature=0))
            print(engine.message(answer).text)
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
        """Compute some tokens of stored messages again over other parents.

        Args:
            calls: A `Repair`, or a list of `Repair` calls, which share one forward pass.

        Returns:
            The new id, or a list with one new id per call. Each is held until `release`.

        Raises:
            RequestError: A call is wrong. Nothing was encoded.
            StoreFull: The store has no room.
            EngineBusy: The engine has another owner.
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
        """Run until these calls are done. If one of them fails, the others are dropped, and its error is raised."""
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

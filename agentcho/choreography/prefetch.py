"""Prefetches encodings: prefills that join a step with running decodes before any call reads them, and wake no task.

A step that generates one token per decode is bound by streaming the weights. Tokens of known text ride along almost for
free, and later readers find them encoded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agentcho.choreography.requests import Handle, Request

Make = Callable[[], Request | None]
MOST = 8
"""Maximum number of running requests. More would only wait, and every step looks at everything that waits."""


class Prefetch:
    """Offers in order of arrival, each with its owner, and the handles of those that were taken."""

    def __init__(self) -> None:
        self._offers: deque[tuple[Any, Make]] = deque()
        self._taken: list[tuple[Any, Handle]] = []

    @property
    def offered(self) -> bool:
        """Whether there is an offer that was not taken."""
        return bool(self._offers)

    def offer(self, owner: Any, make: Make) -> None:
        """Add an offer. `make` is called when there is room, and returns the request, or None if it is not needed."""
        self._offers.append((owner, make))

    def take(self) -> list[Handle]:
        """Return handles of offers that are still wanted, up to `MOST` running ones. An offer whose `make` raises is
        dropped: the call that reads the text makes the request again and gets the error."""
        self._taken = [(owner, handle) for owner, handle in self._taken if not handle.done.is_set()]
        new: list[tuple[Any, Handle]] = []
        while self._offers and len(self._taken) + len(new) < MOST:
            owner, make = self._offers.popleft()
            with suppress(Exception):
                if (request := make()) is not None:
                    new.append((owner, Handle(request._replace(turn=request.turn._replace(ahead=True)), None)))
        self._taken += new
        return [handle for _, handle in new]

    def forget(self, owner: Any) -> list[Handle]:
        """Drop an owner's offers. Returns its running handles."""
        self._offers = deque((other, make) for other, make in self._offers if other is not owner)
        gone = [handle for other, handle in self._taken if other is owner and not handle.done.is_set()]
        self._taken = [(other, handle) for other, handle in self._taken if other is not owner]
        return gone

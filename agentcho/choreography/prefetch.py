"""Prefills before anybody asks for them: requests that join a step in which others speak, and wake nobody.

A step that generates one token per speaker waits for the weights to stream. Tokens of known text ride along almost for
free, and later readers find them encoded. Does not know: what is known, engines.
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
    """Offers in the order in which they came, each with its owner, and the handles of those that were taken up."""

    def __init__(self) -> None:
        self._offers: deque[tuple[Any, Make]] = deque()
        self._taken: list[tuple[Any, Handle]] = []

    def offer(self, owner: Any, make: Make) -> None:
        """Add an offer. `make` is called when there is room, and returns the request, or None if it is not needed."""
        self._offers.append((owner, make))

    def take(self) -> list[Handle]:
        """Handles of what is still wanted, as long as few are under way; nobody waits for them. What cannot be asked
        for is dropped: whoever reads it asks again, and hears why."""
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
        """Drop an owner's offers; returns its handles that are under way."""
        self._offers = deque((other, make) for other, make in self._offers if other is not owner)
        gone = [handle for other, handle in self._taken if other is owner and not handle.done.is_set()]
        self._taken = [(other, handle) for other, handle in self._taken if other is not owner]
        return gone

"""What is known before anybody asks for it: requests that join a step in which others speak, and wake nobody.

A step that says one word for each speaker waits for the weights to stream; tokens that are known ride along almost for
nothing, and whoever reads them later finds them encoded. Does not know: what is known, engines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agentcho.choreography.ticket import Request, Ticket

Make = Callable[[], Request | None]
MOST = 8
"""Requests under way at a time: more would only wait, and every step looks at all that waits."""


class Ahead:
    """Offers in the order they came, each of an owner, and the tickets of those that were taken up."""

    def __init__(self) -> None:
        self._offers: deque[tuple[Any, Make]] = deque()
        self._taken: list[tuple[Any, Ticket]] = []

    def offer(self, owner: Any, make: Make) -> None:
        """`make` is called when there is room: it gives the request, or None where it is not needed any more."""
        self._offers.append((owner, make))

    def take(self) -> list[Ticket]:
        """Tickets of what is still wanted, as long as few are under way; nobody waits for them. What cannot be asked
        for is dropped: whoever reads it asks again, and hears why."""
        self._taken = [(owner, ticket) for owner, ticket in self._taken if not ticket.done.is_set()]
        new: list[tuple[Any, Ticket]] = []
        while self._offers and len(self._taken) + len(new) < MOST:
            owner, make = self._offers.popleft()
            with suppress(Exception):
                if (request := make()) is not None:
                    new.append((owner, Ticket(request._replace(turn=request.turn._replace(ahead=True)), None)))
        self._taken += new
        return [ticket for _, ticket in new]

    def forget(self, owner: Any) -> list[Ticket]:
        """Drop an owner's offers; returns its tickets that are under way."""
        self._offers = deque((other, make) for other, make in self._offers if other is not owner)
        gone = [ticket for other, ticket in self._taken if other is owner and not ticket.done.is_set()]
        self._taken = [(other, ticket) for other, ticket in self._taken if other is not owner]
        return gone

"""What is known before anybody asks for it: requests that join a step in which others speak, and wake nobody.

A step that says one word for each speaker waits for the weights to stream; tokens that are known ride along almost for
nothing, and whoever reads them later finds them encoded. Does not know: what is known, engines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentcho.ticket import Request, Ticket

Make = Callable[[], Request | None]


class Ahead:
    """Offers in the order they came, each of an owner, and the tickets of those that were taken up."""

    def __init__(self) -> None:
        self._offers: list[tuple[Any, Make]] = []
        self._taken: list[tuple[Any, Ticket]] = []

    def offer(self, owner: Any, make: Make) -> None:
        """`make` is called when there is room: it gives the request, or None where it is not needed any more."""
        self._offers.append((owner, make))

    def take(self) -> list[Ticket]:
        """Tickets of all that is still wanted; nobody waits for them."""
        self._taken = [(owner, ticket) for owner, ticket in self._taken if not ticket.done.is_set()]
        made = [(owner, request) for owner, make in self._offers if (request := make()) is not None]
        self._offers.clear()
        taken = [
            (owner, Ticket(request._replace(turn=request.turn._replace(ahead=True)), None)) for owner, request in made
        ]
        self._taken += taken
        return [ticket for _, ticket in taken]

    def forget(self, owner: Any) -> list[Ticket]:
        """Drop an owner's offers; returns its tickets that are under way."""
        self._offers = [(other, make) for other, make in self._offers if other is not owner]
        gone = [ticket for other, ticket in self._taken if other is owner and not ticket.done.is_set()]
        self._taken = [(other, ticket) for other, ticket in self._taken if other is not owner]
        return gone

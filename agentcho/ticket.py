"""Requests to the choreographer, and what becomes of one while it is under way.

Does not know: engines, who asks for what.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

import anyio

from agentcho.request import ANY_TURN, Call, Encoded, EncodingId, Receipt
from agentcho.request import Turn as EngineTurn
from agentcho.turns import Turn


class Made(NamedTuple):
    """One finished call: its id, held until `release`, its words and what it attended to."""

    id: EncodingId
    words: Encoded
    receipt: Receipt


class Result(NamedTuple):
    """A finished request: its calls in order; seconds from submission to the decode's first token (none: to the
    end) and to the end of all."""

    made: tuple[Made, ...]
    ttft: float
    seconds: float


class Request(NamedTuple):
    """Calls to submit as one list: what the message itself lacks, then the message, then its shadow, if any.

    `order` sorts what is submitted to one step, so that the order in which tasks happen to run does not show;
    `turn` says who goes first where not all of it fits. `exact` asks for the deterministic profile: bits that depend on
    nothing else that runs (None: as the choreographer was opened).
    `on_token` gets the visible text of the decode as it comes, `on_done` the result before the submitter
    wakes; both run on the event loop and must not raise.
    """

    calls: tuple[Call, ...]
    order: tuple[int | str, ...] = ()
    on_token: Callable[[str], None] | None = None
    on_done: Callable[[Result], None] | None = None
    turn: EngineTurn = ANY_TURN
    exact: bool | None = None


class Ticket:
    """A request under way."""

    def __init__(self, request: Request, turn: Turn | None) -> None:
        self.request, self.turn = request, turn
        self.done = anyio.Event()
        self.ids: tuple[EncodingId, ...] = ()
        self.made: dict[EncodingId, Made] = {}
        self.submitted = perf_counter()
        self.first: float | None = None
        self.result: Result | None = None
        self.error: Exception | None = None
        self.abandoned = False

    def finish(self, result: Result | None, error: Exception | None) -> None:
        """Wake the submitter; it counts as awake from now, unless it has gone its way already."""
        self.result, self.error = result, error
        if self.turn is not None and not self.abandoned:
            self.turn.wake()
        self.done.set()

"""Requests to the choreographer, and their state while they run.

One request holds a message and everything that it needs first, so that a step gets all of it. Independent of engines.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Literal, NamedTuple

import anyio

from agentcho.choreography.quiescence import TrackedTask
from agentcho.errors import RequestError
from agentcho.message import Words
from agentcho.protocol.call import (
    DEFAULT_PRIORITY,
    Call,
    DecodeStarted,
    EncodingId,
    Logprobs,
    Receipt,
    SampledToken,
    SchedulingPriority,
)
from agentcho.protocol.value_checks import checked_bool, checked_int, checked_list, type_name

Steps = tuple[int, int, int]
"""The numbers of three steps of an engine, from 1: the one that a request was submitted to, the one of its decode's
first token (the last step if there is no decode), and the last one so far."""


class FinishedCall(NamedTuple):
    """One finished call: its id, held until `release`, its words and what it attended to."""

    id: EncodingId
    words: Words
    receipt: Receipt


class RequestResult(NamedTuple):
    """A finished request.

    Attributes:
        made: Its calls, in order.
        ttft: Seconds from submission to the decode's first token, or to the end if there is none.
        seconds: Seconds from submission to the end of all calls.
        at: See `Handle`.
        steps: See `Handle`.
    """

    made: tuple[FinishedCall, ...]
    ttft: float
    seconds: float
    at: float = 0.0
    steps: Steps | None = None


class UnfinishedDecode(NamedTuple):
    """An unfinished decode, up to the last token that has left the engine.

    Attributes:
        own: Its words so far, with their receipt.
        made: The finished calls of its request, in order. None for each one that is not done.
        ended: Why it was given up. None if it goes on.
        ttft: As in `RequestResult`.
        seconds: Seconds so far.
        at: See `Handle`.
        steps: See `Handle`.
    """

    own: FinishedCall
    made: tuple[FinishedCall | None, ...]
    ended: Literal["cancelled", "failed"] | None
    ttft: float
    seconds: float
    at: float = 0.0
    steps: Steps | None = None


class DecodePiece(NamedTuple):
    """What a decode generated in a step.

    Attributes:
        token: The token. None for text alone that was held back before.
        text: The text.
        opening: The decode so far, with its first piece only.
        likely: See `SampledToken`.
        thought: See `SampledToken`.
    """

    token: int | None
    text: str
    opening: UnfinishedDecode | None = None
    likely: Logprobs = ()
    thought: bool | None = False


class Request(NamedTuple):
    """Calls to submit as one list: what the message needs first, then the message, then its shadow, if any.

    All functions run on the event loop. An error in one fails this request, and no other.

    Attributes:
        calls: The calls.
        order: Sorts the requests of one step, so that results do not depend on the order in which tasks happen to run.
        on_token: Called with the visible text of each piece, after `flush`.
        on_done: Called with the result before the submitter wakes.
        turn: Scheduling priority, for when not everything fits.
        exact: Whether to use the deterministic profile, in which bits depend on nothing else that runs. None means the
            setting of the choreographer.
        on_piece: Called with each token and each text of the decode, soon after their steps. It must wake no task.
        flush: Called once per step, after `on_piece` of all requests. It must wake no task.
        on_dropped: Called once if the request is given up after its first piece.
        on_thought: Called with the text of a thought, after `flush`.
    """

    calls: tuple[Call, ...]
    order: tuple[int | str, ...] = ()
    on_token: Callable[[str], None] | None = None
    on_done: Callable[[RequestResult], None] | None = None
    turn: SchedulingPriority = DEFAULT_PRIORITY
    exact: bool | None = None
    on_piece: Callable[[DecodePiece], None] | None = None
    flush: Callable[[], None] | None = None
    on_dropped: Callable[[UnfinishedDecode], None] | None = None
    on_thought: Callable[[str], None] | None = None


def checked_request(request: object) -> Request:
    """Return a request whose order can be compared with others'. The engine checks its calls.

    Raises `RequestError` if it is not a request, or one of its functions cannot be called.
    """
    if not isinstance(request, Request):
        raise RequestError(f"a request is {type_name(request)}; give a Request")
    order = tuple(
        str.__str__(part) if isinstance(part, str) else checked_int(part, "one of order")
        for part in checked_list(request.order, "order")
    )
    for what in ("on_token", "on_done", "on_piece", "flush", "on_dropped", "on_thought"):
        hear = getattr(request, what)
        if hear is not None and not callable(hear):
            raise RequestError(f"{what} is {type_name(hear)}; give a function, or None")
    if request.exact is not None:
        checked_bool(request.exact, "exact")
    return request._replace(order=order)


class Handle:
    """A running request.

    Attributes:
        made: Its finished calls.
        delivered: Number of these that were delivered. All results of a step are recorded before any is delivered.
        submitted: When it was submitted, by `perf_counter`, in seconds.
        entered: Number of the step that it was submitted to.
        spoke: Number of the step of its first token.
    """

    def __init__(self, request: Request, task: TrackedTask | None) -> None:
        self.request, self.task = request, task
        self.place = tuple((isinstance(part, str), part) for part in request.order)
        self.done = anyio.Event()
        self.ids: tuple[EncodingId, ...] = ()
        self.made: dict[EncodingId, FinishedCall] = {}
        self.delivered = 0
        self.submitted = perf_counter()
        self.first: float | None = None
        self.entered = self.spoke = self.heard = 0
        self.result: RequestResult | None = None
        self.error: Exception | None = None
        self.abandoned = False
        self._begun: DecodeStarted | None = None
        self._said: list[int] = []
        self._text = self._thought = ""

    def take_in(self, spoken: SampledToken, begun: DecodeStarted | None, step: int = 0) -> None:
        """Record the token that the decode sampled in a step, and pass it on. `made` already has the calls that
        finished in this step."""
        self.first = self.first or perf_counter()
        self.spoke = self.spoke or step
        self.heard = step
        self._begun = self._begun or begun
        token = spoken.token if spoken.nth >= len(self._said) else None
        if self.request.on_piece is not None:
            opening = None if begun is None else self._so_far(None)
            self.request.on_piece(
                DecodePiece(
                    token=token, text=spoken.text, opening=opening, likely=spoken.likely, thought=spoken.thought
                )
            )
        self._said += () if token is None else (token,)
        self._text += "" if spoken.thought else spoken.text
        self._thought += spoken.text if spoken.thought else ""

    def drop(self, ended: Literal["cancelled", "failed"]) -> None:
        """Give the request up, and pass on the words so far, if there are any."""
        if self._said and self._begun is not None and self.result is None and self.request.on_dropped is not None:
            self.request.on_dropped(self._so_far(ended))
            self._said.clear()

    def _so_far(self, ended: Literal["cancelled", "failed"] | None) -> UnfinishedDecode:
        assert self._begun is not None
        id, words, receipt = self._begun
        tokens, start = (*words.tokens, *self._said), len(words.tokens)
        so_far = words._replace(
            text=self._thought or self._text,
            tokens=tokens,
            content=(words.content[0], len(tokens)),
            sampled=(start, len(tokens)),
            canonical=not self._said,
        )
        now, first = perf_counter(), self.first or perf_counter()
        before = tuple(self.made.get(call) for call in self.ids)
        waited = first - self.submitted
        took = now - self.submitted
        steps = (self.entered, self.spoke, self.heard)
        own = FinishedCall(id, so_far, receipt)
        return UnfinishedDecode(
            own=own, made=before, ended=ended, ttft=waited, seconds=took, at=self.submitted, steps=steps
        )

    def finish(self, result: RequestResult | None, error: Exception | None) -> None:
        """Wake the submitter. Its task counts as awake from now, unless it no longer waits."""
        self.result, self.error = result, error
        if self.task is not None and not self.abandoned:
            self.task.wake()
        self.done.set()

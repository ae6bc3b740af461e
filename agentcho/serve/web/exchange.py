"""One request and its answer over ASGI: reads the body in limited size, sends the answer whole or as events, and stops
as soon as the client has disconnected.

Independent of permissions and of the content of answers.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from agentcho.serve.api_errors import ApiError, api_error
from agentcho.serve.config import ServeLimits
from agentcho.serve.request import AnswerDelta, Answers, Hear

T = TypeVar("T")
EVENTS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}
"""Headers of a stream. The last one tells proxies to pass on each event at once."""
JSON = "application/json"
TWO_LENGTHS = "two_lengths"
"""The error code for a body whose end is ambiguous."""
GONE = 499
"""The status of a request whose client has closed its connection, so that nobody can be answered."""


class Events(Protocol):
    """Writes the events of a stream in the form of the requested API."""

    def begin(self) -> list[bytes]:
        """The events before the first text."""

    def delta(self, delta: AnswerDelta) -> list[bytes]:
        """The events for new text."""

    def end(self, answers: Answers) -> list[bytes]:
        """The events after the last text."""

    def fault(self, error: ApiError) -> bytes:
        """The event for an error in the middle of a stream, which ends it."""


class Channel(NamedTuple):
    """The two ASGI functions of a request, with which it is received and answered."""

    receive: Receive
    send: Send

    async def body(self, scope: Scope, limits: ServeLimits, hold: Callable[[int], None]) -> bytes:
        """Read the whole body. `hold` is called with the number of bytes of each piece. `ApiError` 413: it is too long,
        or its declared length is; 408: it takes too long to arrive; 400: it is compressed; `GONE`: the client has
        disconnected."""
        headers = Headers(scope=scope)
        if headers.get("content-encoding", "identity") != "identity":
            raise ApiError(400, "this server does not read bodies with a content-encoding; send the body uncompressed")
        said = headers.get("content-length", "")
        if said.isascii() and said.isdecimal() and int(said[:20]) > limits.body_bytes:
            raise _too_long(limits)
        try:
            with anyio.fail_after(limits.body_seconds):
                return await self._read(limits, hold)
        except TimeoutError:
            raise ApiError(408, f"the body did not arrive within {limits.body_seconds:g} s", code="timeout") from None

    async def _read(self, limits: ServeLimits, hold: Callable[[int], None]) -> bytes:
        read = bytearray()
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise _gone()
            came = message.get("body", b"")
            hold(len(came))
            read += came
            if len(read) > limits.body_bytes:
                raise _too_long(limits)
            if not message.get("more_body", False):
                return bytes(read)

    async def attended(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work while the client is connected. `ApiError` `GONE`: it disconnected, and the work was cancelled."""
        done, failed = list[T](), list[Exception]()
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, group.cancel_scope)
            try:
                done.append(await work())
            except Exception as error:  # raised below as it is, not in an exception group
                failed.append(error)
            group.cancel_scope.cancel()
        if failed:
            raise failed[0]
        if not done:
            raise _gone()
        return done[0]

    async def _watch(self, scope: anyio.CancelScope) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def reply(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        """Send a complete response."""
        await self.send(started(status, {**headers, "content-length": str(len(content))}))
        await self.send({"type": "http.response.body", "body": content})

    async def reply_json(self, status: int, content: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send JSON."""
        await self.reply(status, as_json(content).encode(errors="replace"), {"content-type": JSON, **(headers or {})})

    async def refuse(self, error: ApiError) -> None:
        """Send an error."""
        headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
        if error.status == 401:
            headers["www-authenticate"] = "Bearer"
        if error.status == 408 or error.code == TWO_LENGTHS:
            headers["connection"] = "close"
        await self.reply_json(error.status, error.to_json(), headers)

    async def stream(self, answer: Callable[[Hear], Awaitable[Answers]], events: Events) -> Answers:
        """Send text as it is generated; nothing is sent before the first text. An exception of `answer` is raised here
        too; if text was sent before, an event that reports the error and ends the stream is sent first."""
        said, heard = anyio.create_memory_object_stream[AnswerDelta](inf)
        ended, failed = list[Answers](), list[Exception]()

        async def run() -> None:
            with said:
                try:
                    ended.append(await answer(said.send_nowait))
                except Exception as error:
                    failed.append(error)

        async with anyio.create_task_group() as group, heard:
            group.start_soon(run)
            begun = await self._pass_on(heard, events)
        if failed and not begun:
            raise failed[0]
        last = [events.fault(api_error(failed[0]))] if failed else events.end(ended[0])
        if not begun:
            await self.send(started(200, EVENTS))
            last = [*events.begin(), *last]
        await self.send({"type": "http.response.body", "body": b"".join(last)})
        if failed:
            raise failed[0]
        return ended[0]

    async def _pass_on(self, heard: MemoryObjectReceiveStream[AnswerDelta], events: Events) -> bool:
        """Send events until there are no more deltas. Returns whether there were any."""
        begun = False
        async for first in heard:
            pieces = list[bytes]()
            if not begun:
                await self.send(started(200, EVENTS))
                begun, pieces = True, events.begin()
            for delta in (first, *_waiting(heard)):
                pieces += events.delta(delta)
            await self.send({"type": "http.response.body", "body": b"".join(pieces), "more_body": True})
        return begun


def _waiting(heard: MemoryObjectReceiveStream[AnswerDelta]) -> Sequence[AnswerDelta]:
    """The deltas that arrived while something else was being sent."""
    return [heard.receive_nowait() for _ in range(heard.statistics().current_buffer_used)]


def as_json(content: Any) -> str:
    """JSON in few characters."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def started(status: int, headers: Mapping[str, str]) -> Message:
    """The start of a response."""
    pairs = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": pairs}


def _too_long(limits: ServeLimits) -> ApiError:
    return ApiError(413, f"the body has more than {limits.body_bytes} bytes; send less", code="request_too_large")


def _gone() -> ApiError:
    return ApiError(GONE, "the client has gone")

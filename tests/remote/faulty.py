"""A scripted chat server with faults of all kinds, over a real socket, in the test's own event loop.

Independent of clients.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import anyio
from anyio.abc import SocketAttribute, SocketStream

from agentcho.config import ModelConfig
from agentcho.integrations.endpoints.client import Endpoint
from agentcho.integrations.endpoints.endpoint import open_endpoint
from agentcho.integrations.endpoints.faults import Backoff

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


class Request(NamedTuple):
    """A received request, with its headers in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


Answer = Callable[[SocketStream, Request], Awaitable[None]]


def head(status: int = 200, **headers: str) -> bytes:
    """The head of a response that ends when the connection closes."""
    lines = [f"HTTP/1.1 {status} Some", "connection: close", "content-type: text/event-stream"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def event(data: object) -> bytes:
    """One event of a stream."""
    return f"data: {json.dumps(data)}\n\n".encode()


def piece(content: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    """An event with a piece of text, or with a finish reason."""
    delta = {} if content is None else {"content": content}
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish} | more]})


def told(usage: Mapping[str, Any] | None = USAGE) -> bytes:
    """The end of a stream, with its usage."""
    return (b"" if usage is None else event({"choices": [], "usage": usage})) + b"data: [DONE]\n\n"


def says(*pieces: str, finish: str = "stop", usage: Mapping[str, Any] | None = USAGE) -> Answer:
    """Answers with this text, piece by piece."""
    return sends(head(), *(piece(each) for each in pieces), piece(finish=finish), told(usage))


def refuses(status: int, body: object = None, **headers: str) -> Answer:
    """Answers with an error."""
    return sends(head(status, **headers), json.dumps(body).encode())


def sends(*parts: bytes) -> Answer:
    """Sends these bytes."""

    async def answer(stream: SocketStream, request: Request) -> None:
        for part in parts:
            await stream.send(part)

    return answer


def holds(*parts: bytes) -> Answer:
    """Sends these bytes, then nothing, forever."""

    async def answer(stream: SocketStream, request: Request) -> None:
        await sends(*parts)(stream, request)
        await anyio.sleep_forever()

    return answer


def repeats(first: bytes, part: bytes) -> Answer:
    """Sends `first`, then `part` again and again."""

    async def answer(stream: SocketStream, request: Request) -> None:
        await stream.send(first)
        while True:
            await stream.send(part)

    return answer


@dataclass
class Faulty:
    """A server that gives its answers in turn and repeats the last one. `requests` are those received, `most` is the
    largest number at a time, and `gone` is set when a client leaves during an answer."""

    answers: list[Answer]
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    gone: anyio.Event = field(default_factory=anyio.Event)
    now: int = 0
    most: int = 0

    def config(self, **more: Any) -> ModelConfig:
        """The configuration of a client."""
        url = f"http://127.0.0.1:{self.port}/v1"
        return ModelConfig.model_validate({"model": "openai:m", "base_url": url, "timeout": 5.0} | more)

    @asynccontextmanager
    async def asked(self, fresh: bool = False, **more: Any) -> AsyncIterator[Endpoint]:
        """A client with very short retry delays. `fresh`: it is not known yet whether the server leaves thoughts in its
        answers."""
        port = open_endpoint(self.config(**more), "far")
        assert isinstance(port, Endpoint)
        port.backoff = Backoff(0.001, 0.002)
        port.habit.inside = None if fresh else False
        try:
            yield port
        finally:
            await port.aclose()

    async def serve(self, stream: SocketStream) -> None:
        """Serves one connection with one request."""
        async with stream:
            request = await _request(stream)
            answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
            self.requests.append(request)
            self.now, self.most = self.now + 1, max(self.most, self.now + 1)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._watch, stream, group.cancel_scope)
                    await answer(stream, request)
                    group.cancel_scope.cancel()
            except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
                self.gone.set()
            finally:
                self.now -= 1

    async def _watch(self, stream: SocketStream, scope: anyio.CancelScope) -> None:
        try:
            await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            self.gone.set()
            scope.cancel()


@asynccontextmanager
async def faulty(*answers: Answer) -> AsyncIterator[Faulty]:
    """A server with these answers that runs until the context ends."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        server = Faulty(list(answers), listener.extra(SocketAttribute.local_port))
        group.start_soon(listener.serve, server.serve)
        yield server
        group.cancel_scope.cancel()


async def _request(stream: SocketStream) -> Request:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    first, _, rest = data.partition(b"\r\n\r\n")
    line, *lines = first.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
    while len(rest) < int(headers["content-length"]):
        rest += await stream.receive()
    return Request(line.split()[1], headers, json.loads(rest))

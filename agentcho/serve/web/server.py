"""Sockets: where the server listens, how long a connection may be silent, and how the server ends.

uvicorn's HTTP/1.1 protocol with additional deadlines: for the header, for a body that is no longer being read, and for
a client that does not read its answer. Independent of the content of requests.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from email.utils import formatdate
from functools import partial
from ipaddress import ip_address
from types import FrameType
from typing import Any, Literal

import anyio
import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from agentcho.engine.core import EngineCore
from agentcho.errors import ConfigError
from agentcho.serve.api_errors import ApiError
from agentcho.serve.config import ServeLimits
from agentcho.serve.sharing.served import ServedModel
from agentcho.serve.web.app import Site, application
from agentcho.serve.web.exchange import JSON
from agentcho.serve.web.metrics import Metrics

LOG = logging.getLogger("agentcho.serve")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
UNSENT = 1 << 16
"""Bytes that the system buffers for a client that does not read, before its deadline begins."""
TICK = 0.02
IDLE = 30.0
"""Seconds between checks for idle societies."""
Owed = Literal["header", "body"] | None
"""What a client has begun to send and not finished, while no request handler is waiting for it."""


class GuardedProtocol(H11Protocol):
    """One connection, which is closed if its client takes too long."""

    def __init__(self, *args: Any, limits: ServeLimits, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits, self._born = limits, self.loop.time()
        self._owed: Owed = None
        self._late: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether none of its requests is being answered, and its last answer was sent whole."""
        over = self.cycle is None or self.cycle.response_complete
        return over and not self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Open the connection. If there are too many, the oldest idle one is closed."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # notices a client that does not read at the first unsent byte
        there = [each for each in self.connections if not each.transport.is_closing()]
        if len(there) > self._limits.connections:
            silent = [each for each in there if isinstance(each, GuardedProtocol) and each.idle]
            min(silent, key=lambda each: each._born).transport.abort()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the connection."""
        for timer in (self._late, self._stuck):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received data."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """An answer was sent. The next request may already be there."""
        super().on_response_complete()
        self._watch()

    def _owes(self) -> Owed:
        theirs = self.conn.their_state
        if theirs is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            return "header"
        return "body" if theirs is h11.SEND_BODY and self.idle else None

    def _watch(self) -> None:
        """Start a deadline if the client owes something else than before. Sending more does not postpone a deadline."""
        owed = self._owes()
        if owed == self._owed:
            return
        if self._late is not None:
            self._late.cancel()
        self._owed, self._late = owed, None
        if owed is not None:
            seconds = self._limits.header_seconds if owed == "header" else self._limits.body_seconds
            self._late = self.loop.call_later(seconds, self._end_late)

    def _end_late(self) -> None:
        if self.transport.is_closing():
            return
        if self._owed == "header" and self.conn.trailing_data[0]:
            self._refuse(
                ApiError(408, f"the header did not come within {self._limits.header_seconds:g} s", code="timeout")
            )
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP, in the shape of all errors."""
        self._refuse(ApiError(400, "this is no HTTP/1.1 request, or its header is too long"))

    def _refuse(self, error: ApiError) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        body = json.dumps(error.to_json()).encode()
        headers = [
            ("content-type", JSON),
            ("content-length", str(len(body))),
            ("connection", "close"),
            ("date", date()),
        ]
        for event in (h11.Response(status_code=error.status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def pause_writing(self) -> None:
        """Not everything was sent. From now on the client has a limited time to read it."""
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(self._limits.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Everything was sent."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None


def date() -> str:
    """The current time as HTTP writes it."""
    return formatdate(usegmt=True)


def dated(app: ASGIApp) -> ASGIApp:
    """The application, with a Date header in each response. uvicorn's own is set by a loop that does not run here."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"date", date().encode())]}
            await send(message)

        await app(scope, receive, sent)

    return answer


class Server:
    """Answers requests on a socket until it is told to end."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._site = site
        self._state = ServerState()
        self._cut = anyio.Event()
        self._config = uvicorn.Config(
            dated(app),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.CRITICAL + 1,  # uvicorn would log requests, and errors with what they quote
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )
        self._config.load()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._state.connections)

    async def serve(self, listening: socket.socket, ready: Callable[[str], None]) -> bool:
        """Listen until `end` is called. `ready` is called with the address when requests can come. Returns whether all
        requests were answered. `ConfigError`: the address is in use."""
        make = partial(
            GuardedProtocol, config=self._config, server_state=self._state, app_state={}, limits=self._site.limits
        )
        try:
            door = await asyncio.get_running_loop().create_server(make, sock=listening, backlog=1024)
        except OSError as error:
            raise ConfigError(f"{address(listening)}: {error.strerror}") from None
        try:
            ready(address(listening))
            async with anyio.create_task_group() as group:
                group.start_soon(self._end_idle)
                group.start_soon(self._drained)
                await self._cut.wait()
                group.cancel_scope.cancel()
            return self._site.admission.drained.is_set()
        finally:
            door.close()
            with anyio.CancelScope(shield=True):
                await self._close()

    def end(self) -> None:
        """On the first call, accept no more requests and stop when the running ones have ended. On the second, stop
        now."""
        if self._site.admission.draining:
            self._cut.set()
        else:
            LOG.info("draining: %d requests are under way", self._site.admission.running)
            self._site.admission.drain()

    async def _drained(self) -> None:
        await self._site.admission.drained.wait()
        self._cut.set()

    async def _end_idle(self) -> None:
        while True:
            await anyio.sleep(IDLE)
            for model in self._site.models.values():
                model.end_idle()

    async def _close(self) -> None:
        """Let connections send what is left if all requests have ended, and cancel everything else."""
        whole = self._site.admission.drained.is_set()
        for connection in list(self._state.connections):
            connection.shutdown()
        with anyio.move_on_after(self._site.limits.send_seconds if whole else 0):
            while self._state.connections or self._state.tasks:
                await anyio.sleep(TICK)
        for task in list(self._state.tasks):
            task.cancel()
        for connection in list(self._state.connections):
            connection.transport.abort()
        while self._state.tasks or self._state.connections:
            await anyio.sleep(TICK)


@contextmanager
def hearing(end: Callable[[], None]) -> Iterator[None]:
    """A context in which Ctrl-C and SIGTERM call `end` on the event loop. No-op outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def heard(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(end)

    before = {number: signal.signal(number, heard) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def serve(
    site: Site, served: Iterable[ServedModel], listening: socket.socket, ready: Callable[[str], None]
) -> bool:
    """Serve models until a signal ends it. Returns whether all requests were answered."""
    server = Server(application(site), site)
    async with AsyncExitStack() as stack:
        for model in served:
            await stack.enter_async_context(model.serving())
            _count(site.metrics, model)
        with hearing(server.end):
            return await server.serve(listening, ready)


def _count(metrics: Metrics, model: ServedModel) -> None:
    """Add metrics for the running answers of a model and the used share of its store. They are read when they are
    requested, not at the last step, because what is dropped after it leaves the store without a step."""
    choreographer = model.choreographer
    metrics.watch_fed(model.name, lambda: choreographer.encoded)
    if isinstance(engine := model.engine, EngineCore):
        metrics.watch_model(model.name, partial(_rows, engine), partial(_held, engine))


def _rows(engine: EngineCore) -> int:
    return engine.rows


def _held(engine: EngineCore) -> float:
    return (engine.store.used + engine.store.reserved) / engine.store.limit


def bound(host: str, port: int, keys: bool) -> socket.socket:
    """A socket bound to this address, not listening yet. `ConfigError`: the host is unknown, the address is in use, or
    it is not a loopback address and there are no keys."""
    try:
        family, kind, proto, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(f"host {host!r}: {error.strerror}; give an address of this machine") from None
    if not keys and not ip_address(str(where[0]).partition("%")[0]).is_loopback:
        raise ConfigError(
            f"host {host}: anyone who can reach this address could send requests; give --keys FILE, as "
            "written by `agentcho key`, or listen on 127.0.0.1"
        )
    made = socket.socket(family, kind, proto)
    try:
        if os.name == "posix":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT)
        made.bind(where)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; give another --port, or 0 for any free one"
        ) from None
    return made


def address(listening: socket.socket) -> str:
    """The URL of a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if listening.family == socket.AF_INET6 else f"http://{host}:{port}"

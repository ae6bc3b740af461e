"""A server on a real socket, in the test's own event loop, in front of a scripted model."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

import anyio
import httpx

from agentcho.serve.api_errors import ApiError
from agentcho.serve.config import ServeLimits
from agentcho.serve.request import Answer, AnswerDelta, Answers, Caller, ChatRequest, Hear, ServedMode, TokenUsage
from agentcho.serve.web.app import Model, Site, application
from agentcho.serve.web.keys import ApiKey, ApiKeys
from agentcho.serve.web.server import Server, bound
from agentcho.testing import FakeEngine

CHAT = "/v1/chat/completions"
ASKED = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
LATE = 10.0


class Scripted:
    """A model that says `words`. While `held` is an event, answers stop half-way until it is set. `fault` is raised in
    place of the first word or, if `late`, after it. `asked` lists callers and requests; `cancelled` counts answers that
    were cancelled; `societies` are those that exist. None of them can end while it is `busy`."""

    def __init__(self, words: str = "good day to you", name: str = "m") -> None:
        self.name, self.words = name, words
        self.mode: ServedMode = "enforce"
        self.frames = FakeEngine()
        self.held: anyio.Event | None = None
        self.fault: Exception | None = None
        self.late = self.busy = False
        self.asked: list[tuple[Caller, ChatRequest]] = []
        self.cancelled = 0
        self.begun = anyio.Event()
        self.societies: dict[tuple[str, str | None], str] = {}

    def serving(self) -> AbstractAsyncContextManager[object]:
        return nullcontext(self)

    def without_effect(self, caller: Caller, request: ChatRequest) -> list[str]:
        return []

    async def answer(self, caller: Caller, request: ChatRequest, hear: Hear) -> Answers:
        self.asked.append((caller, request))
        try:
            return await self._answer(request, hear)
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise

    async def _answer(self, request: ChatRequest, hear: Hear) -> Answers:
        if self.fault is not None and not self.late:
            raise self.fault
        for index, word in enumerate(self.words.split()):
            hear(AnswerDelta(0, f"{word} "))
            if not index:
                self.begun.set()
                if self.held is not None:
                    await self.held.wait()
                if self.fault is not None:
                    raise self.fault
        answer = Answer(request.ids[0], f"{self.words} ", "stop")
        return Answers((answer,), TokenUsage(10, len(self.words.split()), 4, 3))

    def society_info(self, caller: Caller) -> dict[str, Any] | None:
        mode = self.societies.get((caller.tenant, caller.society))
        return None if mode is None else {"society": caller.society, "mode": mode}

    def check_idle(self, caller: Caller) -> None:
        if self.busy:
            raise ApiError(409, "this society has requests under way")

    def end_society(self, caller: Caller) -> bool:
        self.check_idle(caller)
        return self.societies.pop((caller.tenant, caller.society), None) is not None

    def end_idle(self) -> None:
        """Nothing to end."""


class Door:
    """A running server: `client` sends requests to it; `server` and `site` are its parts."""

    def __init__(self, client: httpx.AsyncClient, server: Server, site: Site, port: int) -> None:
        self.client, self.server, self.site, self.port = client, server, site, port

    async def ask(self, path: str = CHAT, key: str | None = None, **fields: Any) -> httpx.Response:
        """Sends one request without streaming."""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return await self.client.post(path, json=ASKED | fields, headers=headers)

    async def error(self, status: int, answer: httpx.Response) -> dict[str, Any]:
        """Checks the status and the format of an error response, and returns the error."""
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-request-id"]
        error: dict[str, Any] = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return error

    def raw(self, content: bytes = b"") -> socket.socket:
        """A connection that sends these bytes and nothing more."""
        made = socket.create_connection(("127.0.0.1", self.port), timeout=LATE)
        made.sendall(content)
        return made


@asynccontextmanager
async def opened(
    *served: Model, keys: Iterable[ApiKey] = (), late: float = LATE, origins: Sequence[str] = (), **limits: Any
) -> AsyncIterator[Door]:
    """Serves these models while the context lasts, for at most `late` seconds. Checks that nothing is left over."""
    site = Site(served, ApiKeys(keys), ServeLimits(**limits), origins)
    server, address = Server(application(site), site), list[str]()
    listening = bound("127.0.0.1", 0, False)
    ready = anyio.Event()
    async with anyio.create_task_group() as group:

        def begin(url: str) -> None:
            address.append(url)
            ready.set()

        group.start_soon(server.serve, listening, begin)
        await ready.wait()
        async with httpx.AsyncClient(base_url=address[0], timeout=LATE, trust_env=False) as client:
            try:
                with anyio.fail_after(late):
                    yield Door(client, server, site, int(address[0].rpartition(":")[2]))
            finally:
                server.end()
                server.end()
    assert site.admission.running == 0
    assert not server.connections


def play(body: Callable[[], Awaitable[None]]) -> None:
    """Runs a coroutine function to completion."""
    anyio.run(body)

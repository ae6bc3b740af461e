"""A crowd of clients on plain sockets: those who read to the end, and those who do not.

Each act is a separate connection. The server is known only by its port.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

HOST = "127.0.0.1"
CHAT = "/v1/chat/completions"
HEAD = f"POST {CHAT} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\nconnection: close\r\n"
BIG = 10_000_001
DEEP = 2000
ABORT = struct.pack("ii", 1, 0)
"""SO_LINGER option that makes a close reset the connection at once."""
Act = Callable[["Crowd", int], Awaitable[str]]


@dataclass
class Crowd:
    """Clients of one server. They request `tokens` tokens of `model` each. `statuses` counts results by act; `healths`
    are the response times of /health in seconds; `held` are the sockets of clients that keep their connection open."""

    port: int
    model: str
    tokens: int = 16
    statuses: Counter[str] = field(default_factory=Counter)
    healths: list[float] = field(default_factory=list)
    held: list[asyncio.StreamWriter] = field(default_factory=list)

    async def go(self, acts: Sequence[str], at_once: int) -> None:
        """Performs all acts, `at_once` at a time, while polling /health. Held connections close at the end."""
        left, done = list(enumerate(acts)), asyncio.Event()

        async def client() -> None:
            while left:
                number, act = left.pop()
                self.statuses[f"{act}: {await ACTS[act](self, number)}"] += 1

        watching = asyncio.create_task(self._watch_health(done))
        try:
            await asyncio.gather(*(client() for _ in range(at_once)))
        finally:
            done.set()
            await watching
            for writer in self.held:
                writer.close()

    async def _watch_health(self, done: asyncio.Event) -> None:
        while not done.is_set():
            began = perf_counter()
            status, _ = await self.get("/health")
            assert status == 200
            self.healths.append(perf_counter() - began)
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), 0.02)

    async def get(self, path: str) -> tuple[int, bytes]:
        """Gets a page: its status and body."""
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            return int(head.split()[1]), body
        finally:
            writer.close()

    # -- acts --------------------------------------------------------------------------------------------

    def chat(self, number: int, **more: Any) -> bytes:
        """A chat request with one of three prompts."""
        said = [
            {"role": "system", "content": f"you are agent {number % 3}"},
            {"role": "user", "content": "go on " * 20},
        ]
        return json.dumps(
            {"model": self.model, "messages": said, "max_tokens": self.tokens, "seed": number} | more
        ).encode()

    async def post(self, body: bytes) -> str:
        """Sends a whole request and reads to the end. Returns the status and how a stream ended."""
        reader, writer = await self._sent(body)
        try:
            return outcome(await reader.read())
        except ConnectionError:
            return "cut"
        finally:
            writer.close()

    async def _sent(self, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        writer.write(f"{HEAD}content-length: {len(body)}\r\n\r\n".encode())
        writer.write(body)
        with suppress(ConnectionError):  # a client refused before it has sent everything may still read why
            await writer.drain()
        return reader, writer

    async def plain(self, number: int) -> str:
        """Waits for the whole answer."""
        return await self.post(self.chat(number))

    async def stream(self, number: int) -> str:
        """Reads a stream to its end."""
        return await self.post(self.chat(number, stream=True, stream_options={"include_usage": True}))

    async def society(self, number: int) -> str:
        """Sends a request as an agent of one of a few societies."""
        who = {"society": f"town-{number % 5}", "agent": f"agent-{number % 3}"}
        return await self.post(self.chat(number, agentcho=who))

    async def abort(self, number: int) -> str:
        """Disconnects in the middle of a stream, or of an answer without streaming."""
        reader, writer = await self._sent(self.chat(number, stream=number % 2 == 0, max_tokens=10 * self.tokens))
        if number % 2 == 0:
            with suppress(ConnectionError):
                await reader.read(1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        writer.transport.abort()
        return "left"

    async def slow(self, number: int) -> str:
        """Requests a long stream and reads none of it."""
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, (HOST, self.port))
        _, writer = await asyncio.open_connection(sock=raw, limit=1)
        body = self.chat(number, stream=True, max_tokens=100 * self.tokens, logprobs=True, top_logprobs=20)
        writer.write(f"{HEAD}content-length: {len(body)}\r\n\r\n".encode() + body)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        self.held.append(writer)
        return "held"

    async def half_open(self, number: int) -> str:
        """Sends part of the header, or of the body, and nothing more."""
        _, writer = await asyncio.open_connection(HOST, self.port)
        rest = "content-length: 1000\r\n\r\n{" if number % 2 else ""
        writer.write((HEAD + rest).encode())
        self.held.append(writer)
        return "held"

    async def big(self, number: int) -> str:
        """Sends ten megabytes of JSON."""
        return await self.post(b'{"messages": "' + b"x" * BIG + b'"}')

    async def deep(self, number: int) -> str:
        """Sends a schema that no grammar accepts, or JSON that no parser accepts."""
        if number % 2:
            return await self.post(b'{"messages": ' + b"[" * 100_000)
        schema: dict[str, Any] = {"type": "string"}
        for _ in range(DEEP // 20):
            schema = {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "deep", "schema": schema}}
        return await self.post(self.chat(number, response_format=form))


ACTS: dict[str, Act] = {
    name: getattr(Crowd, name) for name in ("plain", "stream", "society", "abort", "slow", "half_open", "big", "deep")
}
SHARES = {"plain": 25, "stream": 30, "society": 15, "abort": 20, "slow": 2, "half_open": 2, "big": 1, "deep": 5}


def mixed(count: int, seed: int = 1) -> list[str]:
    """`count` acts in the proportions of `SHARES`, at least one of each, in random order."""
    acts = [name for name, share in SHARES.items() for _ in range(max(1, count * share // 100))]
    acts += ["stream"] * (count - len(acts))
    random.Random(seed).shuffle(acts)
    return acts


def outcome(answer: bytes) -> str:
    """The status of an answer, and whether a stream was cut off."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head:
        return "cut"
    status = int(head.split()[1])
    if status in (429, 503):
        assert b"retry-after:" in head.lower(), "refused without saying until when"
    if status == 200 and b"text/event-stream" in head:
        return "200" if b"data: [DONE]" in body else "200, cut"
    if status >= 400:
        assert json.loads(body)["error"]["message"], "an error in another shape"
    return str(status)


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile of these values at `share`."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]

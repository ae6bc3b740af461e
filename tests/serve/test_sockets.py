"""Malformed and slow clients: half a request, no reading, many connections."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from anyio import to_thread

from agentcho.errors import ConfigError
from agentcho.serve.web.server import GuardedProtocol, bound
from tests.serve.door import ASKED, CHAT, Door, Scripted, opened, play

LONG = "word " * 40_000


def told(connection: socket.socket) -> bytes:
    """All bytes that arrive until the server closes the connection."""
    parts = list[bytes]()
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        parts.append(b"(reset)")
    return b"".join(parts)


async def heard(connection: socket.socket) -> bytes:
    """The same, in a thread: the server runs on this one."""
    return await to_thread.run_sync(told, connection)


def head(length: int, more: str = "") -> bytes:
    return f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{more}\r\n".encode()


def refused(answer: bytes) -> tuple[int, str]:
    """The status and the message of an error response."""
    first, _, rest = answer.partition(b"\r\n")
    return int(first.split()[1]), json.loads(rest.partition(b"\r\n\r\n")[2])["error"]["message"]


async def is_well(door: Door) -> None:
    assert (await door.client.get("/health")).status_code == 200
    assert (await door.ask()).status_code == 200


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nhost: loc", head(100), head(100) + b'{"model"'])
def test_who_sends_half_of_a_request_is_told_so_and_nobody_else_notices(sent: bytes) -> None:
    async def body() -> None:
        async with opened(Scripted(), header_seconds=0.2, body_seconds=0.2) as door:
            with door.raw(sent) as half:
                await is_well(door)
                answer = await heard(half)
                assert not answer if not sent else refused(answer)[0] == 408
            await is_well(door)

    play(body)


def test_a_header_that_comes_letter_by_letter_has_no_more_time() -> None:
    async def body() -> None:
        async with opened(Scripted(), header_seconds=0.3) as door:
            with door.raw(b"GET /health HTTP/1.1\r\n") as slow:
                with anyio.move_on_after(0.2):
                    while True:
                        slow.sendall(b"x")
                        await anyio.sleep(0.05)
                with anyio.fail_after(0.25):
                    assert refused(await heard(slow))[0] == 408

    play(body)


def test_the_second_request_of_a_connection_has_a_deadline_too() -> None:
    async def body() -> None:
        async with opened(Scripted(), header_seconds=0.2) as door:
            with door.raw(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\nGET /hea") as twice:
                answer = await heard(twice)
                assert answer.startswith(b"HTTP/1.1 200")
                assert b"HTTP/1.1 408" in answer

    play(body)


def test_what_is_no_http_is_refused_in_the_shape_of_all_errors() -> None:
    async def body() -> None:
        async with opened(Scripted()) as door:
            for wrong in (b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET / HTTP/1.1\r\na: " + b"b" * 100_000):
                with door.raw(wrong) as connection:
                    assert refused(await heard(connection))[0] == 400
            await is_well(door)

    play(body)


@pytest.mark.parametrize("path", [CHAT, "/none"])
def test_a_body_of_two_lengths_is_refused_and_nothing_behind_it_is_read(path: str) -> None:
    """Otherwise a proxy that goes by the other length would see one request where the server sees two."""
    hidden = b"0\r\n\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    sent = head(len(hidden), "transfer-encoding: chunked\r\n").replace(CHAT.encode(), path.encode()) + hidden

    async def body() -> None:
        async with opened(Scripted()) as door:
            with door.raw(sent) as connection:
                answer = await heard(connection)
                assert refused(answer)[0] == 400
                assert answer.count(b"HTTP/1.1") == 1
            await is_well(door)

    play(body)


def test_a_body_that_nobody_reads_any_more_ends_in_time() -> None:
    async def body() -> None:
        async with opened(Scripted(), body_bytes=1000, body_seconds=0.2) as door:
            with door.raw(head(2000) + b" " * 10) as connection:
                assert refused(await heard(connection))[0] == 413

    play(body)


def test_a_reader_that_does_not_read_is_cut_and_its_request_ends() -> None:
    async def body() -> None:
        model = Scripted(LONG)
        async with opened(model, send_seconds=0.2) as door:
            for stream in (True, False):
                content = json.dumps(ASKED | {"stream": stream}).encode()
                with socket.socket() as deaf:
                    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    deaf.connect(("127.0.0.1", door.port))
                    deaf.sendall(head(len(content)) + content)
                    with anyio.fail_after(5):
                        while door.site.admission.running or not model.asked or door.server.connections > 1:
                            await anyio.sleep(0.02)
                model.asked.clear()
                await is_well(door)

    play(body)


def test_of_too_many_connections_the_oldest_that_asks_for_nothing_makes_room() -> None:
    async def body() -> None:
        async with opened(Scripted(), connections=3) as door:
            with ExitStack() as stack:
                for _ in range(10):
                    stack.enter_context(door.raw())
                await is_well(door)
                assert door.server.connections <= 3

    play(body)


def test_every_response_says_when_it_was_sent() -> None:
    async def body() -> None:
        async with opened(Scripted()) as door:
            stream = await door.ask(stream=True)
            for answer in (await door.ask(), stream, await door.client.get("/health"), await door.client.get("/none")):
                [date] = answer.headers.get_list("date")
                age = datetime.now(UTC) - parsedate_to_datetime(date)
                assert abs(age) < timedelta(minutes=1)
            with door.raw(b"nonsense\r\n\r\n") as connection:
                assert (await heard(connection)).lower().count(b"\r\ndate: ") == 1

    play(body)


def test_a_server_that_ends_lets_streams_end_and_takes_no_more() -> None:
    async def body() -> None:
        model = Scripted()
        model.held = anyio.Event()
        async with opened(model) as door:
            async with door.client.stream("POST", CHAT, json=ASKED | {"stream": True}) as stream:
                await model.begun.wait()
                door.server.end()
                answer = await door.ask()
                assert (await door.error(503, answer))["code"] == "shutting_down"
                assert answer.headers["retry-after"] == "5"
                health = await door.client.get("/health")
                assert (health.status_code, health.json()) == (503, {"status": "draining"})
                assert health.headers["retry-after"] == "5"
                model.held.set()
                assert [line async for line in stream.aiter_lines() if line][-1] == "data: [DONE]"
            while door.server.connections:
                await anyio.sleep(0.01)
            assert model.cancelled == 0

    play(body)


def test_told_twice_a_server_ends_at_once() -> None:
    async def body() -> None:
        model = Scripted()
        model.held = anyio.Event()
        async with opened(model) as door:
            content = json.dumps(ASKED | {"stream": True}).encode()
            with door.raw(head(len(content)) + content) as connection:
                await model.begun.wait()
                door.server.end()
                door.server.end()
                answer = await heard(connection)
                assert b"good" in answer
                assert not answer.endswith(b"0\r\n\r\n"), "a stream that was cut must not look whole"
            assert model.cancelled == 1

    play(body)


def test_societies_that_nobody_asks_end_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        model, looked = Scripted(), anyio.Event()
        monkeypatch.setattr("agentcho.serve.web.server.IDLE", 0.01)
        monkeypatch.setattr(model, "end_idle", looked.set)
        async with opened(model):
            await looked.wait()

    play(body)


def test_an_address_that_cannot_be_had_is_named() -> None:
    with bound("127.0.0.1", 0, False) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            bound("127.0.0.1", port, False)
    with pytest.raises(ConfigError, match="give an address of this machine"):
        bound("no.such.host.invalid", 0, False)
    with pytest.raises(ConfigError, match="agentcho key"):
        bound("0.0.0.0", 0, False)
    bound("0.0.0.0", 0, True).close()


@pytest.mark.parametrize("unsent", [0, 1])
def test_a_connection_is_idle_once_its_answer_is_sent_whole(unsent: int) -> None:
    connection = cast(Any, object.__new__(GuardedProtocol))
    connection.cycle = None
    connection.transport = SimpleNamespace(get_write_buffer_size=lambda: unsent)
    assert connection.idle is not bool(unsent)

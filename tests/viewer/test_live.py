"""The page while its run goes on: who may see it, and that it follows the record, to its end or to a kill."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx
import pytest

from agentcho.errors import ConfigError, RecordNotFound
from agentcho.records.record import RunRecord
from agentcho.viewer.live import LiveRecords, application, serve

from ..audit.browser import visited
from .pages import recorded
from .test_page import canaries

COMMAND = (sys.executable, "-c", "from agentcho.cli import main; main()", "view", "--serve")
WRITER = """
import signal, sys
from pathlib import Path
from agentcho import RunConfig
from agentcho.records.record import RunRecord
from tests.viewer.test_page import canaries
with RunRecord.create(Path(sys.argv[1]), "talk", {}, RunConfig(games=1), {"tokenizer": "t"}) as record:
    record.joined("bob", "agent")
    for entry in canaries().entries:
        record.said(entry)
        print("said", flush=True)
        sys.stdin.readline()
"""


def asked(source: LiveRecords, *paths: str, host: str = "127.0.0.1:80", method: str = "GET") -> list[httpx.Response]:
    """What its application answers, whose token is "token"."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(application(source, "token", 80))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:80") as client:
            return [await client.request(method, path, headers={"host": host}) for path in paths]

    return anyio.run(ask)


def test_only_who_has_the_whole_address_sees_it(tmp_path: Path) -> None:
    run = recorded(tmp_path, canaries().entries, bob="agent")
    source = LiveRecords(str(run.path), tmp_path)
    page, data = asked(source, "/token/", "/token/data")
    assert (page.status_code, data.status_code) == (200, 200)
    assert "canary" not in page.text
    assert "canary5" in data.text
    assert "connect-src 'self'" in page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    for answer in (page, data):
        assert (answer.headers["referrer-policy"], answer.headers["cache-control"]) == ("no-referrer", "no-store")
    others = asked(source, "/", "/data", "/tokem/", "/token/run.json", "/token/data/x", "/docs")
    assert {answer.status_code for answer in others} == {404}
    assert {answer.status_code for answer in asked(source, "/token/", "/token/data", method="POST")} == {405}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1:81", "127.0.0.1.evil.example:80", ""])
def test_a_name_of_another_site_that_points_here_is_refused(tmp_path: Path, host: str) -> None:
    source = LiveRecords(str(recorded(tmp_path, canaries().entries).path), tmp_path)
    (answer,) = asked(source, "/token/data", host=host)
    assert answer.status_code == 421
    assert "canary" not in answer.text


def test_it_tells_what_is_new_and_else_nothing(tmp_path: Path) -> None:
    run = recorded(tmp_path, canaries().entries[:2], over=False, bob="agent")
    source = LiveRecords(str(run.path), tmp_path)
    first = asked(source, "/token/data?game=0")[0].json()
    assert len(first["talk"]["messages"]) == 2
    assert first["head"]["status"] == "died"
    again, other, odd = asked(source, *(f"/token/data?version={first['version']}&game={n}" for n in ("0", "7", "x")))
    assert again.status_code == odd.status_code == 204
    assert other.json()["talk"] is None
    with RunRecord.go_on(run, {}) as record:
        record.said(canaries().entries[2])
        source._next = 0.0
        more = asked(source, f"/token/data?version={first['version']}")[0].json()
    assert len(more["talk"]["messages"]) == 3
    assert more["head"]["status"] == "running"
    (run.path / "transcript.jsonl").write_text("{}\n{}\n")
    assert asked(source, "/token/data")[0].status_code == 503


def test_it_serves_what_one_agent_may_read(tmp_path: Path) -> None:
    run = recorded(tmp_path, canaries().entries, alice="rolecanary", bob="forbobrole")
    page, data = asked(LiveRecords(str(run.path), tmp_path, "bob"), "/token/", "/token/data")
    assert "canary" not in page.text + data.text
    assert "forbob1" in data.text


def test_bad_input_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RecordNotFound):
        LiveRecords("last", tmp_path)
    source = LiveRecords(str(recorded(tmp_path, canaries().entries).path), tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port}: .*; give another --port, or 0"):
            serve(source, port, print)


@contextmanager
def served(*options: str) -> Iterator[str]:
    """The address of a server of its own process."""
    with subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield re.findall(r"http://\S+/", process.stdout.readline())[0]
        finally:
            process.terminate()


def told(address: str) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(f"{address}data").raise_for_status().json()
    return answer


@pytest.mark.server
def test_it_follows_a_run_that_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdout.readline()
        with served("last", "--out", str(tmp_path)) as address:
            assert urlsplit(address).hostname == "127.0.0.1"
            before = told(address)
            assert (len(before["talk"]["messages"]), before["head"]["status"]) == (1, "running")
            writer.stdin.write("\n")
            writer.stdin.flush()
            writer.stdout.readline()
            assert len(told(address)["talk"]["messages"]) == 2
            writer.kill()
            writer.wait()
            after = told(address)
            assert (len(after["talk"]["messages"]), after["head"]["status"]) == (2, "died")


@pytest.mark.browser
def test_a_browser_shows_it(tmp_path: Path) -> None:
    run = recorded(tmp_path, canaries().entries, over=False, bob="agent")
    with served(str(run.path)) as address:
        shown = visited(address, tmp_path, "--window-size=1280,2000")
    assert shown.console == []
    assert shown.told("rows") == shown.told("messages") == len(canaries().entries)
    assert 'class="status died"' in shown.dom

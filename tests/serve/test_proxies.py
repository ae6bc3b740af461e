"""The proxy configurations in the docs: all requests of a society reach the same server, however it is named."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest

from agentcho.lab.bench.servers import free_port

pytestmark = pytest.mark.server
PAGE = Path(__file__).parents[2] / "docs" / "many-machines.md"
SOCIETIES = [f"market-{n}" for n in range(24)]
STARTS = 20.0
"""Maximum number of seconds until a proxy listens."""


class _Answering(BaseHTTPRequestHandler):
    """Answers with the port of its server."""

    protocol_version, wbufsize = "HTTP/1.1", -1

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        said = json.dumps(self.connection.getsockname()[1]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None: ...


class _Server(ThreadingHTTPServer):
    """A server that ignores clients that disconnect."""

    def handle_error(self, request: Any, client_address: Any) -> None: ...


class Proxy(NamedTuple):
    """A running proxy, and the servers behind it."""

    port: int
    servers: tuple[int, int]

    def ask(self, path: str, method: str = "GET", **headers: str) -> int:
        """The server that a request reaches, or the status returned by the proxy itself."""
        line = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            line.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
            answer = line.getresponse()
            said = answer.read()
            return int(said) if answer.status == 200 else answer.status
        finally:
            line.close()


@pytest.fixture
def servers() -> Iterator[tuple[int, int]]:
    """The ports of two servers."""
    started = [_Server(("127.0.0.1", 0), _Answering) for _ in range(2)]
    threads = [Thread(target=each.serve_forever, kwargs={"poll_interval": 0.01}) for each in started]
    for thread in threads:
        thread.start()
    yield started[0].server_address[1], started[1].server_address[1]
    for server, thread in zip(started, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def configuration(begins: str, port: int, servers: tuple[int, int]) -> str:
    """The configuration block of the page that starts with this text, with other addresses."""
    (block,) = re.findall(rf"^```\w+\n({begins}.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    block = re.sub(r"listen 80;|bind :80\b", lambda found: f"{found[0].split()[0]} 127.0.0.1:{port}", block)
    block = block.replace(f"listen 127.0.0.1:{port}", f"listen 127.0.0.1:{port};")
    for n, server in enumerate(servers, 1):
        assert f"10.0.0.{n}:8000" in block
        block = block.replace(f"10.0.0.{n}:8000", f"127.0.0.1:{server}")
    return str(block)


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    """Runs a proxy until the context ends."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + STARTS
            while not _listens(port):
                assert process.poll() is None, process.stderr and process.stderr.read()
                assert time.monotonic() < until, f"{command[0]} does not listen"
            yield
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as line:
        line.settimeout(0.1)
        return line.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(params=["nginx", "haproxy"])
def proxy(request: pytest.FixtureRequest, servers: tuple[int, int], tmp_path: Path) -> Iterator[Proxy]:
    """Each of the proxies, configured as on the page."""
    program = shutil.which(request.param) or shutil.which(request.param, path="/usr/sbin")
    if program is None:
        pytest.skip(f"{request.param} is not installed")
    port, file = free_port(), tmp_path / "proxy.conf"
    if request.param == "nginx":
        places = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("client_body", "proxy", "fastcgi"))
        places += "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("uwsgi", "scgi"))
        told = f"daemon off; pid {tmp_path}/pid; error_log stderr; events {{}}\n"
        file.write_text(f"{told}http {{ access_log off; {places}\n{configuration('map', port, servers)}}}\n")
        command = [program, "-e", "stderr", "-c", str(file)]
    else:
        file.write_text(configuration("frontend", port, servers))
        command = [program, "-db", "-f", str(file)]
    with running(command, port):
        yield Proxy(port, servers)


def test_all_requests_of_a_society_reach_one_server(proxy: Proxy) -> None:
    for name in SOCIETIES:
        reached = {
            proxy.ask(f"/s/{name}"),
            proxy.ask(f"/s/{name}", "DELETE"),
            proxy.ask(f"/s/{name}/v1/chat/completions", "POST"),
            proxy.ask(f"/s/{name}/ann/v1/chat/completions", "POST", authorization="Bearer one"),
            proxy.ask(f"/s/{name}/ben/v1/responses?a=b", "POST", authorization="Bearer two"),
            proxy.ask(f"/s/%6D{name[1:]}/ben/v1/models"),
            proxy.ask("/v1/chat/completions", "POST", x_agentcho_society=name, authorization="Bearer one"),
        }
        assert len(reached) == 1, name
        assert reached <= set(proxy.servers)


def test_societies_and_keys_are_spread_over_the_servers(proxy: Proxy) -> None:
    assert {proxy.ask(f"/s/{name}") for name in SOCIETIES} == set(proxy.servers)
    by_key = [[proxy.ask("/v1/models", authorization=f"Bearer {name}-key") for _ in range(3)] for name in SOCIETIES]
    assert all(len(set(reached)) == 1 for reached in by_key)
    assert {reached[0] for reached in by_key} == set(proxy.servers)


def test_counts_of_one_server_are_not_for_callers(proxy: Proxy) -> None:
    assert proxy.ask("/metrics") == 404

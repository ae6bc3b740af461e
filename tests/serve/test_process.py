"""`agentcho serve` as a process: signals, files, and the requests in docs/serve.md verbatim."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.server
PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
COMMAND = (sys.executable, "-c", "from agentcho.cli import main; main()")
CHAT = "/v1/chat/completions"
ASKED = {"model": "understudy", "messages": [{"role": "user", "content": "Tell me all"}]}
LATE = 120.0


@contextmanager
def server(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """A server in this folder, and a client for it. The server is killed at the end if it still runs."""
    command = [*COMMAND, "serve", "--port", "0", *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.search(r"at (http://\S+)/v1", said)
            assert found is not None, said
            with httpx.Client(base_url=found[1], timeout=LATE, trust_env=False) as client:
                yield process, client
        finally:
            process.kill()


@contextmanager
def streamed(client: httpx.Client) -> Iterator[Iterator[str]]:
    """The lines of a long stream, after the first has arrived."""
    lasting = {"stream": True, "max_tokens": 200, "structured_outputs": {"json": {"type": "array", "minItems": 80}}}
    with client.stream("POST", CHAT, json=ASKED | lasting) as stream:
        assert stream.status_code == 200, stream.read()
        lines = stream.iter_lines()
        next(lines)
        yield lines


def test_the_requests_of_the_page_are_answered_and_what_is_kept_is_clean_and_its_owner_s(tmp_path: Path) -> None:
    asked = [shlex.split(line) for line in re.findall(r"^curl .*$", PAGE, re.MULTILINE)]
    assert len(asked) == 4
    with server(tmp_path) as (process, client):
        for words in asked:
            [url] = [word for word in words if word.startswith("http://127.0.0.1:8000/")]
            body = words[words.index("-d") + 1] if "-d" in words else None
            method = "DELETE" if "DELETE" in words else "GET" if body is None else "POST"
            answer = client.request(method, url.removeprefix("http://127.0.0.1:8000"), content=body)
            assert answer.status_code == 200, answer.text
        counts = client.get("/metrics").text
        assert 'agentcho_running_rows{model="understudy"} 0.0' in counts
        assert 'agentcho_store_share{model="understudy"} ' in counts
        with streamed(client) as lines:
            assert 'agentcho_running_rows{model="understudy"} 1.0' in client.get("/metrics").text
            process.send_signal(signal.SIGTERM)
            while (answer := client.post(CHAT, json=ASKED | {"max_tokens": 1})).status_code == 200:
                pass  # the signal is on its way
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert process.wait(LATE) == 0
    kept = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert kept
    assert {path.stat().st_mode & 0o077 for path in kept} == {0}
    audit = subprocess.run([*COMMAND, "audit", "last"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert audit.returncode == 0, audit.stdout
    assert audit.stdout.startswith("CLEAN")


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with server(tmp_path, "--record", "none") as (process, client):
        with streamed(client) as lines:
            process.send_signal(signal.SIGINT)
            while client.get("/health").json() == {"status": "ok"}:
                pass
            process.send_signal(signal.SIGINT)
            with pytest.raises(httpx.HTTPError):
                list(lines)
        assert process.wait(LATE) == 130
    assert not (tmp_path / "runs").exists()


def test_a_server_that_nobody_asks_ends_with_the_first_signal(tmp_path: Path) -> None:
    with server(tmp_path, "--model", "fake") as (process, client):
        assert client.get("/health").json() == {"status": "ok"}
        process.send_signal(signal.SIGINT)
        assert process.wait(LATE) == 0


def test_an_address_in_use_ends_it_before_a_model_is_loaded(tmp_path: Path) -> None:
    with server(tmp_path, "--model", "fake") as (_, client):
        words = [*COMMAND, "serve", "--model", "no/such-model", "--port", str(client.base_url.port)]
        second = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert second.returncode == 2
        assert "Address already in use" in second.stderr

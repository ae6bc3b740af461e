"""A user's own server: found by its URL, measured over the same workflows, or refused before any work."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentcho.cli import main
from agentcho.errors import ConfigError
from agentcho.lab.bench import servers
from agentcho.lab.bench.chats import Chat
from agentcho.lab.bench.client import ask
from agentcho.lab.bench.played import ArmUnavailable
from agentcho.lab.bench.remote import SERVER, reached
from agentcho.lab.bench.result import read_result
from agentcho.lab.bench.serving import ENFORCE, PLAIN

from ..remote.served import agentcho_served
from .local import answering

SMALL = ("--workflow", "multi-qa", "--scale", "0.05", "--repeats", "1", "--tokens", "4")


class Own(ThreadingHTTPServer):
    """A chat server under a path of its own, with configurable answers, which keeps its requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Owned)
        self.asked, self.headers = list[dict[str, Any]](), list[str | None]()
        self.listed, self.usage, self.status = ["mine"], True, 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/api/v1"


class _Owned(BaseHTTPRequestHandler):
    server: Own

    def do_GET(self) -> None:
        self.server.headers.append(self.headers["Authorization"])
        found = self.path == "/api/v1/models"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": name} for name in self.server.listed]} if found else {}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.headers.append(self.headers["Authorization"])
        self.server.asked.append(body)
        self.send_response(self.server.status if self.path == "/api/v1/chat/completions" else 404)
        self.end_headers()
        if self.server.status != 200:
            self.wfile.write(json.dumps({"error": {"message": f"no model {body['model']}"}}).encode())
            return
        for word in ("so", " it", " is"):
            self._send({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]})
        self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        if self.server.usage:
            self._send({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 3}})

    def _send(self, event: object) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def own() -> Iterator[Own]:
    server = Own()
    with answering(server):
        yield server


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", ["agentcho", "bench", "peers", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_a_server_is_measured_over_the_same_workflows(
    own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.json"
    assert run(monkeypatch, "--server", own.url, *SMALL, "--json", str(file)) == 0
    found, told = read_result(file), capsys.readouterr().out
    assert (found.bench, found.model, found.arms, found.dtype) == ("peers", "mine", (SERVER,), "as served")
    assert found.values("multi-qa", SERVER, "said") == (3.0 * (len(own.asked) - 1) / 3,)
    assert {body["model"] for body in own.asked} == {"mine"}
    assert {body["max_tokens"] for body in own.asked} == {1, 4}
    assert all(set(message) == {"role", "content"} for body in own.asked for message in body["messages"])
    assert re.search(r"^mine: multi-qa\n.*\n  server +\d+ ms ", told, re.MULTILINE)
    assert found.command.startswith("agentcho bench peers --server v1 ")


def test_pieces_are_counted_where_a_server_reports_nothing(own: Own) -> None:
    own.usage = False
    heard = ask(reached(own.url, None, None).endpoint, {"model": "mine", "messages": []})
    assert (heard.text, heard.usage) == ("so it is", {"completion_tokens": 3})


def test_a_key_goes_to_the_server_and_into_no_error(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_KEY", "secret-1")
    found = reached(own.url, None, "OWN_KEY")
    assert set(own.headers) == {"Bearer secret-1"}
    assert "secret" not in repr(found)
    own.status = 404
    with pytest.raises(ConfigError, match=r"model secret-1x of .*: HTTP 404: no model …x$") as error:
        reached(own.url, "secret-1x", "OWN_KEY")
    assert str(error.value)


def test_a_key_that_a_failing_server_quotes_is_in_no_result(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_KEY", "secret-1")
    found = reached(own.url, "secret-1x", "OWN_KEY")
    own.status = 429
    with pytest.raises(ArmUnavailable, match=r"^HTTP 429: no model …x$") as error:
        found.send(Chat(id="a", agent="bob", after=frozenset(), messages=(), quotes=()), "play", 4)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_bits_of_the_server_beside_are_refused(
    own: Own, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--server", own.url, "--model", "understudy", "--weights", "int8", *SMALL) == 2
    assert "--weights: cannot be combined with --server; leave it out" in " ".join(capsys.readouterr().err.split())
    assert own.asked == []


def test_our_server_runs_where_its_peer_runs() -> None:
    for command in (servers.ours("m", "float32", 1), servers.peer("m", "float32", 1, Path("python"))):
        assert command[command.index("--device") + 1] == "cpu"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("localhost:8000", "is not the URL of a server; give one such as http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1?key=1", "has a user, a password, a query or a fragment"),
        ("https://models.example/v1", "models.example needs a key; give the environment variable"),
    ],
)
def test_what_is_no_server_is_refused(
    url: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--server", url, *SMALL) != 0
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_server_that_is_not_there_or_has_no_model_is_refused_before_work(
    own: Own, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = f"http://127.0.0.1:{servers.free_port()}"
    assert run(monkeypatch, "--server", nobody, *SMALL) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert f"the server at {nobody}/v1 does not report its model" in said
    assert "start it, or name a model with --server-model" in said
    own.listed = []
    with pytest.raises(ConfigError, match="lists no model"):
        reached(own.url, None, None)
    own.status = 400
    with pytest.raises(ConfigError, match=r"model other of the server at .* does not answer: HTTP 400: no model other"):
        reached(own.url, "other", None)
    assert [body["model"] for body in own.asked] == ["other"]


@pytest.mark.server
@pytest.mark.slow
def test_a_real_server_is_measured_beside_one_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "both.json"
    with agentcho_served() as there:
        words = ("--server", str(there.base_url), "--model", "understudy", *SMALL, "--json", str(file))
        assert run(monkeypatch, *words) == 0
    found = read_result(file)
    assert set(found.arms) == {PLAIN, ENFORCE, SERVER}
    assert all(found.has("multi-qa", arm) for arm in found.arms)
    assert found.values("multi-qa", SERVER, "prompt") == found.values("multi-qa", PLAIN, "prompt")

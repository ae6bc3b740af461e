"""Probes over real sockets: our server, a leaky build of it, and a stub that answers in ways that real servers do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import anyio
import jsonschema
import pytest

from agentcho import RunConfig
from agentcho.errors import AgentchoError, ConfigError
from agentcho.lab.probe import Plan, ProbeReport, endpoint, judged, measure
from agentcho.lab.probe.endpoint import Bounds, Endpoint, Identity, ServerRefused, ServerSlow, checked_url
from agentcho.lab.probe.sarif import sarif
from agentcho.serve.sharing.served import Place, ServedModel, Serving
from agentcho.serve.sharing.stateless_prompts import StatelessPrompts
from agentcho.serve.web.keys import ApiKey
from agentcho.testing import FakeEngine
from tests.audit.sarif_schema import LOG
from tests.serve.door import opened, play

SECRETS = ("ak-first-secret", "ak-second-secret")
PLAN = Plan(("keys", "salts", "beyond"), trials=8, prompts=2, lengths=(16,))
ASKED = [{"role": "user", "content": "hello"}]


class Leaky(ServedModel):
    """A build in which all tenants, under all salts, share one tree of prompts."""

    def _plain(self, place: Place) -> StatelessPrompts:
        return super()._plain(("", "", ""))


def probed(kind: type[ServedModel]) -> ProbeReport:
    """Probes it with the keys of two tenants. Its engine computes nothing, so that only the counts can tell."""
    hashes = [sha256(secret.encode()).hexdigest() for secret in SECRETS]
    keys = [ApiKey(sha256=each, tenant=name) for each, name in zip(hashes, ("ann", "bob"), strict=True)]
    found: list[ProbeReport] = []

    def ask(url: str) -> None:
        with asked(url, SECRETS) as server:
            found.append(judged(server, measure(server, PLAN)))

    async def body() -> None:
        model = kind("fake", FakeEngine(), RunConfig(model="fake"), Serving())
        async with model.serving(), opened(model, keys=keys) as door:
            await anyio.to_thread.run_sync(ask, f"http://127.0.0.1:{door.port}/v1")

    play(body)
    return found[0]


@contextmanager
def asked(url: str, keys: tuple[str | None, ...] = (None,), model: str | None = None) -> Iterator[Endpoint]:
    server = Endpoint(url, keys, Bounds(1000, 60), model)
    try:
        yield server
    finally:
        server.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ServedModel, Leaky])
def test_the_counts_of_a_leaky_build_tell_on_it_and_those_of_ours_do_not(kind: type[ServedModel]) -> None:
    report = probed(kind)
    control, keys, salts, beyond = report.comparisons
    assert control.reported == beyond.trials == PLAN.trials
    assert beyond.reported == 0
    shared = kind is Leaky
    assert (keys.verdict == "shared", salts.verdict == "shared") == (shared, shared)
    assert {keys.reported, salts.reported} == ({PLAN.trials} if shared else {0})
    assert (report.exit_code == 1) == shared
    assert report.words.prompts == PLAN.prompts
    _check_formats(report)


def _check_formats(report: ProbeReport) -> None:
    """JSON round-trips, SARIF is valid against the standard, and neither contains a key."""
    assert ProbeReport.model_validate_json(report.model_dump_json()) == report
    text = sarif(report)
    log = json.loads(text)
    jsonschema.validate(log, LOG)
    [run] = log["runs"]
    fails = {result["ruleId"] for result in run["results"] if result["kind"] == "fail" and result["level"] == "error"}
    assert fails == ({"PROBE-KEYS", "PROBE-SALTS"} if report.exit_code == 1 else set())
    assert {result["level"] for result in run["results"] if result["kind"] != "fail"} <= {"none"}
    assert all("ks_p" in result["properties"] for result in run["results"][:-1])
    assert not any(secret in said for secret in SECRETS for said in (text, report.model_dump_json()))


class Stub(ThreadingHTTPServer):
    """A chat server that answers as the test says: `status`, and the body of its stream."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Stubbed)
        self.status, self.body, self.headers = 200, b"", dict[str, str]()
        self.models = ["m"]
        self.endless = b""
        self.silent, self.over = False, Event()
        self.asked: list[tuple[str, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def says(self, *chunks: dict[str, Any]) -> None:
        self.body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)


class _Stubbed(BaseHTTPRequestHandler):
    server: Stub

    def do_GET(self) -> None:
        self._wait()
        self._answer(
            200, json.dumps({"object": "list", "data": [{"id": name} for name in self.server.models]}).encode()
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.headers["authorization"], body))
        if self.server.endless:
            self._never_end(self.server.endless)
        elif self.server.silent and self.server.body:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(self.server.body)
            self._wait()
        elif self.server.silent:
            self._wait()
        else:
            self._answer(self.server.status, self.server.body)

    def _wait(self) -> None:
        """Blocks until the test is over if the server is to say nothing more."""
        if self.server.silent:
            self.server.over.wait(30)

    def _never_end(self, drop: bytes) -> None:
        """Sends the same bytes repeatedly until the client disconnects."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        with suppress(OSError):
            while self.server.endless:
                self.wfile.write(drop)
                Event().wait(0.01)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        kind = "text/event-stream" if body.startswith(b"data") else "application/json"
        for name, value in {"content-type": kind, "content-length": str(len(body)), **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.endless = b""
        server.over.set()
        server.shutdown()
        thread.join()


def chunk(ends: str | None = None, usage: dict[str, Any] | None = None, **delta: str) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": ends}]
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": choices,
        "usage": usage,
    }


def test_a_request_is_greedy_and_short_and_its_answer_is_heard_to_the_end(stub: Stub) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    details = {"prompt_tokens_details": {"cached_tokens": 4, "message_reused_tokens": 3}}
    stub.says(chunk(role="assistant"), chunk(content="a"), chunk(content="b"), chunk("stop", usage | details))
    with asked(stub.url, SECRETS) as server:
        heard = server.ask(ASKED, Identity(1, "pepper"))
        assert (heard.text, heard.prompt, heard.cached) == ("ab", 9, 7)
        assert 0 < heard.seconds < 60
        assert (server.requests, server.prompt_tokens, server.model) == (1, 9, "m")
    [(key, body)] = stub.asked
    assert key == f"Bearer {SECRETS[1]}"
    assert body["cache_salt"] == "pepper"
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (1, 0, True)


def test_a_server_that_counts_nothing_says_nothing_of_reuse(stub: Stub) -> None:
    stub.says(chunk("stop", content="a"))
    with asked(stub.url) as server:
        assert server.ask(ASKED, Identity())[1:] == ("a", None, None)
    assert "cache_salt" not in stub.asked[0][1]


@pytest.mark.parametrize(
    ("status", "told"),
    [(401, "rejects the key"), (403, "rejects the key"), (307, "HTTP 307"), (429, "HTTP 429"), (500, "HTTP 500")],
)
def test_a_refusal_is_one_error_without_keys_and_is_not_asked_again(stub: Stub, status: int, told: str) -> None:
    stub.status, stub.headers = status, {"retry-after": "7", "location": "http://127.0.0.2:9/v1/chat/completions"}
    stub.body = json.dumps({"error": {"message": f"you sent {SECRETS[0]}"}}).encode()
    with asked(stub.url, SECRETS) as server, pytest.raises(ServerRefused, match=told) as error:
        server.ask(ASKED, Identity())
    assert SECRETS[0] not in str(error.value)
    assert error.value.__cause__ is None
    assert (error.value.status, len(stub.asked)) == (status, 1)
    assert status in (401, 403) or error.value.wait == 7


@pytest.mark.parametrize("chunks", [(), (chunk(role="assistant"),), ({"error": {"message": "it broke"}},), ({"x": 1},)])
def test_a_stream_without_a_token_is_a_failure(stub: Stub, chunks: tuple[dict[str, Any], ...]) -> None:
    stub.says(*chunks)
    with asked(stub.url) as server, pytest.raises(ServerRefused):
        server.ask(ASKED, Identity())


def test_a_model_is_taken_where_there_is_one_to_take(stub: Stub) -> None:
    stub.models = ["m", "m@baseline", "m@audit"]
    with asked(stub.url) as server:
        assert server.model == "m"
    stub.models = ["m", "n"]
    with pytest.raises(ConfigError, match="2 models; choose one with --model"), asked(stub.url):
        pass
    with asked(stub.url, model="n") as server:
        assert server.model == "n"


def test_the_time_that_is_left_bounds_an_answer_too(stub: Stub) -> None:
    stub.says(chunk(content="a"), chunk("stop"))
    server = Endpoint(stub.url, [None], Bounds(10, -1.0), "m")
    assert not server.allows(1)
    with pytest.raises(ServerRefused, match=r"too slow.*--seconds"):
        server.ask(ASKED, Identity())
    server.close()


@pytest.mark.parametrize("begun", [False, True], ids=["no byte of it came", "it began"])
def test_a_server_that_answers_too_slowly_is_said_to_be_slow_and_nothing_else(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    monkeypatch.setattr(endpoint, "LEAST", 0.1)
    stub.silent = True
    if begun:
        stub.says(chunk(role="assistant"))
    with closing(Endpoint(stub.url, [None], Bounds(10, 0.2), "m")) as server:
        report = judged(server, measure(server, PLAN))
    assert report.ended is not None
    assert "too slow" in report.ended
    assert "--seconds" in report.ended
    assert "chat server" not in report.ended
    assert (report.conclusion, report.exit_code) == ("inconclusive", 3)


def test_an_answer_is_waited_for_the_longer_the_more_time_there_is() -> None:
    assert endpoint.patience(600) == 60
    assert endpoint.patience(3600) == 360


def test_a_slow_list_of_models_is_no_missing_one(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LEAST", 0.1)
    stub.silent = True
    with pytest.raises(ServerSlow, match=r"too slow.*--seconds.*--model") as error:
        Endpoint(stub.url, [None], Bounds(10, 0.2))
    assert "lists no models" not in str(error.value)


def test_a_server_that_is_not_there_or_breaks_off_is_said_so(stub: Stub) -> None:
    stub.says(chunk(content="a"))
    stub.headers = {"content-length": "9999"}
    with asked(stub.url, model="m") as server, pytest.raises(ServerRefused, match="closed the connection"):
        server.ask(ASKED, Identity())
    with pytest.raises(ServerRefused, match="no server answers at"), asked("http://127.0.0.1:9/v1", model="m") as none:
        none.ask(ASKED, Identity())


@pytest.mark.parametrize("drop", [b": still here\n\n", b"data: " + b"x" * 64])
def test_a_server_that_never_ends_its_answer_keeps_nobody(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, drop: bytes
) -> None:
    monkeypatch.setattr(endpoint, "LEAST", 0.1)
    stub.endless = drop
    server = Endpoint(stub.url, [None], Bounds(10, 0.1), "m")
    with pytest.raises(ServerRefused, match=r"too slow.*--seconds"):
        server.ask(ASKED, Identity())
    server.close()


def test_an_answer_of_a_few_tokens_that_is_too_long_is_given_up(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MOST_BYTES", 1000)
    stub.endless = b"x" * 64
    with asked(stub.url, model="m") as server, pytest.raises(ServerRefused, match="longer than 1000 bytes"):
        server.ask(ASKED, Identity())


def test_what_comes_is_counted_and_so_it_is_not_compressed(stub: Stub) -> None:
    stub.says(chunk("stop", content="a"))
    stub.headers = {"content-encoding": "gzip"}
    with asked(stub.url, model="m") as server, pytest.raises(ServerRefused, match="compresses"):
        server.ask(ASKED, Identity())


@pytest.mark.parametrize("name", [f"m-{SECRETS[1]}", "m" * 300, "m\nm"])
def test_a_model_s_name_brings_no_key_into_a_report(stub: Stub, name: str) -> None:
    stub.models = [name]
    with pytest.raises(ServerRefused, match="give --model") as error, asked(stub.url, SECRETS):
        pass
    assert SECRETS[1] not in str(error.value)


def test_a_count_that_no_prompt_has_is_none(stub: Stub) -> None:
    usage = {"prompt_tokens": 10**400, "completion_tokens": 1, "total_tokens": 1}
    stub.says(chunk("stop", usage | {"prompt_tokens_details": {"cached_tokens": 10**400}}, content="a"))
    with asked(stub.url) as server:
        assert server.ask(ASKED, Identity())[2:] == (None, None)


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://localhost:8000/s/town/v1/", "http://localhost:8000/s/town/v1"),
        ("https://[::1]:1/v1", "https://[::1]:1/v1"),
    ],
)
def test_a_url_on_this_machine_is_taken(given: str, base: str) -> None:
    assert checked_url(given, False) == base


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.com/v1", "http://10.0.0.1/v1", "http://localhost.example.com", "http://0.0.0.0:8000"),
        *("http://127.0.0.1.example.com", "http://2130706433", "https://[::2]"),
    ],
)
def test_any_other_machine_takes_its_owner_s_leave(url: str) -> None:
    with pytest.raises(ConfigError, match="--i-may-test-this"):
        checked_url(url, False)
    assert checked_url(url, True).startswith(url.removesuffix("/v1"))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "here",
        "ftp://localhost",
        "http://",
        "http://u:p@localhost",
        "http://localhost?k=1",
        "http://localhost:99999",
    ],
)
def test_what_is_no_url_of_a_server_is_refused_and_no_password_repeated(url: str) -> None:
    with pytest.raises(AgentchoError) as error:
        checked_url(url, True)
    assert "u:p" not in str(error.value)

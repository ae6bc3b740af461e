"""Servers side by side: workflows as chats, the timing client, and errors where a server is missing."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from agentcho.cli import main
from agentcho.errors import ConfigError
from agentcho.lab.bench import servers
from agentcho.lab.bench.chats import chats
from agentcho.lab.bench.client import Endpoint, Heard, ask
from agentcho.lab.bench.plans import paper
from agentcho.lab.bench.played import ArmUnavailable
from agentcho.lab.bench.result import read_result
from agentcho.lab.bench.serving import (
    ARMS,
    BASELINE,
    ENFORCE,
    PEER,
    PLAIN,
    ServingOptions,
    first_tokens,
    play,
    serving,
    spared,
    speed,
)
from agentcho.records.trace import Workflow, read_traces

from .local import answering

DATA = Path(__file__).parents[3] / "shared" / "data"


def chunk(text: str | None = None, ends: str | None = None, **more: Any) -> dict[str, Any]:
    delta = {} if text is None else {"content": text}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": ends}], **more}


class Stub(ThreadingHTTPServer):
    """A chat server with configurable answers, which keeps its requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Stubbed)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.lock, self.status, self.says = Lock(), 200, [chunk("well"), chunk(None, "stop")]
        self.usage = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}

    @property
    def port(self) -> int:
        return self.server_address[1]


class _Stubbed(BaseHTTPRequestHandler):
    server: Stub

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        fed = b'agentcho_fed_tokens{model="m"} %d\n' % (7 * len(self.server.asked))
        self.wfile.write(fed if self.path == "/metrics" else json.dumps({"data": [{"id": "stub"}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append((self.path, body))
        self.send_response(self.server.status)
        self.end_headers()
        if self.server.status != 200:
            self.wfile.write(json.dumps({"error": {"message": "no room\nhere"}}).encode())
            return
        for said in [chunk(""), *self.server.says, {"choices": [], "usage": self.server.usage}]:
            self.wfile.write(f"data: {json.dumps(said)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def stub() -> Iterator[Stub]:
    server = Stub()
    with answering(server):
        yield server


@pytest.fixture
def stubbed(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """Starts the stub in place of any server."""

    @contextmanager
    def running(command: Sequence[str], port: int) -> Iterator[int]:
        yield 1

    monkeypatch.setattr(servers, "running", running)
    monkeypatch.setattr(servers, "free_port", lambda: stub.port)
    return stub


def told(what: str, done: int, of: int) -> None:
    assert done < of


def test_an_agents_own_words_are_the_assistants_and_those_of_others_a_users(tree: Workflow) -> None:
    first, *_, vote = chats(tree, "Talk 7. ")
    assert first.messages == (
        {"role": "system", "content": "Talk 7. we know rules"},
        {"role": "user", "content": "we know question"},
    )
    assert (first.agent, first.after, vote.agent) == ("of a1", frozenset(), "ann")
    assert vote.after == {"a1", "a2", "a3"}
    assert vote.messages[1:] == tuple(
        {"role": "user", "name": f"of {id}", "content": f"Well: {text}"}
        for id, text in (("a1", "one"), ("a2", "one two three four"), ("a3", "seven eight"))
    )
    assert all("name" not in message for message in vote.nameless.messages)
    both = paper(["prisoners-dilemma"], 1, 0.1)[0].workflow
    own = [m["content"] for chat in chats(both) if chat.agent == "alice" for m in chat.messages if len(m) == 2]
    assert any(content.startswith("To Bob: ") for content in own)


def test_no_prompts_of_two_plays_begin_alike(tree: Workflow) -> None:
    one, other = (chats(tree, label) for label in ("a ", "b "))
    assert {chat.messages[0]["content"][0] for chat in one} == {"a"}
    assert {chat.messages[0]["content"][0] for chat in other} == {"b"}
    assert [chat.messages[1:] for chat in one] == [chat.messages[1:] for chat in other]


def test_a_chat_is_sent_when_those_that_it_waits_for_have_ended(tree: Workflow) -> None:
    ended, lock = list[str](), Lock()

    def send(chat: Any) -> Heard:
        with lock:
            assert chat.after <= set(ended)
            ended.append(chat.id)
        return Heard(0, 1, 2, chat.id, {})

    assert {id: heard.text for id, heard in play(chats(tree), send).items()} == {id: id for id in ended}
    assert ended[-1] == "vote"


def test_what_was_said_is_quoted_where_that_is_asked_for(tree: Workflow) -> None:
    sent = dict[str, list[str]]()

    def send(chat: Any) -> Heard:
        sent[chat.id] = [message["content"] for message in chat.messages]
        return Heard(0, 1, 2, f"said {chat.id}", {})

    play(chats(tree), send, quote_said=True)
    assert sent["vote"] == ["we know rules", "said a1", "said a2", "said a3"]
    play(chats(tree), send)
    assert sent["vote"] == ["we know rules", "Well: one", "Well: one two three four", "Well: seven eight"]


def test_a_first_token_is_the_first_text_or_an_end_without_one(stub: Stub) -> None:
    heard = ask(Endpoint(stub.port, "/s/x/ann/v1"), {"model": "m"})
    assert heard.began < heard.first <= heard.ended
    assert (heard.text, heard.counted("prompt_tokens"), heard.counted("details", "none")) == ("well", 10, None)
    path, body = stub.asked[0]
    assert (path, body["stream"], body["model"]) == ("/s/x/ann/v1/chat/completions", True, "m")
    stub.says = [chunk(None, "stop")]
    assert ask(Endpoint(stub.port), {}).text == ""
    stub.says = []
    with pytest.raises(ArmUnavailable, match="ended without a token"):
        ask(Endpoint(stub.port), {})
    stub.says = [chunk("w"), {"error": {"message": "broken"}}]
    with pytest.raises(ArmUnavailable, match="the stream reported an error: broken"):
        ask(Endpoint(stub.port), {})
    stub.status = 503
    with pytest.raises(ArmUnavailable, match=r"^HTTP 503: no room here$"):
        ask(Endpoint(stub.port), {})
    with pytest.raises(ArmUnavailable, match="ConnectionRefused"):
        ask(Endpoint(servers.free_port()), {})


def test_figures_are_counted_by_hand() -> None:
    details = {"cached_tokens": 5, "message_reused_tokens": 20}
    one = Heard(0.0, 1.0, 4.0, "", {"prompt_tokens": 40, "completion_tokens": 6, "prompt_tokens_details": details})
    other = Heard(2.0, 5.0, 6.0, "", {"prompt_tokens": 10, "completion_tokens": 3})
    assert first_tokens([one, other]) == {"ttft": 2.0, "prompt": 50.0, "exact": 0.1, "reused": 0.4}
    assert first_tokens([other]) == {"ttft": 3.0, "prompt": 10.0}
    assert spared([one, other], {"fed": 39.0})["spared"] == 0.4
    assert spared([other], {}) == first_tokens([other])
    assert speed([one, other]) == {"seconds": 6.0, "said": 9.0, "rate": 1.5, "ttft_long": 2.0}


def test_all_arms_are_asked_the_same_and_only_ours_what_only_ours_knows(stubbed: Stub, tmp_path: Path) -> None:
    subjects = paper(["multi-qa"], 1, 0.05)
    found = serving(ServingOptions("understudy", repeats=2, peer_python=tmp_path), subjects, ARMS, told)
    assert [(each.subject, each.arm, each.unavailable) for each in found] == [("multi-qa", arm, None) for arm in ARMS]
    assert found[0].values["exact"] == (0.4, 0.4)
    assert [each.values.get("same") for each in found] == [None, None, None, (1.0, 1.0)]
    assert [each.values.get("fed") for each in found] == [(7.0, 7.0)] * 3 + [None]
    by = {arm: [(path, body) for path, body in stubbed.asked if arm_of(path, body) == arm] for arm in ARMS}
    assert {arm: len(asked) for arm, asked in by.items()} == dict.fromkeys(ARMS, 5)
    said = [[(body["messages"], body["max_tokens"]) for _, body in asked] for asked in by.values()]
    assert said[0] == said[1] == said[2] == said[3]
    beginnings = {json.dumps(messages[0]) for messages, _ in said[0]}
    assert len(beginnings) == 5, "no two plays of an arm have a beginning in common"
    assert all("cache_salt" not in body and path.startswith("/v1") for path, body in by[PEER])
    assert len({path for path, _ in (*by[BASELINE], *by[ENFORCE])}) == 10, "each play has a society of its own"
    assert len({body["cache_salt"] for _, body in by[PLAIN]}) == 5


def ended() -> object:
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_a_play_whose_answers_are_quoted_is_played_once(stubbed: Stub) -> None:
    found = serving(
        ServingOptions("fake", repeats=2, quote="said"), paper(["prisoners-dilemma"], 1, 0.02), [PLAIN], told
    )
    assert len(stubbed.asked) == 3 * 8
    assert {body["max_tokens"] for _, body in stubbed.asked} == {64}
    assert found[0].values["ttft"] == found[0].values["ttft_long"]


def arm_of(path: str, body: dict[str, Any]) -> str:
    if body["model"].endswith((BASELINE, ENFORCE)):
        assert re.match(r"/s/[0-9a-f]{16}-\w+/ann/v1/", path)
        return "@" + str(body["model"]).partition("@")[2]
    return PLAIN if "cache_salt" in body else PEER


def test_a_peer_that_does_not_run_is_left_out_and_said(stubbed: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    found = serving(ServingOptions("understudy", repeats=1), paper(["multi-qa"], 1, 0.05), (PLAIN, PEER), told)
    assert [(each.arm, bool(each.values)) for each in found] == [(PLAIN, True), (PEER, False)]
    assert "install transformers[serving]" in (found[1].unavailable or "")
    with pytest.raises(ConfigError, match="unknown arm 'vllm'; give one of plain, "):
        serving(ServingOptions("understudy"), [], ["vllm"], told)


@pytest.mark.server
def test_a_server_that_ends_says_why() -> None:
    code = "import sys; sys.exit('no such model')"
    with (
        pytest.raises(ArmUnavailable, match="did not start: no such model"),
        servers.running([sys.executable, "-c", code], servers.free_port()),
    ):
        pass
    with pytest.raises(ConfigError, match="`agentcho serve`: the server did not start"):
        serving(ServingOptions("no/such/folder"), [], (PLAIN,), told)


def test_the_command_writes_a_result_and_a_table(
    stubbed: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "serve.json"
    words = ["bench", "serve", "--workflow", "multi-qa", "--scale", "0.05", "--repeats", "1", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["agentcho", *words, "--peer-python", str(tmp_path / "none")])
    assert ended() == 0
    told, found = capsys.readouterr().out, read_result(file)
    assert (found.bench, found.arms, found.machine["peer"], found.machine["tokens"]) == ("serve", ARMS, "none", "64")
    assert found.command.startswith("agentcho bench serve --workflow multi-qa")
    assert re.search(r"@enforce +\d+ ms .* 10 +50% +40% +0% +-$", told, re.MULTILINE)
    stubbed.usage.pop("prompt_tokens_details")
    assert ended() == 0
    assert re.search(r"transformers serve .* 10 +- +- +- +100%\n", capsys.readouterr().out)


@pytest.mark.skipif(not DATA.is_dir(), reason="the recorded workflows are not here")
@pytest.mark.parametrize(
    "file", ["agentleak.five-models", "prisoners-dilemma.llama3.1-8b", "tree-of-thoughts-math.llama3.1-8b"]
)
def test_every_recorded_workflow_becomes_chats(file: str) -> None:
    for trace in read_traces(DATA / f"{file}.jsonl"):
        made = chats(trace, "Talk. ")
        assert [chat.id for chat in made] == [m.id for m in trace.messages if m.kind == "decode"]
        assert all(chat.messages[0]["content"].startswith("Talk. ") for chat in made)

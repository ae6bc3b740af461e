"""The timed talk in AutoGen: the page's code with another address, its result, and its place on the page."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentcho import cli
from agentcho.errors import ConfigError
from agentcho.lab.bench import servers
from agentcho.lab.bench.played import ArmUnavailable
from agentcho.lab.bench.result import Result
from agentcho.lab.bench.serving import ARMS, ENFORCE, PEER, PLAIN
from tools.bench import talk
from tools.bench.commands import app
from tools.bench.tables import table
from tools.bench.talk import SUBJECTS, TALKER, Asked, Server, Talk, code_for, figures, page_code, talks
from tools.pages.speed import page

USAGE = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 60}}
ANSWERS = [{"seconds": 0.1, "text": "ten", "usage": USAGE}, {"seconds": 0.3, "text": "no", "usage": USAGE}]


def test_the_page_has_code_that_can_be_given_another_address() -> None:
    server = Server("http://127.0.0.1:9/s/{talk}/{name}/v1", "m@enforce")
    code = code_for(page_code(), server, Talk("t7", "Talk 7. ", "Wool. "))
    ast.parse(code)
    assert 'f"http://127.0.0.1:9/s/t7/{name}/v1"' in code
    assert "model='m@enforce'" in code
    assert "system_message='Talk 7. ' + BRIEFS[name]" in code
    assert "task='Wool. ' + \"Agree on a price.\"" in code
    assert "8000" not in code


def test_a_page_with_other_code_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "clients.md"
    other.write_text(talk.PAGE.read_text().replace('task="Agree', 'task="Talk'))
    monkeypatch.setattr(talk, "PAGE", other)
    with pytest.raises(ConfigError, match=r"clients\.md has no code for AutoGen with .*Agree on a price"):
        page_code()


def test_figures_are_of_the_whole_talk() -> None:
    found = figures({"seconds": 0.5, "answers": ANSWERS})
    assert found == pytest.approx(
        {"seconds": 0.5, "answer": 0.2, "token": 0.05, "prompt": 200, "said": 10, "exact": 0.6, "reused": 0}
    )
    silent = [each | {"usage": {"prompt_tokens": 9, "completion_tokens": 1}} for each in ANSWERS]
    assert not {"exact", "reused"} & figures({"seconds": 0.5, "answers": silent}).keys()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The code that was run; servers and client are simulated."""
    ran = list[str]()

    @contextmanager
    def running(command: Sequence[str], port: int) -> Iterator[int]:
        if "--continuous-batching" in command:
            raise ArmUnavailable("it has no room")
        yield 1

    @contextmanager
    def talker(python: Path) -> Iterator[talk.Say]:
        def say(code: str) -> dict[str, Any]:
            ran.append(code)
            return {"seconds": 0.5, "answers": ANSWERS}

        yield say

    monkeypatch.setattr(servers, "running", running)
    monkeypatch.setattr(talk, "talker", talker)
    monkeypatch.setattr(talk, "first_model", lambda port: "m")
    monkeypatch.setattr(talk, "fed_tokens", lambda port: 7.0 * len(ran))
    return ran


def told(what: str, done: int, of: int) -> None:
    assert done < of


def made(code: str) -> tuple[str, str]:
    """The society, if any, and the label of a talk."""
    known = [str(node.value) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]
    (label,) = [text for text in known if text.startswith("Talk ")]
    return code.partition("/s/")[2].partition("/")[0], label


def test_talks_take_turns_and_none_meets_what_another_left(asked: list[str]) -> None:
    found = talks(Asked("m", peer_python=Path("python"), repeats=2), told)
    assert {(each.subject, each.arm) for each in found} == {(subject, arm) for subject in SUBJECTS for arm in ARMS}
    assert {each.unavailable for each in found if each.arm == PEER} == {"it has no room"}
    assert {each.values["fed"] for each in found if each.arm == PLAIN} == {(7.0, 7.0)}
    arms = len(ARMS) - 1
    assert len(asked) == len(SUBJECTS) * arms * 3
    societies, labels = zip(*map(made, asked), strict=True)
    assert len(set(labels)) == len(SUBJECTS) * 3  # the same in all arms
    assert len({one for one in societies if one}) == len(SUBJECTS) * (arms - 1) * 3
    lengths = {len(code.split()) // 100 for code in asked}
    assert max(lengths) - min(lengths) == SUBJECTS["with a task of 500 words"] // 100


def test_a_talker_runs_code_and_says_what_came_of_each_chat() -> None:
    pytest.importorskip("httpx")
    code = """
import asyncio, httpx
def chat(request):
    return httpx.Response(200, json={"choices": [{"message": {"content": "ten"}}], "usage": {"prompt_tokens": 3}})
async def ask():
    async with httpx.AsyncClient(transport=httpx.MockTransport(chat)) as client:
        await client.get("http://h/v1/models")
        print((await client.post("http://h/v1/chat/completions")).status_code)
asyncio.run(ask())
"""
    given = "".join(json.dumps({"code": each}) + "\n" for each in (code, "1 / 0", code))
    ran = subprocess.run([sys.executable, str(TALKER)], input=given, text=True, capture_output=True, check=True)
    first, failed, again = map(json.loads, ran.stdout.splitlines())
    assert failed == {"error": "ZeroDivisionError: division by zero"}
    for found in (first, again):
        (answer,) = found["answers"]
        assert (answer["text"], answer["usage"]) == ("ten", {"prompt_tokens": 3})
        assert 0 < answer["seconds"] < found["seconds"]


def test_without_autogen_it_is_said_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(servers, "running", lambda *_: pytest.fail("a server was started"))
    monkeypatch.setattr(sys, "argv", ["tools.bench", "talk", "--clients-python", str(tmp_path / "python")])
    with pytest.raises(SystemExit, match="2"):
        cli.run(app())
    assert "run `make clients`, or give --clients-python" in " ".join(capsys.readouterr().err.split())


def test_the_page_shows_servers_where_there_are_results_of_them(asked: list[str], tmp_path: Path) -> None:
    found = talks(Asked("m", peer_python=Path("python"), repeats=2), told)
    machine = {
        "machine": "x",
        "torch": "2",
        "transformers": "5",
        "commit": "c" * 40,
        "peer": "p",
        "client": "autogen 1",
    }
    about: dict[str, Any] = {
        "model": "m",
        "dtype": "float32",
        "device": "cpu",
        "seed": 1,
        "repeats": 2,
        "command": "it",
    }
    result = Result(bench="talk", **about, machine=machine, figures=tuple(found))
    assert "0.50 s" in table(result)
    assert "in AutoGen" not in page(tmp_path)
    (tmp_path / "bench-talk.json").write_text(result.model_dump_json())
    shown = page(tmp_path)
    assert "## A talk of three agents in AutoGen" in shown
    assert f"|  | {ENFORCE} | 0.50 s | 50.0 ms |  | 10 | 200 | 60% | 0% | 7 |" in shown
    assert f"|  | {PEER} | not available here: it has no room |" in shown
    assert "## Servers" not in shown

"""`agentcho run --model openai:NAME`: what it plays, shows and refuses, on a fake endpoint and with real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentcho.config import ModelConfig
from agentcho.integrations.endpoints import endpoint
from agentcho.protocol.text_calls import TextCall, TextReply, TokensSpent
from agentcho.records.record import find
from agentcho.testing import FakeEndpoint
from tests.remote.served import agentcho_served

from .conftest import Command, one_line

URL = "http://127.0.0.1:1/v1"
FAR = ("--model", "openai:far", "--base-url", URL)
PLAY = ("run", "prisoners-dilemma", *FAR)


class Priced(FakeEndpoint):
    """An endpoint that charges 0.1 for each answer."""

    async def ask(self, call: TextCall) -> TextReply:
        reply = await super().ask(call)
        return reply._replace(spent=TokensSpent(*reply.spent[:4], 0.1))


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> FakeEndpoint:
    """The fake model that answers for every API."""
    port = Priced()
    monkeypatch.setattr(endpoint, "open_endpoint", lambda config, name: port)
    return port


def test_a_run_through_an_endpoint_shows_what_it_took_and_is_texts_clean(
    agentcho: Command, port: FakeEndpoint, tmp_path: Path
) -> None:
    ran = agentcho(*PLAY, "--games", "2")
    assert (ran.code, ran.err.count("error")) == (0, 0)
    assert "prisoners-dilemma · openai:far · texts, enforce" in ran.out
    assert ran.out.splitlines()[-1].startswith("TEXTS CLEAN: views held;")
    audit = agentcho("audit", "last", "--json", "-", "--sarif", "a.sarif", "--junit", "a.xml", "--html", "a.html")
    assert (audit.code, json.loads(audit.out)["conclusion"]) == (0, "texts-clean")
    assert agentcho("audit", "last").out.startswith("TEXTS CLEAN: ")
    shown = agentcho("show", "last", "--game", "0").out
    heads = next(line for line in shown.splitlines() if line.split()[:1] == ["agent"])
    assert heads.split()[-5:] == ["sent", "cached", "answered", "requests", "price"]
    assert any(line.split()[-2:] == ["4", "0.4"] for line in shown.splitlines())
    assert len(port.calls) == 16


def test_a_run_goes_on_where_an_endpoint_had_failed(agentcho: Command, port: FakeEndpoint, tmp_path: Path) -> None:
    assert agentcho(*PLAY).code == 0
    (file,) = tmp_path.glob("runs/*/outcomes.jsonl")
    file.write_text("")
    asked = len(port.calls)
    ran = agentcho("run", "--resume", "last", "--key-env", "ANOTHER")
    assert (ran.code, len(port.calls)) == (0, asked)
    assert "TEXTS CLEAN" in ran.out.splitlines()[-1]


def test_the_runs_own_model_may_stand_in_the_file_with_all_that_is_said_of_it(
    agentcho: Command, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    asked: list[ModelConfig] = []

    def opened(config: ModelConfig, name: str) -> FakeEndpoint:
        asked.append(config)
        return FakeEndpoint()

    monkeypatch.setattr(endpoint, "open_endpoint", opened)
    table = f'[default]\nmodel = "openai:far"\nbase_url = "{URL}"\nprice_in = 0.5\nconcurrency = 3\n'
    (here / "models.toml").write_text(table)
    assert agentcho("run", "prisoners-dilemma", "--models", "models.toml", "--key-env", "ONE").code == 0
    (file,) = here.glob("runs/*/outcomes.jsonl")
    file.write_text("")
    assert agentcho("run", "--resume", "last", "--key-env", "OTHER").code == 0
    assert [(each.price_in, each.concurrency, each.key_env) for each in asked] == [(0.5, 3, "ONE"), (0.5, 3, "OTHER")]
    assert find("last", here / "runs").info.config.model == "openai:far"
    (here / "models.toml").write_text("[default]\nmodel = 'openai:far'\n")
    assert "is a model behind an API and needs base_url" in one_line(
        agentcho("run", "debate", "--models", "models.toml")
    )


def test_what_needs_numbers_refuses_such_a_run(agentcho: Command, port: FakeEndpoint) -> None:
    assert agentcho(*PLAY).code == 0
    for words in (("prove", "last"), ("audit", "last", "--measure")):
        assert "whose keys and values cannot be measured" in one_line(agentcho(*words))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "debate", "--model", "openai:far"), "is a model behind an API and needs base_url"),
        (("run", "debate", "--base-url", URL), "which are named openai:NAME, and not to 'understudy'"),
        (("run", "debate", *FAR, "--device", "cpu"), "device applies to models that are loaded here"),
        (("run", "debate", *FAR, "--deterministic"), "nothing ensures that it repeats its words"),
        (("run", "debate", *FAR, "--key-env", "A", "--key-file", "b"), "key_env and key_file contradict each other"),
        (("run", "debate", *FAR, "--key-file", "nowhere"), "key_file cannot be read"),
        (("run", "debate", "--model", "openai:far", "--base-url", "http://a:b@127.0.0.1/v1"), "has a user, a password"),
        (("run", "debate", "--model", "openai:far", "--base-url", "https://far.example/v1"), "needs a key"),
    ],
)
def test_options_that_do_not_fit_are_one_line_before_anything_is_played(
    agentcho: Command, here: Path, words: tuple[str, ...], told: str
) -> None:
    assert told in one_line(agentcho(*words))
    assert not [*here.iterdir()]


@pytest.mark.parametrize("command", [("prove",), ("compare",), ("bench", "games"), ("serve",)])
def test_other_commands_say_that_they_take_no_endpoint(agentcho: Command, command: tuple[str, ...]) -> None:
    words = (*command, *(() if command[0] in ("bench", "serve") else ("debate",)))
    ran = agentcho(*words, "--model", "openai:far")
    assert ran.code == 2
    assert "a model behind an API" in " ".join(ran.err.split())


def test_a_model_behind_an_api_is_not_loaded(agentcho: Command) -> None:
    assert "a model behind an API cannot be loaded" in one_line(agentcho("doctor", "openai:far"))


def words(served: ModelConfig) -> tuple[str, ...]:
    return "--model", served.model, "--base-url", str(served.base_url), "--server", "openai"


@pytest.fixture(scope="module")
def served() -> Iterator[ModelConfig]:
    """`agentcho serve` of the bundled model, in its own process."""
    with agentcho_served() as config:
        yield config


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = (sys.executable, "-c", "from agentcho.cli import main; main()", *words)
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def done(folder: Path, *words: str) -> str:
    with started(folder, *words) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


@pytest.mark.server
def test_one_process_plays_on_the_model_of_another(served: ModelConfig, tmp_path: Path) -> None:
    ran = done(tmp_path, "run", "prisoners-dilemma", *words(served))
    assert ran.splitlines()[-1].startswith("TEXTS CLEAN: ")
    assert done(tmp_path, "audit", "last").startswith("TEXTS CLEAN: ")
    assert "answered" in done(tmp_path, "show", "last")
    said = [e for e in find("last", tmp_path / "runs").entries() if e.message.kind == "decode"]
    assert all(entry.usage.spent and entry.usage.spent.completion for entry in said)
    assert all(entry.encoding is None and not entry.message.tokens for entry in said)


def eventually(there: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not there():
        assert process.poll() is None


@pytest.mark.server
def test_a_run_that_was_killed_goes_on_without_asking_twice(served: ModelConfig, tmp_path: Path) -> None:
    def said() -> int:
        return sum(file.read_bytes().count(b'"spent"') for file in tmp_path.glob("runs/*/transcript.jsonl"))

    with started(tmp_path, "run", "prisoners-dilemma", "--games", "8", *words(served)) as process:
        eventually(lambda: said() > 8, process)
        process.kill()
    kept = {(e.message.game, e.message.id): e for e in find("last", tmp_path / "runs").entries() if e.ended is None}
    assert done(tmp_path, "run", "--resume", "last").splitlines()[-1].startswith("TEXTS CLEAN: ")
    games = find("last", tmp_path / "runs").games()
    now = {(e.message.game, e.message.id): e for entries in games.values() for e in entries}
    assert len(games) == 8
    for key, entry in kept.items():
        assert now[key].message.text == entry.message.text
        assert now[key].usage.spent == entry.usage.spent

"""The command `agentcho probe`: the keys it uses, what it refuses before any request, what it shows and writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agentcho.lab.probe import ProbeReport
from tests.probe.simulated import Simulated

from .conftest import Command, one_line

URL = "http://127.0.0.1:9"
KEYS = ("--key", "FIRST", "--other-key", "second.txt")
Made = list[tuple[str, list[str | None]]]


@pytest.fixture
def asked(here: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Provides two keys and a simulated server that shares its cache across keys."""
    made: Made = []

    class Server(Simulated):
        def __init__(self, url: str, keys: list[str | None], *_: object) -> None:
            super().__init__("salt")
            made.append((url, keys))

        def close(self) -> None:
            """Nothing to close."""

    monkeypatch.setattr("agentcho.lab.probe.endpoint.Endpoint", Server)
    monkeypatch.setenv("FIRST", "ak-first")
    Path("second.txt").write_text("ak-second\n")
    return made


def test_what_is_shared_is_shown_and_written_and_no_key_with_it(agentcho: Command, asked: Made) -> None:
    ran = agentcho("probe", URL, *KEYS, "-n", "12", "--json", "p.json", "--sarif", "p.sarif")
    assert ran.code == 1
    assert asked == [(f"{URL}/v1", ["ak-first", "ak-second"])]
    report = ProbeReport.model_validate_json(Path("p.json").read_bytes())
    assert report.conclusion == "shared"
    assert ran.out.startswith("SHARED: this server reuses what it computed for one caller across keys\n")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert any(line.startswith("across keys SHARED first tokens come ") for line in lines)
    assert any(line.startswith("across cache salts NOT SEEN hits as fast") for line in lines)
    [run] = json.loads(Path("p.sarif").read_text())["runs"]
    assert run["invocations"][0]["exitCode"] == 1
    said = ran.out + ran.err + Path("p.json").read_text() + Path("p.sarif").read_text()
    assert "ak-first" not in said
    assert "ak-second" not in said


def test_without_a_second_key_salts_alone_are_compared(agentcho: Command, asked: Made) -> None:
    ran = agentcho("probe", URL, "--json", "-")
    assert ran.code == 0
    assert asked == [(f"{URL}/v1", [None])]
    report = ProbeReport.model_validate_json(ran.out)
    assert [one.question for one in report.comparisons] == ["control", "salts", "beyond"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["http://example.com"], "--i-may-test-this"),
        (["--no-salts"], "there is nothing to test"),
        (["--other-key", "FIRST"], "give --key too"),
        (["--key", "FIRST", "--other-key", "FIRST"], "the key is the same"),
        (["--key", "sk-typed-by-mistake"], "not the key itself"),
        (["--key", "NOT_SET"], "not the key itself"),
        (["--key", "empty.txt"], "no key found there"),
        (["--key", "binary.txt"], "cannot be read"),
        (["--requests", "0"], "--requests"),
        (["--json", "none/p.json"], "cannot be written"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_asked(
    words: list[str], told: str, agentcho: Command, asked: Made
) -> None:
    Path("empty.txt").write_text("\n")
    Path("binary.txt").write_bytes(b"\xff\xfe")
    url = [] if words[0].startswith("http") else [URL]
    ran = agentcho("probe", *url, *words)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert "typed-by-mistake" not in ran.err
    assert asked == []


def test_a_server_that_does_not_answer_is_one_error(agentcho: Command) -> None:
    assert "no server answers at" in one_line(agentcho("probe", URL, "--model", "m"))


def test_what_it_needs_is_said_before_anything_is_asked(agentcho: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    error = one_line(agentcho("probe", URL))
    assert error == (
        "error: openai is needed to probe a server: pip install 'agentcho[endpoints]' (from a clone: pip install "
        "'.[endpoints]')\n"
    )

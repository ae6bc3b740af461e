"""The page for users of other frameworks: our program runs, and matches the ones in theirs."""

from __future__ import annotations

import ast
import re

import pytest

from agentcho.testing import FakeEngine
from tests.clients.environment import ROOT
from tests.test_site import DOCS, LOADS, blocks

PAGE = DOCS / "coming-from.md"
OURS, *THEIRS = (block.text for block in blocks(PAGE) if block.language in ("python", "text"))


def briefs(program: str) -> str:
    return next(line for line in program.splitlines() if line.startswith("BRIEFS = "))


def test_our_program_plays_what_theirs_say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(LOADS, lambda config, tell=None: FakeEngine())
    exec(compile(OURS, PAGE.name, "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said] == ["ann", "ben", "scenario", *("ann", "ben") * 2]
    for program in THEIRS:
        ast.parse(program)
        assert briefs(program) == briefs(OURS)
        assert said[2].removeprefix("scenario: ") in program
    assert len(THEIRS) == 3


def test_their_programs_are_for_the_versions_that_clients_are_tried_with() -> None:
    folder = ROOT / "tests" / "clients" / "environments"
    pinned = re.findall(r"^([\w-]+)\S*==(\S+)$", "".join(file.read_text() for file in folder.glob("*.txt")), re.M)
    told = " ".join(PAGE.read_text().split())
    for name in ("autogen-ext", "langgraph", "langchain-openai", "pydantic-ai-slim"):
        assert f"{name} {dict(pinned)[name]}" in told

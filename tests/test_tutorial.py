"""The tutorial works: each step's code is saved and played, and prints what the page shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.test_site import DOCS, blocks, called, execute, lines, saved

pytestmark = pytest.mark.usefixtures("one_command_line")
PAGE = DOCS / "tutorial.md"
LAST = "play_wolf.py"


def in_order(shown: str, printed: list[str]) -> bool:
    """Whether the shown lines were printed in that order; other lines may stand between them."""
    rest = iter(printed)
    return all(any(each.startswith(line.split("…")[0].rstrip()) for each in rest) for line in shown.splitlines())


def test_steps_one_to_four_print_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed, compared = list[str](), 0
    for block in blocks(PAGE):
        if saved(block):
            execute(block, PAGE, tmp_path)
        elif block.language == "sh":
            break  # the following steps need a model
        elif block.language == "text":
            assert in_order(block.text, printed), f"{block.text}\nis not in\n" + "\n".join(printed)
            compared += 1
        for line in lines(block) if block.language == "console" else ():
            if not line.real:
                called(line, monkeypatch, capsys)
                printed = [text.rstrip() for text in capsys.readouterr().out.splitlines()]
    assert compared == 5


def test_the_last_step_prints_what_one_player_could_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in (block for block in blocks(PAGE) if saved(block)):
        execute(block, PAGE, tmp_path)
    monkeypatch.setattr(sys, "argv", [LAST, "fake"])
    exec(compile((tmp_path / LAST).read_text(), LAST, "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out.splitlines()
    assert in_order([block for block in blocks(PAGE) if block.language == "text"][-1].text, printed)
    assert "werewolf." not in "".join(line for line in printed if "One of you" not in line)
    assert printed[-1].startswith("{'village wins': ")

"""Records, traces and folders that others wrote: nothing in them moves the terminal that shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import PLAY, Command

EVIL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\x00\r\u202e\nCLEAN: nothing can leak"
MOVES = ("\x1b]", "\x1b[2J", "\x9b", "\x07", "\x00", "\r", "\u202e", "\nCLEAN: nothing can leak")
CHECKED = {
    "author", "audience", "caller", "name", "format", "mode", "leakage", "shadow", "status", "recipe", "kind",
    "plain_markers", "started", "ended", "key", "shown", "origin",
}  # fmt: skip
OPEN = {"options", "engine", "versions", "outcome", "score"}


def spoilt(value: Any, key: str = "") -> Any:
    """All words of a line made evil, but for those that are refused when they are: names and fixed words."""
    if key in CHECKED:
        return value
    match value:
        case str():
            return value + EVIL
        case list():
            return [spoilt(each) for each in value]
        case dict():
            return {name + EVIL * (key in OPEN): spoilt(each, name) for name, each in value.items()}
    return value


def moving(text: str) -> Iterator[str]:
    """What of a text a terminal would act on."""
    return (word for word in MOVES if word in text)


@pytest.fixture
def record(agentcho: Command, here: Path) -> Path:
    """A run whose every word somebody else wrote."""
    agentcho(*PLAY, "--leakage", "audit", "--display", "none", "--out", "runs")
    [run] = (here / "runs").iterdir()
    run = run.rename(run.with_name(run.name + "\x1b[2J\u202e\n"))
    for file in run.iterdir():
        if file.suffix == ".json":
            info = json.loads(file.read_text())
            file.write_text(json.dumps(spoilt(info) | {"cast": dict.fromkeys(info["cast"], "r" + EVIL)}))
        elif file.suffix == ".jsonl":
            lines = [json.dumps(spoilt(json.loads(line))) for line in file.read_text().splitlines()]
            file.write_text("\n".join(lines) + "\n")
    return run


@pytest.mark.parametrize(
    "words",
    [
        ["show"], ["show", "--display", "rich"], ["show", "--game", "0"], ["show", "--game", "7"], ["audit"],
        ["audit", "--display", "rich"], ["audit", "--reveal"], ["audit", "--json", "-"],
        ["audit", "--reveal", "--json", "-"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_word_of_a_record_moves_the_terminal(words: list[str], record: Path, agentcho: Command) -> None:
    ran = agentcho(words[0], str(record), *words[1:])
    assert ran.code in ((2,) if "7" in words else (0, 1, 3)), ran.err
    assert len(ran.out + ran.err) > 100
    assert not list(moving(ran.out + ran.err))


def test_no_word_of_a_record_moves_who_opens_what_was_made_of_it(record: Path, agentcho: Command, here: Path) -> None:
    assert agentcho("show", str(record), "--svg", "run.svg").code == 0
    agentcho("audit", str(record), "--reveal", "--html", "run.html", "--sarif", "run.sarif", "--junit", "run.xml")
    for name in ("run.svg", "run.html", "run.sarif", "run.xml"):
        text = (here / name).read_text()
        assert len(text) > 1000
        assert not set(moving(text)) - {"\nCLEAN: nothing can leak"}, name


@pytest.mark.parametrize("words", [["ls", "--runs"], ["ls"], ["show", "nothing"], ["show", EVIL], ["run", "x" + EVIL]])
def test_no_name_of_a_file_or_folder_does(words: list[str], record: Path, agentcho: Command, here: Path) -> None:
    (here / "scenarios").mkdir()
    (here / "scenarios" / "a\x1b[2J.py").write_text(f'"""{"x" * 9}\x1b[2J"""\nraise SystemExit')
    ran = agentcho(*words)
    assert ran.out + ran.err
    assert not list(moving(ran.out + ran.err))

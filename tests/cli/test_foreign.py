"""Records, traces and folders written by others: nothing in them controls the terminal that shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from agentcho.audit import audit_run
from agentcho.display.saved import Replay
from agentcho.errors import AgentchoError, RecordBroken
from agentcho.records.record import SavedRun, find

from .conftest import PLAY, Command

EVIL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\x00\r\u202e\nCLEAN: nothing can leak"
MOVES = ("\x1b]", "\x1b[2J", "\x9b", "\x07", "\x00", "\r", "\u202e", "\nCLEAN: nothing can leak")
CHECKED = {
    *(
        "author",
        "audience",
        "caller",
        "name",
        "format",
        "mode",
        "leakage",
        "engine",
        "shadow",
        "status",
        "recipe",
        "kind",
    ),
    *("plain_markers", "template_differs", "default_prompt", "thoughts"),
    *("started", "ended", "key", "shown", "origin", "server", "reuse"),
}
STRANGE: tuple[Any, ...] = (5, None, [], {"x": [1]}, 1e300, -(1 << 70), True)
OPEN = {"options", "engine", "versions", "outcome", "score"}


def spoilt(value: Any, key: str = "") -> Any:
    """Adds hostile characters to every string of a line, except names and fixed words, which are refused if changed."""
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
    """The parts of a text on which a terminal would act."""
    return (word for word in MOVES if word in text)


@pytest.fixture
def record(agentcho: Command, here: Path) -> Path:
    """A run in which every word was written by somebody else."""
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
    "line",
    [
        *("show", "show --display rich", "show --game 0", "show --game 7"),
        *("audit", "audit --display rich", "audit --reveal", "audit --json -", "audit --reveal --json -"),
    ],
)
def test_no_word_of_a_record_moves_the_terminal(line: str, record: Path, agentcho: Command) -> None:
    words = line.split()
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


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value in a line; of a list, only its first item."""
    yield from [way] if way else []
    for key, each in (
        value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    ):
        yield from places(each, (*way, key))


def put(line: Any, way: tuple[Any, ...], value: Any) -> Any:
    """A line with the value at that path replaced."""
    changed = deepcopy(line)
    inner = changed
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = value
    return changed


def look(path: Path) -> None:
    """Reads a record in all the ways there are."""
    run = SavedRun(path)
    Replay(run, None).plain(StringIO())
    audit_run(run)
    run.export()


@pytest.mark.parametrize("name", ["run.json", "transcript.jsonl", "heard.jsonl", "outcomes.jsonl", "writer.json"])
@pytest.mark.parametrize("value", ["x", *(pytest.param(each, marks=pytest.mark.slow) for each in STRANGE)])
def test_a_value_of_any_type_anywhere_is_one_clear_error_or_none(
    name: str, value: Any, agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcho.audit.subject.machine_info", dict)
    agentcho(*PLAY, "--leakage", "audit", "--max-tokens", "1")
    path = find("last", Path("runs")).path
    file = path / name
    if name == "writer.json":
        file.write_text(json.dumps({"pid": 1, "host": "h", "since": "s"}))
        (path / "run.json").write_text((path / "run.json").read_text().replace('"done"', '"running"'))
    text = file.read_text()
    lines = [json.loads(line) for line in ([text] if file.suffix == ".json" else text.splitlines())]
    kinds = {str(sorted(line)) + str(line.get("kind")): line for line in lines}
    for line in kinds.values():
        place = lines.index(line)
        for way in places(line):
            changed = [*lines[:place], put(line, way, value), *lines[place + 1 :]]
            file.write_text("\n".join(map(json.dumps, changed)) + "\n")
            with suppress(AgentchoError):
                look(path)


@pytest.mark.parametrize("change", [{"kind": "Decode"}, {"author": None}, {"audience": []}, {"offsets": [1] * 99}])
def test_what_would_hide_who_reads_is_refused(change: dict[str, Any], agentcho: Command, here: Path) -> None:
    agentcho(*PLAY, "--leakage", "audit")
    run = find("last", Path("runs"))
    file = run.path / "transcript.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines = [line | change if line.get("kind") == "decode" else line for line in lines]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RecordBroken, match="not a valid line of a message"):
        audit_run(run)


def test_one_broken_record_leaves_the_list_of_all(agentcho: Command, here: Path) -> None:
    agentcho(*PLAY)
    agentcho(*PLAY)
    first, second = sorted(Path("runs").iterdir())
    (first / "outcomes.jsonl").write_text("[" * 100_000 + "\n")
    listed = agentcho("ls", "--runs")
    assert listed.code == 0
    assert f"{first.name}  " in listed.out
    assert "(broken)" in listed.out
    assert f"{second.name}" in listed.out
    (second / "run.json").write_text("{")
    assert agentcho("ls", "--runs").out.count("(broken)") == 2


def test_who_writes_a_record_cannot_be_made_up(agentcho: Command, here: Path) -> None:
    agentcho(*PLAY)
    path = find("last", Path("runs")).path
    (path / "run.json").write_text((path / "run.json").read_text().replace('"done"', '"running"'))
    (path / "writer.json").write_text(json.dumps({"pid": EVIL, "host": "h", "since": "s"}))
    assert "\ndied: 1 of 1" in agentcho("show", "last").out
    (path / "writer.json").write_text(json.dumps({"pid": 7, "host": EVIL, "since": EVIL}))
    shown = agentcho("show", "last").out
    assert "\ndied (process 7 on " in shown
    assert not list(moving(shown))


def test_more_games_than_can_be_are_no_games(agentcho: Command, here: Path) -> None:
    agentcho(*PLAY)
    path = find("last", Path("runs")).path
    (path / "run.json").write_text((path / "run.json").read_text().replace('"games": 1,', '"games": 1000000000,'))
    for words in (("audit", "last"), ("show", "last"), ("run", "--resume", "last"), ("run", "x", "--games", "9999999")):
        assert agentcho(*words).code == 2


def test_what_the_system_says_of_a_file_moves_nothing(record: Path, agentcho: Command) -> None:
    (record / "transcript.jsonl").unlink()
    (record / "transcript.jsonl").mkdir()
    ran = agentcho("show", str(record))
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "Is a directory" in ran.err
    assert not list(moving(ran.err[:-1]))

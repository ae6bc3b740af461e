"""Two games side by side: which games, how messages are paired, which words are marked, and the summary above."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer import BadParameter

from agentcho.cli.view import ViewArgs, view
from agentcho.errors import AudienceError, RecordNotFound
from agentcho.records.record import SavedRun
from agentcho.viewer.beside import beside
from agentcho.viewer.page import page
from agentcho.viewer.page_content import PageSelection

from ..audit.transcripts import Talk
from .pages import blocks, recorded
from .test_browser import DRIVEN, driven
from .test_page import canaries
from .test_prompts import islands, used


def changed() -> Talk:
    """`islands` with another text by Bob, one more message by Alice, and her first message removed."""
    talk = islands()
    talk.drop("alice.0")
    talk.say("alice.1", "everyone", text="one more")
    last = next(entry for entry in talk.entries if entry.message.id == "bob.1")
    words = last.message.words._replace(text="the very words of bob.2")
    talk.change("bob.1", message=last.message.saying(**words._asdict()), usage=used(9, 0, 1.0, 4.0))
    return talk


@pytest.fixture
def two(tmp_path: Path) -> tuple[SavedRun, SavedRun]:
    one, other = (
        recorded(tmp_path / name, talk.entries, alice="agent", bob="agent")
        for name, talk in (("a", islands()), ("b", changed()))
    )
    return one, other


def args(two: tuple[SavedRun, SavedRun], **changes: Any) -> ViewArgs:
    first, second = two
    asked = ViewArgs(str(first.path), None, None, None, False, 0, False, first.path.parent, str(second.path))
    return asked._replace(**changes)


def test_both_runs_are_on_the_page_each_under_its_name(two: tuple[SavedRun, SavedRun]) -> None:
    first, second = two
    head = blocks(page(beside([first], [second], PageSelection())))["head"]
    assert head["beside"]
    alike = first.info.id == second.info.id
    names = [f"{first.info.id} (left)", f"{second.info.id} (right)"] if alike else [first.info.id, second.info.id]
    assert [(talk["group"], talk["run"]) for talk in head["talks"]] == [(names[0], 0), (names[1], 1)]
    assert [run[0] for run in head["runs"]] == [first.info.id, second.info.id]


def test_folders_of_one_name_are_told_apart_and_their_cells_are_known_by_side(tmp_path: Path) -> None:
    sides = [
        [recorded(tmp_path / side / cell, islands().entries, alice="agent", bob="agent") for cell in ("x", "y")]
        for side in ("a/cmp", "b/cmp")
    ]
    head = blocks(page(beside(sides[0], sides[1], PageSelection(), ("cmp", "cmp"))))["head"]
    found = [(talk["group"], talk["side"], talk["within"]) for talk in head["talks"]]
    assert [each[:2] for each in found] == [
        (f"cmp ({side}): {talk['within']}", number)
        for side, number, talk in zip(("left",) * 2 + ("right",) * 2, (0, 0, 1, 1), head["talks"], strict=True)
    ]
    assert found[0][2] == found[2][2] != found[1][2] == found[3][2]


def test_a_file_for_one_agent_does_not_name_the_other_run(
    two: tuple[SavedRun, SavedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    view(args(two, eyes="bob"))
    assert capsys.readouterr().out == f"{two[0].path / 'view-bob-beside.html'}\n"


def test_what_one_agent_may_read_of_both_has_nothing_else(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / each, canaries().entries, alice="rolecanary", bob="role") for each in "ab"]
    found = page(beside(runs[:1], runs[1:], PageSelection("bob")))
    head = blocks(found)["head"]
    assert "canary" not in found
    assert [talk["group"] for talk in head["talks"]] == ["first run", "second run"]
    assert runs[0].info.id not in found
    assert not {"runs"} & head.keys()
    with pytest.raises(AudienceError):
        beside(runs[:1], runs[1:], PageSelection("bert"))


def test_the_command_writes_it_beside_the_first_run(
    two: tuple[SavedRun, SavedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = two
    view(args(two))
    file = first.path / f"view-beside-{second.path.name}.html"
    assert capsys.readouterr().out == f"{file}\n"
    assert len(blocks(file.read_text())) == 3


def test_bad_input_is_one_clear_error(two: tuple[SavedRun, SavedRun]) -> None:
    for serve in (False, True):
        with pytest.raises(BadParameter, match="is a file; give two runs"):
            view(args(two, beside=str(two[1].path / "run.json"), serve=serve))
    with pytest.raises(RecordNotFound):
        view(args(two, beside="nowhere"))


@pytest.mark.browser
def test_messages_are_paired_and_words_that_differ_are_marked(two: tuple[SavedRun, SavedRun], tmp_path: Path) -> None:
    script = (DRIVEN / "beside.js").read_text()
    whole = page(beside([two[0]], [two[1]], PageSelection()))
    found = driven(whole, script, tmp_path, "--window-size=1280,3000")
    assert found["tab"] == "beside"
    same = [["scenario.0"] * 2, ["bob.0"] * 2]
    other = [["alice.0", None], ["bob.1"] * 2, [None, "alice.1"]]
    assert found["pairs"] == [same[0], other[0], same[1], *other[1:]]
    assert found["marks"] == [[], [], [], ["1", "very ", "2"], []]
    assert found["folded"] == other
    assert found["count"].startswith("3 messages in both, 1 with other words; 1 only on the left, 1 only on the right")
    assert found["table"]["status"][:2] == ["done", "done"]
    assert found["table"]["time of all calls"] == ["3.0 s", "4.0 s", "+33%"]
    assert found["table"]["readings"][0] == "all 5 readings clean"
    assert found["gone"] == ["alice.1", "1", "talk"]


@pytest.mark.browser
def test_a_game_of_one_folder_is_beside_that_of_the_same_cell_in_the_other(tmp_path: Path) -> None:
    sides = [
        [recorded(tmp_path / side / cell, islands().entries, alice="agent", bob="agent") for cell in ("x", "y")]
        for side in ("a/cmp", "b/cmp")
    ]
    whole = page(beside(sides[0], sides[1], PageSelection(), ("one", "two")))
    script = 'left.heads = all(".sheet thead th").map((cell) => cell.textContent);'
    for game in range(4):
        heads = driven(whole, script, tmp_path, at=f"#game={game}&view=beside")["heads"]
        (one, two) = (head.partition(": ") for head in heads[:2])
        assert (one[0], two[0]) == (("one", "two"), ("two", "one"))[game // 2]
        assert one[2] == two[2]

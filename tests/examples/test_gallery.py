"""The societies of the gallery: each plays to its end, leaks nothing under enforce, and has its page in the docs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentcho import RunConfig, Scenario
from agentcho.audit.audit import audit_run
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.message import audience
from agentcho.records.record import SavedRun, find
from agentcho.viewer.page import page
from agentcho.viewer.page_content import page_content
from tools.gallery import societies

ROOT = Path(__file__).parents[2]
GALLERY = ("code_review", "auction", "mediator", "intake", "red_team", "jury", "market", "classroom")


def played(name: str, folder: Path, given: Mapping[str, Any] | None = None, **how: Any) -> SavedRun:
    """The record of one game of an example, with options of the scenario."""
    scenario: Scenario = library.scenario(str(ROOT / "examples" / f"{name}.py"))(**(given or {}))
    result = play(RunRequest(scenario, RunConfig(model="fake", seed=1, **how), out=folder))
    assert not result.errors
    [over] = result.games
    assert over.ended is None
    assert scenario.score(scenario.Outcome(**(over.outcome or {})))
    return find("last", folder)


@pytest.mark.parametrize("name", GALLERY)
def test_each_is_played_leaks_nothing_and_has_a_page(name: str, tmp_path: Path) -> None:
    run = played(name, tmp_path)
    assert audit_run(run).conclusion == "clean" or not any(
        finding.level == "error" for finding in audit_run(run).findings
    )
    whole = page(page_content([run]))
    assert all(agent in whole for agent in run.info.cast)


@pytest.mark.parametrize("name", GALLERY)
def test_each_leaks_where_plain_reuse_is_asked_for_and_secrets_are_spoken_over(name: str, tmp_path: Path) -> None:
    """All leak except those in which nobody reads words spoken over another agent's secret."""
    leaks = any(finding.level == "error" for finding in audit_run(played(name, tmp_path, leakage="audit")).findings)
    assert leaks is (name not in ("auction", "market"))


def test_bids_and_hospital_files_stay_with_whom_they_are_for(tmp_path: Path) -> None:
    (entries,) = played("auction", tmp_path / "auction").games().values()
    bids = [entry.message for entry in entries if entry.message.kind == "decode"]
    assert {str(message.author): message.audience for message in bids} == {
        name: audience([name, "broker"]) for name in ("ann", "bob", "carol")
    }
    (entries,) = played("intake", tmp_path / "intake").games().values()
    (file,) = [entry.message for entry in entries if entry.message.text.startswith("Patient file")]
    assert file.audience == audience(["nurse", "specialist"])
    letter = entries[-1].message
    assert (letter.author, file.id in letter.parents) == ("compiler", False)


def test_the_gallery_shows_each(tmp_path: Path) -> None:
    shown = re.findall(r"literalinclude:: \.\./examples/(\w+)\.py", (ROOT / "docs" / "gallery.md").read_text())
    assert shown == ["werewolf", *GALLERY]


def test_every_example_stands_on_a_page_so_that_a_search_finds_its_code() -> None:
    pages = "\n".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    shown = re.findall(r"literalinclude(?:::|\}) (?:\.\./)+examples/(\S+)", pages)
    assert set(shown) == {file.name for file in (ROOT / "examples").iterdir() if file.is_file()}


def test_each_society_of_the_page_has_its_picture() -> None:
    text = (ROOT / "docs" / "gallery.md").read_text()
    shown = societies(text)
    assert {*GALLERY, "werewolf"} == shown.keys()
    for name, (title, words) in shown.items():
        assert words[:2] == ["run", f"examples/{name}.py"]
        assert f"![{title}, in the viewer](gallery/{name}.png)" in text
        assert (ROOT / "docs" / "gallery" / f"{name}.png").read_bytes().startswith(b"\x89PNG")

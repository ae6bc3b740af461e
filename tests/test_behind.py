"""How far figures are behind is counted in commits; where it cannot be told, that is said, and nothing fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentcho.records.environment import source_digest
from tests.behind import MEASURED, ROOT, Age, Figures, age, figures, table, told, warnings


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")
    ran = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def commit(folder: Path, file: str) -> str:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(file)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", file)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


def result(folder: Path, name: str, commit: str | None) -> None:
    (folder / "docs" / "results").mkdir(parents=True, exist_ok=True)
    where = {"machine": {"commit": commit}} if commit else {"machine": {}}
    (folder / "docs" / "results" / name).write_text(json.dumps({"figures": [1], **where}))


def test_commits_are_counted_and_those_that_touch_what_was_measured(repository: Path) -> None:
    first = commit(repository, "agentcho/engine/a.py")
    for file in ("docs/x.md", "agentcho/engine/b.py", "agentcho/lab/bench/c.py", "agentcho/display/d.py"):
        commit(repository, file)
    result(repository, "bench-step.json", first)
    result(repository, "compare-debate.json", git(repository, "rev-parse", "HEAD"))
    ages = [(one, age(one, repository)) for one in figures(repository / "docs")]
    assert [found for _, found in ages] == [Age(4, 2), Age(0, 0)]
    assert list(table(ages)) == [
        "docs/speed.md",
        f"  bench-step.json: of {first[:10]}, 4 commits ago, 2 of them in what it measures",
        "docs/comparisons.md",
        "  compare-debate.json: of this commit",
    ]
    (warning,) = warnings(ages)
    assert warning.startswith("warning: docs/speed.md is behind: bench-step.json: of ")


def test_what_differs_of_the_code_that_a_result_ran_is_listed(repository: Path) -> None:
    """By digests, whatever the commits say: of one that moves nothing, of one that nobody committed, of none at all."""
    commit(repository, "agentcho/engine/a.py")
    commit(repository, "scenarios/b.py")
    names = ("agentcho/engine", "scenarios/b.py")
    ran = " ".join(f"{name}:{source_digest(repository, name)}" for name in names)
    folder = repository / "docs" / "results"
    folder.mkdir(parents=True)
    for name, commit_ in (("bench-step.json", git(repository, "rev-parse", "HEAD")), ("bench-room.json", None)):
        (folder / name).write_text(json.dumps({"machine": {"modules": ran} | ({"commit": commit_} if commit_ else {})}))

    def ages() -> list[tuple[Figures, Age]]:
        return [(one, age(one, repository)) for one in figures(repository / "docs")]

    git(repository, "commit", "-q", "--allow-empty", "-m", "nothing")
    assert [found.differ for _, found in ages()] == [(), ()]
    assert list(warnings(ages())) == []
    assert "all that it ran is as it was" in told(*ages()[1])
    (repository / "agentcho" / "engine" / "a.py").write_text("changed")
    (repository / "agentcho" / "engine" / "notes.txt").write_text("no code")
    assert [found.differ for _, found in ages()] == [names[:1], names[:1]]
    (repository / "scenarios" / "b.py").unlink()
    (room, step) = ages()
    assert (room[1].differ, step[1].differ) == (names, names)
    assert told(*step).endswith("; of what it ran differ: agentcho/engine, scenarios/b.py")
    (warning,) = warnings([step])
    assert warning.startswith("warning: docs/speed.md is behind: bench-step.json")


def test_a_result_holds_digests_of_the_folders_and_scenarios_that_ran() -> None:
    """Those of code that was never loaded are not among them."""
    code = (
        "import json\nfrom agentcho.games import library\nfrom agentcho.records.environment import sources\n"
        "library.scenario('direct')\nprint(json.dumps(sources()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    named = dict(each.split(":") for each in json.loads(ran.stdout)["modules"].split())
    assert {"agentcho/games", "agentcho/records", "scenarios/direct.py"} <= named.keys()
    assert not {"agentcho/runner", "agentcho/lab/bench", "scenarios/debate.py"} & named.keys()
    assert all(digest == source_digest(ROOT, name) for name, digest in named.items())


def test_what_cannot_be_told_is_said(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    first = commit(repository, "a")
    commit(repository, "b")
    clone = tmp_path_factory.mktemp("clone") / "it"
    git(repository, "clone", "-q", "--depth", "1", f"file://{repository}", str(clone))
    bare = tmp_path_factory.mktemp("bare")
    for folder, commit_, why in (
        (repository, None, "does not say"),
        (repository, "0" * 40, "has no commit"),
        (clone, first, "is shallow"),
        (bare, first, "no repository"),
    ):
        one = Figures("speed.md", "bench-step.json", commit_, ("a",))
        found = age(one, folder)
        assert why in found.why
        assert "cannot tell" in told(one, found)
        assert next(warnings([(one, found)])).startswith("warning: cannot tell")


def test_every_result_file_stands_on_a_page_and_names_its_commit() -> None:
    found = {one.file: one.commit for one in figures(ROOT / "docs")}
    files = {file.name for file in (ROOT / "docs" / "results").glob("*.json")}
    assert files <= found.keys()
    assert all(found.values())
    for page, _ in MEASURED.values():
        assert (ROOT / "docs" / page).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--warn"]])
def test_it_never_fails(options: list[str]) -> None:
    ran = subprocess.run([sys.executable, "-m", "tests.behind", *options], cwd=ROOT, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")

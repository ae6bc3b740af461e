"""A page that shows a result older than the code has to say so, by digests of syntax trees and by commits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from agentcho.records.environment import digest_unit, source_digests, tree_digest
from tools import backfill
from tools.pages.behind import AWAITED, MEASURED, ROOT, Age, Checkout, by_page, faults, results, rounded, told, with_age
from tools.pages.marks import AGE, between

PAGE = f"# Speed\n\n<!-- {AGE} -->\n<!-- end of {AGE} -->\n\nWords.\n"
STEP = "def step(rows: int) -> int:\n    return rows + 1\n"


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")
    ran = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def commit(folder: Path, file: str, text: str) -> str:
    write(folder, file, text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", file)
    return git(folder, "rev-parse", "HEAD")


def write(folder: Path, file: str, text: str) -> None:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with engine code and a result measured with it."""
    git(tmp_path, "init", "-q")
    first = commit(tmp_path, "agentcho/engine/core.py", STEP)
    held = {"machine": {"commit": first, "trees": f"agentcho/engine:{tree_digest(tmp_path, 'agentcho/engine')}"}}
    commit(tmp_path, "docs/results/bench-step.json", json.dumps(held))
    return tmp_path


def age(folder: Path) -> Age:
    (one,) = results(folder / "docs")
    return Checkout(folder).age(one)


def wrong(text: str, found: Age) -> list[str]:
    return list(faults("speed.md", text, {"bench-step": found}))


def test_what_changes_no_digest_ages_nothing(repository: Path) -> None:
    commit(repository, "agentcho/engine/core.py", STEP.replace("rows", "each").replace("step", "advance") + "# more\n")
    commit(repository, "agentcho/display/shown.py", "print()\n")
    assert age(repository) == Age((), 0)
    assert wrong(PAGE, age(repository)) == []


def test_a_folder_that_is_renamed_ages_nothing_and_one_that_is_gone_does(repository: Path) -> None:
    git(repository, "mv", "agentcho/engine", "agentcho/motor")
    git(repository, "commit", "-qm", "moved")
    assert age(repository).differ == ()
    git(repository, "rm", "-rq", "agentcho/motor")
    write(repository, "agentcho/other.py", "x = 1\n")
    assert age(repository).differ == ("agentcho/engine",)


def test_commits_that_touch_what_was_measured_are_counted(repository: Path) -> None:
    for number in range(2, 5):
        commit(repository, "agentcho/engine/core.py", STEP.replace("1", str(number)))
        commit(repository, "docs/x.md", str(number))
    assert age(repository) == Age(("agentcho/engine",), 3)
    assert wrong(PAGE, age(repository)) == ["speed.md: does not say that bench-step is older than agentcho/engine"]
    page = with_age(PAGE, {"bench-step": age(repository)})
    assert "bench-step (by at least 2 commits)" in (between(page, AGE) or "")
    assert wrong(page, age(repository)) == []


def test_many_older_results_are_counted_and_their_names_folded_away() -> None:
    few, many = ({f"bench-{number}": Age(("agentcho/engine",), 2) for number in range(count)} for count in (3, 4))
    many |= {"bench-new": Age((), 0)}
    folded = with_age(PAGE, many)
    assert "<details>" not in with_age(PAGE, few)
    assert "<summary>4 of the 5 results shown here are older than the code that they measure.</summary>" in folded
    assert list(faults("speed.md", folded, many)) == []
    assert with_age(folded, {name: Age((), 0) for name in many}) == PAGE


def test_what_nobody_has_committed_counts_as_one(repository: Path) -> None:
    write(repository, "agentcho/engine/core.py", STEP.replace("1", "2"))
    assert age(repository) == Age(("agentcho/engine",), 1)


@pytest.mark.parametrize(("commits", "right"), [(1, False), (2, True), (7, True), (8, False)])
def test_a_number_stands_until_it_is_wrong_or_there_are_four_times_as_many(commits: int, right: bool) -> None:
    page = with_age(PAGE, {"bench-step": Age(("agentcho/engine",), 2)})
    assert (wrong(page, Age(("agentcho/engine",), commits)) == []) is right


def test_a_page_that_calls_a_result_older_than_it_is_fails_too() -> None:
    page = with_age(PAGE, {"bench-step": Age(("agentcho/engine",), 2)})
    assert wrong(page, Age((), 0)) == ["speed.md: says that bench-step is older than the code, and it is not"]
    assert with_age(page, {"bench-step": Age((), 0)}) == PAGE
    assert list(faults("speed.md", page, {})) == ["speed.md: says how old bench-step is, and does not show it"]
    assert wrong("# Speed\n", Age((), 0))[0].startswith("speed.md: has no <!-- age -->")


def test_without_a_whole_history_digests_decide_and_no_number_is_checked(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    commit(repository, "agentcho/engine/core.py", STEP.replace("1", "2"))
    page = with_age(PAGE, {"bench-step": age(repository)})
    clone = tmp_path_factory.mktemp("clone") / "it"
    git(repository, "clone", "-q", "--depth", "1", f"file://{repository}", str(clone))
    bare = tmp_path_factory.mktemp("bare")
    git(repository, "archive", "-o", str(bare / "all.tar"), "HEAD")
    subprocess.run(["tar", "xf", "all.tar"], cwd=bare, check=True)
    for folder, why in ((clone, "shallow"), (bare, "no git")):
        found = age(folder)
        assert (found.differ, found.commits) == (("agentcho/engine",), None)
        assert why in found.why
        assert wrong(page, found) == []
        assert len(wrong(PAGE, found)) == 1
        assert "by how many commits is not known" in told({"bench-step": found})


def test_numbers_are_written_coarsely() -> None:
    asked = (1, 2, 4, 5, 9, 10, 49, 50, 199, 200, 1234)
    assert [rounded(each) for each in asked] == [1, 2, 2, 5, 5, 10, 20, 50, 100, 200, 1000]


def test_every_result_names_its_commit_holds_digests_and_stands_on_pages_that_have_room_for_its_age() -> None:
    found = list(results(ROOT / "docs"))
    assert {one.name for one in found} == {file.stem for file in (ROOT / "docs/results").glob("*.json")}
    for one in found:
        assert one.commit, one.name
        assert one.measured, one.name
    for page in by_page((one, Age((), 0)) for one in found):
        assert between((ROOT / "docs" / page).read_text(), AGE) is not None, page
    assert {begins for begins in MEASURED if not any(one.name.startswith(begins) for one in found)} <= AWAITED


def test_digests_of_code_that_has_run_are_those_of_the_checkout() -> None:
    """Code that was never loaded has no digest."""
    code = (
        "import json\nfrom agentcho.games.runs import library\n"
        "from agentcho.records.environment import source_digests\n"
        "library.scenario('direct')\nprint(json.dumps(source_digests()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    named = dict(each.split(":") for each in json.loads(ran.stdout)["trees"].split())
    assert {"agentcho/games/runs/library.py", "agentcho/records", "scenarios/direct.py"} <= named.keys()
    assert not {"agentcho/runner", "agentcho/lab/bench", "scenarios/debate.py"} & named.keys()
    assert all(digest == tree_digest(ROOT, name) for name, digest in named.items())


def test_digests_of_given_files_are_of_those_alone() -> None:
    """For measurements that other processes make."""
    files = [ROOT / "agentcho/games/runs/library.py", ROOT / "agentcho/engine/core.py"]
    named = dict(each.split(":") for each in source_digests(files)["trees"].split())
    assert named == {name: tree_digest(ROOT, name) for name in ("agentcho/games/runs/library.py", "agentcho/engine")}


def filled(repository: Path, machine: Mapping[str, str]) -> dict[str, str]:
    code = backfill.at(machine["commit"].removesuffix("-dirty"), repository)
    held = json.dumps({"machine": machine, "figures": [1.5]}, indent=1)
    after = json.loads(backfill.filled("bench-step.json", held, code))
    assert after["figures"] == [1.5]
    found: dict[str, str] = after["machine"]
    return found


def test_a_result_without_digests_gets_those_of_its_commit(repository: Path) -> None:
    first = git(repository, "rev-list", "--max-parents=0", "HEAD")
    then = tree_digest(repository, "agentcho/engine")
    commit(repository, "agentcho/engine/core.py", STEP.replace("1", "2"))
    found = filled(repository, {"commit": first, "torch": "2"})
    assert (found["trees"], found["trees_from"], found["torch"]) == (f"agentcho/engine:{then}", "commit", "2")
    assert filled(repository, {"commit": f"{first}-dirty"})["trees_from"].startswith("commit, before")


def test_digests_of_bytes_become_digests_of_trees_where_the_commit_has_these_bytes(repository: Path) -> None:
    first = git(repository, "rev-list", "--max-parents=0", "HEAD")
    bytes_then = backfill.at(first, repository).by_bytes("agentcho/engine")
    found = filled(repository, {"commit": first, "modules": f"agentcho/engine:{bytes_then}"})
    assert found["trees"] == f"agentcho/engine:{tree_digest(repository, 'agentcho/engine')}"
    assert "modules" not in found
    with pytest.raises(ValueError, match="other code than its commit has: agentcho/engine"):
        filled(repository, {"commit": first, "modules": "agentcho/engine:000000000000"})


def test_code_is_named_by_file_or_by_folder() -> None:
    named = ("scenarios/direct.py", "agentcho/provenance/declassification.py", "agentcho/engine")
    files = ("scenarios/direct.py", "agentcho/provenance/declassification.py", "agentcho/engine/core.py")
    assert tuple(digest_unit(Path(file)) for file in files) == named

"""Results of comparisons and sweeps on their pages, where an agent's view permits; other files are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentcho.audit.measurement import Interval
from agentcho.cli.view import ViewArgs, view
from agentcho.errors import ConfigError, RecordBroken
from agentcho.lab.compare.compare import read_comparison
from agentcho.lab.compare.comparison import Cost, Fidelity
from agentcho.lab.compare.files import write_json
from agentcho.lab.display.compare import text
from agentcho.lab.display.viewer import of_folder, of_result
from agentcho.lab.stats import Median
from agentcho.viewer.live import LiveRecords, PageVersions
from agentcho.viewer.page import page
from agentcho.viewer.page_content import PageSelection, page_content, target

from .pages import blocks
from .test_browser import driven, judged

KEPT = Path(__file__).parents[1] / "fixtures" / "formats"
AUDIT = "choreographed:audit"


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    """The folder of a comparison with every kind of figure."""
    folder = shutil.copytree(KEPT / "compare", tmp_path / "compared")
    half = Median(middle=0.5, least=0.4, largest=0.6)
    cost = Cost(encoded=[7, 8], ttft=[0.1], seconds=[1.0], ttft_ratio=half, seconds_ratio=half)
    span = Interval(low=0.01, high=0.04, method="bootstrap")
    found = read_comparison(folder / "compare.json").model_copy(
        update={
            "costs": {AUDIT: cost},
            "fidelity": {AUDIT: Fidelity(games=2, rows=9, kl=0.0213, span=span, agree=0.75)},
            "without": {"baseline": 1, AUDIT: 0},
            "calls": {"baseline": 1, AUDIT: 2},
        }
    )
    write_json(found, folder / "compare.json")
    return folder


def head_of(shown: Any) -> dict[str, Any]:
    head: dict[str, Any] = blocks(page(shown))["head"]
    return head


def test_the_figures_of_a_comparison_are_on_its_page_and_its_columns_have_their_names(compared: Path) -> None:
    head = head_of(page_content(target(str(compared), compared), figures=of_folder(compared)))
    assert (head["run"], list(dict.fromkeys(each["group"] for each in head["talks"]))) == (
        "comparison",
        ["baseline", AUDIT],
    )
    metrics, fidelity, costs = head["figures"]["tables"]
    assert metrics["rows"][0][:2] == ["length", "baseline"]
    assert metrics["rows"][0][2].startswith("7.500 (")
    assert metrics["rows"][1][:2] == ["", AUDIT]
    assert metrics["rows"][1][3][0] in "+-"
    [row] = fidelity["rows"]
    assert (row[0], row[2:]) == (
        AUDIT,
        ["0.0213 (0.0100 to 0.0400)", "75.0%", "x 0.50 (0.40 to 0.60)", "fast, but changed"],
    )
    assert costs["rows"][0][:2] == [AUDIT, "15"]
    assert head["figures"]["notes"] == [
        "baseline: 1 game ended without an outcome and is not in any pair",
        "each column made its own tool calls, and the tools may have answered differently; calls: 1 in baseline, "
        f"2 in {AUDIT}",
    ]


def test_a_result_is_shown_with_its_games_or_alone_where_they_are_not(compared: Path, tmp_path: Path) -> None:
    whole = of_result(compared / "compare.json")
    assert whole is not None
    assert len(whole.talks) == 4
    alone = Path(shutil.copy(compared / "compare.json", tmp_path / "r.json"))
    found = of_result(alone)
    assert found is not None
    assert (found.talks, len(head_of(found)["figures"]["tables"])) == ((), 3)
    with pytest.raises(ConfigError, match="give the folder of its games"):
        of_result(alone, PageSelection("alice"))


def test_what_one_agent_may_read_has_no_figures_and_no_names_of_columns(compared: Path) -> None:
    runs = target(str(compared), compared)
    (reader, *_) = runs[0].info.cast
    found = page(page_content(runs, PageSelection(reader), figures=of_folder(compared)))
    head = blocks(found)["head"]
    assert "figures" not in head
    assert {each["group"] for each in head["talks"]} == {"part 1", "part 2"}
    for word in (AUDIT, "baseline", "0.0213", "length"):
        assert word not in str(blocks(found))


def test_before_the_end_columns_have_names_and_there_are_no_figures(compared: Path) -> None:
    (compared / "compare.json").unlink()
    head = head_of(page_content(target(str(compared), compared), figures=of_folder(compared)))
    assert (head["figures"], head["talks"][-1]["group"]) == (None, AUDIT)


def test_a_folder_that_is_served_has_what_comes_meanwhile(compared: Path, tmp_path: Path) -> None:
    later = {name: (compared / name).rename(tmp_path / name) for name in ("compare.json", "choreographed-audit")}
    source = LiveRecords(str(compared), compared, None, of_folder)

    def head() -> dict[str, Any]:
        state = source.data(0, PageVersions())
        assert state is not None
        found: dict[str, Any] = json.loads(state)["head"]
        return found

    assert (len(head()["talks"]), head()["figures"]) == (2, None)
    for name, path in later.items():
        path.rename(compared / name)
    assert (len(head()["talks"]), len(head()["figures"]["tables"])) == (4, 3)


@pytest.mark.browser
def test_the_page_opens_at_its_figures_and_goes_on_to_its_talks(compared: Path, tmp_path: Path) -> None:
    script = """
    const tab = () => document.querySelector('[aria-selected="true"]').dataset.view;
    left.first = tab(); left.tables = all(".sheet table").map((table) => table.querySelectorAll("tbody tr").length);
    left.games = all("#games optgroup").map((group) => group.label); left.eyes = document.querySelector("#eyes").hidden;
    left.wide = all(".sheet").some((sheet) => sheet.scrollWidth > sheet.clientWidth);
    const [games, seen] = ["#games", "#seen"].map((each) => document.querySelector(each));
    press("]"); left.second = [tab(), games.value, seen.textContent];
    press("j"); press("0"); left.back = [tab(), document.querySelector("#detail").hidden];
    press("j"); left.talk = [tab(), document.querySelector("#detail").hidden];
    """
    whole = page(page_content(target(str(compared), compared), figures=of_folder(compared)))
    left = driven(whole, script, tmp_path, "--window-size=1280,800")
    assert (left["first"], left["tables"], left["games"]) == ("figures", [2, 1, 1], ["baseline", AUDIT])
    assert (left["eyes"], left["wide"], left["second"][:2]) == (True, False, ["talk", "1"])
    assert left["second"][2].startswith("baseline: ")
    assert (left["back"], left["talk"]) == (["figures", True], ["talk", False])


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_figures(compared: Path, tmp_path: Path, theme: str) -> None:
    whole = page(page_content(target(str(compared), compared), figures=of_folder(compared)))
    left = judged(whole, [[]], tmp_path, theme)
    assert (left["first"], left["passed"] > 10, left["contrast"]) == ([], True, 1)


def test_without_a_score_it_is_said_how_to_give_one(compared: Path) -> None:
    found = read_comparison(compared / "compare.json").model_copy(update={"metrics": ()})
    write_json(found, compared / "compare.json")
    figures = of_folder(compared)
    assert figures is not None
    assert "Give the scenario a method score(self, outcome)" in figures.notes[0]
    assert "metrics" not in text(found)
    early = found.model_copy(update={"without": dict.fromkeys(found.names, found.request.games)})
    assert "score(self" not in text(early), "they would have one, had they come to an outcome"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("compare.csv", "cannot be shown as a page; give its folder, "),
        ("baseline/*/transcript.jsonl", "is one file of a record; give its folder, "),
        ("baseline/*/run.json", "is one file of a record; give its folder, "),
        ("../other.txt", r"cannot be shown as a page; give a run, a folder of runs, the .json of a comparison"),
        ("../newer.json", "is not a comparison of this version; the command that made it writes it anew"),
    ],
)
def test_another_file_is_refused_with_what_to_give_instead(compared: Path, name: str, told: str) -> None:
    (compared.parent / "other.txt").write_text("words")
    (compared.parent / "newer.json").write_text('{"format": "agentcho-comparison/9"}')
    (file,) = compared.glob(name) if "*" in name else [compared / name]
    with pytest.raises(RecordBroken, match=told) as error:
        view(ViewArgs(str(file), None, None, compared / "view.html", False, 0, False, compared))
    assert "delete that line" not in str(error.value)

"""Claims of single pages are true. `test_site.py` shows that their code blocks work."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from agentcho.cli import main
from agentcho.engine.lora_adapter import AdapterTraining
from agentcho.games.runs.discovery import Found, listing
from agentcho.lab.compare.compare import read_comparison
from agentcho.lab.leaks.result import Row, read_leaks
from agentcho.tasks import task_set
from agentcho.tasks.formats import formats
from agentcho.tasks.sets import TaskSet, generators
from agentcho.tasks.task import Problem
from agentcho.testing import FakeEngine
from tools import scenario_pages
from tools.pages import cli, families
from tools.pages.reuse import with_methods

from .engine.families import families as all_families
from .engines import Engines

pytestmark = pytest.mark.usefixtures("one_command_line")
DOCS = Path(__file__).parents[1] / "docs"
TUNING = DOCS / "how-to" / "tune.md"
OWN = DOCS / "how-to" / "write-a-scenario.md"
TASKS = DOCS / "how-to" / "tasks.md"
APART = {"agentdojo", "axe-alone", "textarena", "transformers", "vllm"}
"""Environments that are not for clients of the server."""
LIBRARIES = {"numpy", "pandas", "pyarrow", "reactivex"}
"""Libraries that clients need and do not install."""
SCENARIOS = [page for page in sorted((DOCS / "scenarios").glob("*.md")) if page.stem != "index"]


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in re.findall(r"```(\w+)\n(.*?)```", page.read_text(), re.DOTALL) if found == language]


def test_the_page_on_repair_lists_the_reuse_methods_as_they_are() -> None:
    page = (DOCS / "how-to" / "repair.md").read_text()
    assert with_methods(page) == page, "run `make methods`"
    assert "| `kvcomm`, `kvcomm:0.3` |" in page


def test_the_reference_of_the_command_line_has_every_command_as_it_is() -> None:
    text = (DOCS / "cli.md").read_text()
    assert text == cli.page(), "run `make cli`"
    assert {"run", "compare", "bench workflows", "new scenario"} <= set(re.findall(r"^## agentcho (.*)$", text, re.M))


@pytest.mark.slow
def test_every_command_of_the_page_on_training_works_on_few_games(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = engines.understudy()
    commands = [line.strip() for block in blocks(TUNING, "console") for line in block.splitlines() if line.strip()]
    assert len(commands) == 7
    for line in (command.removeprefix("$ ") for command in commands):
        loaded = engine if "tune" in line else FakeEngine()
        monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", lambda config, tell=None, loaded=loaded: loaded)
        few = re.sub(r" -n \d+", "", line) + (" --epochs 1" if " tune " in line else " -n 4")
        few += " --choose-games 2" if "--choose-by" in line else ""
        monkeypatch.setattr(sys, "argv", shlex.split(few))
        with pytest.raises(SystemExit) as end:
            main()
        assert (end.value.code or 0) == 0, f"{few}: {capsys.readouterr().err}"


def test_the_scenario_of_ones_own_is_short() -> None:
    (code,) = blocks(OWN, "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 34


def test_every_workflow_has_a_page_with_its_name_and_its_options() -> None:
    shipped = {found.name for found in listing("scenarios") if isinstance(found, Found)}
    assert {page.stem for page in SCENARIOS} == shipped
    for page in SCENARIOS:
        assert page.read_text().startswith(f"# {page.stem}: ")


def test_the_page_on_clients_says_with_which_versions_they_were_tried() -> None:
    told = " ".join((DOCS / "clients.md").read_text().split())
    for file in (DOCS.parent / "tests/clients/environments").glob("*.txt"):
        pinned = re.findall(r"^([\w-]+)\S*==(\S+)$", file.read_text(), re.MULTILINE)
        for name, version in pinned if file.stem not in APART else ():
            assert name in LIBRARIES or re.search(rf"{name}( and [\w-]+)? {re.escape(version)}\b", told), name


def parts_of(page: Path) -> dict[str, str]:
    return dict(re.findall(r"<!-- (\w+) -->\n\n(.*?)\n\n<!-- end of \1 -->", page.read_text(), re.DOTALL))


@pytest.mark.parametrize("page", SCENARIOS, ids=lambda page: page.stem)
def test_a_scenarios_page_has_its_options_and_a_game_of_each_way(page: Path) -> None:
    made = parts_of(page)
    assert made["options"] == scenario_pages.options(page.stem), "run python -m tools.scenario_pages"
    assert "\n\noutcome\n" in made["transcript"]
    assert all(f"`--leakage {way}`" in made["audit"] for way in ("audit", "enforce"))
    assert max(map(len, made["transcript"].splitlines()[2:])) <= scenario_pages.WIDTH


@pytest.mark.slow
@pytest.mark.parametrize("name", ["direct", "prisoners-dilemma"])
def test_what_a_scenarios_page_tells_of_a_game_is_so(name: str) -> None:
    """Who talks to whom, and the audits' findings; the words themselves differ between machines."""
    made = parts_of(DOCS / "scenarios" / f"{name}.md")
    for part, text in scenario_pages.parts(name, games=True):
        assert [_head(line) for line in text.splitlines()] == [_head(line) for line in made[part].splitlines()], part


def _head(line: str) -> str:
    """Of a transcript line, who speaks to whom; a verdict in full; the first word of other lines."""
    speaks = re.match(r"[\w-]+ (\([\w ]+\)|→ \w+)", line)
    return line if line.startswith(("CLEAN", "LEAKS")) else speaks[0] if speaks else line.strip().split(" ")[0]


def test_the_page_on_tasks_names_every_set_and_its_example_is_one(tmp_path: Path) -> None:
    page = TASKS
    for name in (*generators(), *formats()):
        assert f"| `{name}` |" in page.read_text()
    (tmp_path / "t.jsonl").write_text(blocks(page, "json")[0])
    tasks = task_set(str(tmp_path / "t.jsonl"), Problem)
    assert tasks.size == 2
    assert [json.loads(line) for line in blocks(page, "json")[0].splitlines()]


def test_the_questions_that_are_compared_on_are_none_that_an_adapter_saw() -> None:
    """Another seed's games would not have had other questions: the page on training gives the overlap."""
    asked = read_comparison(DOCS / "results" / "compare-multi-qa.json").request
    trained = AdapterTraining.model_validate_json((DOCS / "results" / "adapter-multi-qa-audit.json").read_bytes())
    count, each = asked.games * asked.options["n"], asked.options["n"]
    traced = (trained.train + trained.dev) * each
    assert asked.tasks == "facts:half=2"
    assert known(asked.tasks, "facts:half=1", count, traced) == 0
    assert "adapters saw none of the questions" in " ".join((DOCS / "comparisons.md").read_text().split())
    told = " ".join((DOCS / "how-to" / "tune.md").read_text().split())
    unsplit = known("facts", "facts", count, traced)
    assert f"of the {count} questions" in told
    assert f"{unsplit} ({unsplit / count:.0%}) stand word for word in {trained.train + trained.dev} games" in told


def known(compared: str, traced: str, count: int, traces: int) -> int:
    """How many of the first questions at seed 0 are among the first traced ones at seed 1."""
    seen = {question(task_set(traced, Problem, 1), number) for number in range(traces)}
    return sum(question(task_set(compared, Problem, 0), number) in seen for number in range(count))


def question(tasks: TaskSet, number: int) -> str:
    task = tasks[number]
    assert isinstance(task, Problem)
    return task.question


def test_the_readme_says_what_attacks_get_of_a_public_sentence() -> None:
    """The stated number at least, for each kind and each way that reuses the authors' encodings; no more elsewhere."""
    found = [read_leaks(DOCS / "results" / file) for file in ("leaks.json", "leaks-earlier.json")]
    rows = [row for each in found for row in each.rows]
    told = " ".join((DOCS.parent / "README.md").read_text().split())
    linear = [row for row in rows if row.attack == "linear" and row.way not in ("audience", "text")]
    assert {row.tested for row in linear} == {500}
    least = min(row.exact for row in linear)
    assert f"a linear probe recovered at least {least} of 500 codes, names, plans or preferences" in told
    assert {row.kind for row in linear} == {"codes", "names", "plans", "preferences"}
    assert {"reuse+cacheblend:0.15", "reuse+kvcomm:1"} <= {row.way for row in linear}
    assert {each.sentence for each in found} == {"forced"}
    assert "([understudy, forced sentence](docs/leakage.md" in told
    assert not more_than_the_text(rows)


def test_attacks_on_the_models_own_words_told_no_more_than_the_text() -> None:
    natural = read_leaks(DOCS / "results" / "leaks-natural.json")
    assert natural.sentence == "natural"
    assert not more_than_the_text(natural.rows)
    assert {row.attack for row in natural.rows if row.unavailable is None} == {"linear", "mlp"}
    assert all(row.p > 0.05 for row in natural.rows if row.way in ("audience", "text") and row.unavailable is None)
    assert all(2 * each.sentences > natural.n for each in natural.secrets), "sentences differ from secret to secret"


def more_than_the_text(rows: Iterable[Row]) -> list[Row]:
    """Rows whose attack does not clear what `enforce` reuses; `asked` and unavailable attacks are ignored."""
    open_ = [row for row in rows if row.way == "audience" and row.verdict != "no more than the text"]
    return [row for row in open_ if row.attack != "asked" and row.unavailable is None]


def test_the_page_on_model_families_has_those_that_tests_run() -> None:
    text = (DOCS / "model-families.md").read_text()
    assert text == families.page(text), "run `make families`"
    assert families.TOLD.keys() == {family.name for family in all_families()}


def test_the_page_on_installing_has_every_extra_and_the_versions_of_python() -> None:
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]
    page = (DOCS / "install.md").read_text()
    extras = re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)
    assert extras == [name for name in project["optional-dependencies"] if name not in ("dev", "docs")]
    assert project["requires-python"] == ">=3.11"
    tried = [name.rpartition(" ")[2] for name in project["classifiers"] if re.search(r"Python :: 3\.\d+$", name)]
    assert f"| Python | {tried[0]}. {tried[1]} and {tried[2]} were tried in part |" in page

"""`agentcho sweep` end to end: the table, sweep files, what is refused before anything is loaded."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from agentcho.audit.measurement import Interval
from agentcho.config import ModelConfig
from agentcho.display.progress import Progress
from agentcho.integrations.endpoints import endpoint
from agentcho.lab.compare.comparison import Difference, Mean, Metric
from agentcho.lab.display.sweep import text
from agentcho.lab.sweep.data import CellResult, GameResult, Row
from agentcho.lab.sweep.result import SweepResult
from agentcho.records.record import SavedRun
from agentcho.testing import FakeEndpoint

from ..viewer.pages import blocks
from .conftest import Command, one_line

SWEEP = ("sweep", "prisoners-dilemma", "--model", "fake", "--set", "rounds=1")
FILE = """\
scenario: prisoners-dilemma
games: 2
model: fake
grid:
  strategy: [none, always-defect]
  temperature: [0, 0.7]
set:
  rounds: 1
out: swept
"""


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a missing extra: no intervals, which are slow to compute, and no picture."""
    monkeypatch.setattr("agentcho.lab.sweep.figures.find_spec", lambda name: None)
    monkeypatch.setattr("agentcho.lab.sweep.run.lacking", lambda: "that is needed: pip install 'agentcho[lab]'")


@pytest.mark.usefixtures("bare")
def test_a_sweep_is_planned_played_printed_and_written(agentcho: Command, here: Path) -> None:
    words = (*SWEEP, "--grid", "strategy=none,always-defect", "--grid", "seed=1,2", "-n", "2", "--out", "s")
    dry = agentcho(*words, "--dry-run")
    assert (dry.code, dry.err, [*here.iterdir()]) == (0, "", [])
    assert dry.out.splitlines()[2].split() == ["none", "1", "2", "0", "2"]
    assert dry.out.splitlines()[-1].startswith("4 cells, 8 games: 0 are over, 8 to play; models, one after the other: ")
    ran = agentcho(*words)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "prisoners-dilemma · 4 cells of 2 games · paired by task and seed · seed 1, 2"
    assert lines[2].split() == ["strategy", "mean", "95", "%", "change", "95", "%", "Holm", "p"]
    assert lines[3] == "alice"
    assert (lines[4].split()[0], lines[4].split()[2]) == ("none", "first")
    assert lines[-3] == "note: that is needed: pip install 'agentcho[lab]'"
    assert lines[-1] == "written: s/sweep.csv, s/games.csv, s/sweep.json"
    assert agentcho("view", "s").out == "s/view.html\n"
    head = blocks((here / "s" / "view.html").read_text())["head"]
    groups = list(dict.fromkeys(talk["group"] for talk in head["talks"]))
    assert groups == [f"strategy={name} seed={seed}" for name in ("none", "always-defect") for seed in (1, 2)]
    first = head["figures"]["tables"][0]
    assert first["columns"][:3] == ["metric", "strategy", "mean"]
    assert [row[:2] for row in first["rows"][:2]] == [["alice", "none"], ["", "always-defect"]]
    assert agentcho("view", "s", "--eyes", "bob", "--html", "b.html").code == 0
    his = blocks((here / "b.html").read_text())["head"]
    assert {talk["group"] for talk in his["talks"]} == {"part 1", "part 2", "part 3", "part 4"}
    assert "figures" not in his
    assert "always-defect" not in json.dumps(his)
    found = json.loads((here / "s" / "sweep.json").read_text())
    assert (found["fixed"]["rounds"], found["fixed"]["model"]) == (1, "fake")
    assert found["command"] == (
        "agentcho sweep prisoners-dilemma --grid strategy=none,always-defect --grid seed=1,2 --games 2 --model fake "
        "--set rounds=..."
    )
    assert agentcho(*words, "--dry-run").out.splitlines()[-1] == "4 cells, 8 games: 8 are over, 0 to play"
    more = agentcho(*words[:-4], "-n", "2", "--out", "s", "--grid", "temperature=0.7,1")
    assert more.code == 0
    assert more.err.startswith("new in the grid: strategy=none seed=1 temperature=1; ")


@pytest.mark.usefixtures("bare")
def test_the_command_of_a_result_repeats_flags_and_values_with_commas(agentcho: Command, here: Path) -> None:
    source = "import agentcho\n\nclass Talk(agentcho.Scenario):\n    class Options(agentcho.Scenario.Options):\n"
    source += "        word: str = 'a'\n\n    async def play(self, game):\n        return self.Outcome()\n"
    (here / "talk.py").write_text(source)
    ran = agentcho("sweep", "talk.py", "--model", "fake", "--deterministic", "--grid", 'word=["a,b","c"]', "--out", "s")
    assert (ran.code, ran.err) == (0, "")
    command = json.loads((here / "s" / "sweep.json").read_text())["command"]
    words = shlex.split(command)
    assert 'word=["a,b", "c"]' in words
    assert "--deterministic" in words
    assert "True" not in words
    assert agentcho(*words[1:], "--dry-run").out.splitlines()[-1].startswith("2 cells, ")


@pytest.mark.slow
@pytest.mark.usefixtures("bare")
def test_a_sweep_of_a_file_is_that_of_the_command_line_and_what_is_typed_wins(agentcho: Command, here: Path) -> None:
    (here / "f.yaml").write_text(FILE)
    ran = agentcho("sweep", "f.yaml", "--filter", "temperature=0", "-n", "1", "--out", "t")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0].startswith("prisoners-dilemma · 2 cells of 1 game ·")
    words = (*SWEEP, "--grid", "strategy=none,always-defect", "--grid", "temperature=0,0.7", "-n", "1", "--out", "t")
    assert agentcho(*words, "--dry-run").out.splitlines()[-1].startswith("4 cells, 4 games: 2 are over, 2 to play")
    assert agentcho("sweep", "f.yaml", "--dry-run", "--grid", "temperature=1").out.count("\n") == 6


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("foo=1",), "grid foo: no such option. prisoners-dilemma has strategy, first,"),
        (("rounds=1,9",), "grid rounds: 9 does not fit: Input should be 1, 2 or 3"),
        (("temperature=0,hot",), "grid temperature: hot does not fit: Input should be a valid number"),
        (("temperature=0,0.0",), "grid temperature: 0.0 is given twice"),
        (("temperature=0,,1",), "grid temperature: a value is empty"),
        (("temperature=",), "grid temperature: a value is empty"),
        (("temperature=[]",), "grid temperature: a value is empty"),
        (("games=1,2",), "grid games: set the number of games per cell with -n"),
        (("part=1/2",), "grid part: a sweep resumes by itself"),
        (("limits=1",), "grid limits: name one of the limits: agent_tokens,"),
        (("agent_tokens=0",), "grid agent_tokens: 0 does not fit"),
        (("first=bob", "--set", "first=alice"), "first is in the grid and also set for all cells"),
        (("seed=1,2", "--seed", "3"), "seed is in the grid and also set for all cells"),
        (("mode=baseline", "--grid", "repair=null,full"), "mode=baseline repair=full: repair needs choreographed"),
        (("max-tokens=1", "--grid", "max_tokens=2"), "max_tokens is in the grid twice"),
        (("seed=1,2", "--filter", "seed=3"), "--filter seed=3: no such value; the grid has 1, 2"),
        (("seed=1,2", "--filter", "lead=3"), "--filter lead=3: give OPTION=VALUE,VALUE or OPTION!=VALUE; axes: seed"),
        (("seed=1,2", "--filter", "seed!=1,2"), "--filter leaves no cell of the grid, which has seed=1|2"),
        (("models=none.toml",), "none.toml cannot be read"),
        (("tasks=facts",), "takes no tasks"),
        (("device=cpu", "--models", "fake"), "model is in the grid and also set for all cells"),
    ],
)
def test_what_is_wrong_with_a_grid_is_said_before_anything_is_loaded(
    agentcho: Command, here: Path, words: tuple[str, ...], told: str
) -> None:
    ran = agentcho(*SWEEP[:4], "--grid", *words, "--out", "s")
    assert told in one_line(ran)
    assert [*here.iterdir()] == []


@pytest.mark.usefixtures("bare")
def test_without_a_folder_it_is_kept_in_a_new_one_that_is_no_run(agentcho: Command, here: Path) -> None:
    ran = agentcho(*SWEEP, "--grid", "seed=1", "-n", "1")
    assert ran.code == 0
    [folder] = (here / "runs").iterdir()
    assert re.fullmatch(r"\d{8}-\d{6}-sweep-prisoners-dilemma", folder.name)
    assert ran.out.splitlines()[-1].startswith(f"written: runs/{folder.name}/sweep.csv")
    assert agentcho("show", "last").err.startswith("error: no run 'last' in runs")


@pytest.mark.usefixtures("no_model")
def test_what_is_wrong_with_options_is_said_before_anything_is_loaded(agentcho: Command, here: Path) -> None:
    def told(*words: str) -> str:
        ran = agentcho("sweep", "prisoners-dilemma", *words)
        assert ran.code == 2
        return " ".join(ran.err.replace("│", " ").split())

    assert "a sweep must vary something; give --grid" in told("--out", "s")
    assert "strategy is given twice" in told("--grid", "strategy=a", "--grid", "strategy=b", "--out", "s")
    assert "'strategy' is not of the form KEY=VALUE" in told("--grid", "strategy", "--out", "s")
    assert "no model 'none/such/place'" in told("--models", "fake,none/such/place", "--out", "s")
    assert "grid model: fake is given twice" in told("--models", "fake,fake", "--out", "s")
    assert "is a model behind an API and needs base_url" in told("--models", "fake,openai:large", "--out", "s")
    (here / "full").write_text("")
    assert "it is a file" in told("--models", "fake", "--out", "full")
    assert [path.name for path in here.iterdir()] == ["full"]


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("games: 2", "games: [", "f.yaml:4: not valid YAML: "),
        ("games: 2", "seed: 1\nseed: 2", "f.yaml:3: seed is given twice, first in line 2"),
        ("temperature: [", "strategy: [", "f.yaml:6: strategy is given twice, first in line 5"),
        ("games: 2", "games: many", "f.yaml:2: games must be a whole number of 1 or more"),
        ("games: 2", "colour: red", "f.yaml:2: unknown key 'colour'; give one of "),
        ("games: 2", "temperature: hot", "f.yaml:2: temperature: Input should be a valid number"),
        ("games: 2", "1: 2", "f.yaml:2: a key must be a string"),
        ("scenario: prisoners-dilemma", "seed: 1", "f.yaml:1: scenario is missing"),
        ("prisoners-dilemma", "none-such", "f.yaml:1: no scenario or agent named 'none-such'"),
        ("[0, 0.7]", "0.7", "f.yaml:6: grid temperature must be a list of values"),
        ("[0, 0.7]", "[0, hot]", "f.yaml:6: grid temperature: hot does not fit"),
        ("[0, 0.7]", "[]", "f.yaml:6: grid temperature: a value is empty"),
        ("temperature: [", "heat: [", "f.yaml:6: grid heat: no such option"),
        ("games: 2", "models: [{model: fake, color: 1}]", "f.yaml:2: models: color: Extra inputs"),
        (FILE, "- 1", "f.yaml:1: not a table"),
        (FILE, "", "f.yaml:1: not a table"),
        (FILE, "a: &a [*a]\nb: \x00", "f.yaml is not valid YAML"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_line(
    agentcho: Command, here: Path, old: str, new: str, told: str
) -> None:
    (here / "f.yaml").write_text(FILE.replace(old, new, 1))
    assert told in one_line(agentcho("sweep", "f.yaml", "--out", "s"))


def test_a_file_that_is_not_there_is_told(agentcho: Command) -> None:
    assert "f.yml cannot be read: No such file or directory" in one_line(agentcho("sweep", "f.yml", "--out", "s"))


@pytest.mark.usefixtures("bare")
def test_a_folder_of_another_sweep_is_refused_with_what_differs(agentcho: Command, here: Path) -> None:
    assert agentcho(*SWEEP, "--grid", "seed=1", "-n", "1", "--out", "s").code == 0
    other = agentcho(*SWEEP, "--grid", "seed=1", "-n", "1", "--out", "s", "--temperature", "0")
    assert one_line(other) == (
        "error: s holds another sweep; what differs: temperature (0.7, not 0.0). "
        "Give another --out, or the same options as before\n"
    )
    compared = here / "c"
    compared.mkdir()
    (compared / "request.json").write_text('{"scenario": "multi-qa"}')
    dry = agentcho(*SWEEP, "--grid", "seed=1", "--out", "c", "--dry-run")
    assert "c/request.json: is not a request of a sweep; give another --out" in one_line(dry)


TABLES = """\
[near]
model = "fake"

[far]
model = "openai:far"
base_url = "http://127.0.0.1:1/v1"
key_env = "FAR"
"""


@pytest.mark.slow
@pytest.mark.usefixtures("bare")
def test_models_behind_apis_stand_in_a_file_and_their_keys_nowhere(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, named = FakeEndpoint(), set[str]()

    def opened(config: ModelConfig, name: str) -> FakeEndpoint:
        named.add(str(config.key_env))
        return port

    monkeypatch.setattr(endpoint, "open_endpoint", opened)
    monkeypatch.setenv("FAR", "sk-secret")
    (here / "models.toml").write_text(TABLES)
    words = ("sweep", "prisoners-dilemma", "--models", "models.toml", "--set", "rounds=1", "-n", "2", "--out", "s")
    ran = agentcho(*words)
    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[0] for line in ran.out.splitlines()[4:6]] == ["near", "far"]
    assert named == {"FAR"}
    kept = [file.read_text() for file in (here / "s").rglob("*") if file.is_file()]
    assert not any("sk-secret" in text for text in kept)
    asked = len(port.calls)
    (here / "models.toml").write_text(TABLES.replace("FAR", "OTHER"))
    again = agentcho(*words)
    assert (again.code, again.err, len(port.calls)) == (0, "", asked), "where a key is decides nothing"
    (here / "models.toml").write_text("[near]\nmodel = 'fake'\ncolour = 'red'\n")
    assert "models.toml: [near] colour: there are model, " in one_line(agentcho(*words))


@pytest.mark.usefixtures("bare")
def test_the_models_of_agents_are_a_file_a_cell(agentcho: Command, here: Path) -> None:
    for name in ("one", "two"):
        (here / f"{name}.toml").write_text('[helper]\nmodel = "fake"\n' * (name == "two"))
    words = (*SWEEP, "--grid", "models=one.toml,two.toml", "-n", "1", "--out", "s")
    ran = agentcho(*words)
    assert (ran.code, ran.err) == (0, "")
    infos = [SavedRun(file.parent).info for file in sorted(here.glob("s/cells/*/*/run.json"))]
    assert sorted(len(info.config.models) for info in infos) == [0, 1]


def test_the_table_fits_into_a_terminal_of_80_columns(tmp_path: Path) -> None:
    names = (
        "models/some-institute/a-model-of-a-long-name-v1",
        "models/some-institute/a-model-of-a-long-name-v2",
    )
    means = {name: Mean(games=9, value=0.512, span=interval(0.12, 0.93)) for name in names}
    change = Difference(games=9, value=-0.1, span=interval(-0.42, 0.21), test="paired bootstrap", p=0.5, holm=0.5)
    rows = tuple(
        Row(name=name, values={"model": name, "strategy": "always-cooperate"}, reference=names[0] if place else None)
        for place, name in enumerate(names)
    )
    metric = Metric(name="a score with a long name", binary=False, means=means, differences={names[1]: change})
    found = SweepResult(
        scenario="known",
        axes={"model": names, "strategy": ("always-cooperate",)},
        fixed={},
        games=9,
        machine={},
        command="",
        cells=tuple(cell(row.name) for row in rows),
        rows=rows,
        metrics=(metric,),
        effects=(),
    )
    whole, cut = text(found).splitlines(), text(found, 80).splitlines()
    assert max(map(len, cut[2:6])) <= 80
    assert max(map(len, whole[2:6])) > 0
    assert cut[4].split()[0] != cut[5].split()[0], "what is cut is still told apart"
    assert cut[5].split()[-1] == "0.500"


def test_without_a_score_it_is_said_how_to_give_one() -> None:
    rows = (Row(name="a", values={"model": "a", "strategy": "always-cooperate"}, reference=None),)
    found = SweepResult(
        scenario="known",
        axes={"model": ("a",)},
        fixed={},
        games=9,
        machine={},
        command="",
        cells=(cell("a"),),
        rows=rows,
        metrics=(),
        effects=(),
    )
    assert "Give the scenario a method score(self, outcome)" in text(found)
    stopped = tuple(game.model_copy(update={"ended": "limit"}) for game in found.cells[0].games)
    early = found.model_copy(update={"cells": (found.cells[0].model_copy(update={"games": stopped}),)})
    assert "score(self" not in text(early), "they would have one, had they come to an outcome"
    assert "9 ended early because of a limit and are not in any mean" in text(early)


def interval(low: float, high: float) -> Interval:
    return Interval(low=low, high=high, method="paired bootstrap")


def cell(row: str) -> CellResult:
    games = tuple(GameResult(number=number, score={}, ended=None, seconds=1) for number in range(9))
    values = {"model": row, "strategy": "always-cooperate"}
    return CellResult(values=values, row=row, seed=0, games=games, failed=0, left=0, error=None, records=())


FAILS = '''
import agentcho

class Fails(agentcho.Scenario):
    """Fails where it is told to."""
    name = "fails"

    class Options(agentcho.Scenario.Options):
        """Where."""
        at: int = -1

    async def play(self, game):
        ann = game.cast(agentcho.Agent, name="ann", system="You are Ann.", audience="everyone")
        await ann.say()
        if game.index == self.options.at:
            raise OSError("the disk of somebody else")
        return self.Outcome()
'''


@pytest.mark.slow
@pytest.mark.usefixtures("bare")
def test_games_that_fail_are_in_the_table_and_the_exit_code_is_1(agentcho: Command, here: Path) -> None:
    (here / "fails.py").write_text(FAILS)
    ran = agentcho("sweep", "fails.py", "--model", "fake", "--grid", "at=-1,1", "-n", "3", "--out", "s")
    assert ran.code == 1
    assert ran.err == "error: 1 game of 1 cell is not over; repeat the command to play only it\n"
    assert [line.split()[:4] for line in ran.out.splitlines()[3:5]] == [
        ["-1", "3", "no", "score"],
        ["1", "2", "of", "3"],
    ]
    assert "at=1: 1 failed with an error, first in game 1: error: OSError" in ran.out
    (here / "fails.py").write_text(FAILS.replace("somebody else", "another"))
    changed = agentcho("sweep", "fails.py", "--model", "fake", "--grid", "at=-1,1", "-n", "3", "--out", "s")
    assert "fails.py has changed)" in one_line(changed)
    words = ("--grid", "at=-1,1", "-n", "3", "--out", "s", "--changed", "accept")
    assert agentcho("sweep", "fails.py", "--model", "fake", *words).code == 1


def test_the_time_left_is_said_from_the_third_game_on_and_loading_in_between_ends_no_count() -> None:
    said: list[str] = []

    class Shown(Progress):
        every = 0.0

        def _show(self, words: str) -> None:
            said.append(words)

    ticks = iter(range(0, 1000, 10))
    told = Shown(lambda: next(ticks), last=-1.0, least=3)
    for done in range(4):
        told.tell("games (a=1)", done, 6)
    told.tell("weights", 1, 2)
    told.tell("games (a=2)", 4, 6)
    assert said == [
        "0 of 6 games (a=1)",
        "1 of 6 games (a=1)",
        "2 of 6 games (a=1)",
        "3 of 6 games, 6.0 games/min, 30 s left (a=1)",
        "1 of 2 weights",
        "4 of 6 games, 4.8 games/min, 25 s left (a=2)",
    ]

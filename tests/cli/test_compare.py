"""`agentcho compare` end to end: what it prints and writes, how it resumes, what it refuses before loading."""

from __future__ import annotations

import json
import re
from math import inf, isnan
from pathlib import Path

import pytest

from agentcho.lab.compare.compare import read_comparison
from agentcho.lab.sweep.files import read_result

from .conftest import Command, one_line

NUMBERS = [
    ("-n", "0"),
    ("--fidelity-games", "-1"),
    ("--temperature", "-1"),
    ("--judge", "understudy"),
    ("--judge", "a/model"),
]
COMPARE = ("compare", "multi-qa", "--model", "fake", "-n", "3")
OWN = '''
"""A guess."""

from __future__ import annotations

import agentcho


class Guesser(agentcho.Agent):
    """Guesses."""

    audience = "everyone"


class Guess(agentcho.Scenario):
    """One agent guesses."""

    name = "guess"
    tasks = "facts"

    class Outcome(agentcho.Scenario.Outcome):
        """Whether it was right."""

        right: bool

    async def play(self, game: agentcho.Game) -> Outcome:
        (problem,) = game.draw()
        ann = game.cast(Guesser, "ann")
        await game.announce(problem.question)
        said = await ann.say()
        return self.Outcome(right=problem.right(said.text))

    def score(self, outcome: Outcome) -> dict[str, float]:
        """1 if so."""
        return {"right": float(outcome.right)}
'''


ODD = """
import agentcho
from math import inf, nan

class Odd(agentcho.Scenario):
    class Options(agentcho.Scenario.Options):
        plus: int = 0

    class Outcome(agentcho.Scenario.Outcome):
        game: int

    async def play(self, game):
        await game.cast(agentcho.Agent, "ann", audience="everyone").say()
        return self.Outcome(game=game.index)

    def score(self, outcome):
        odd = [1.0, inf, nan][outcome.game]
        return {"high": odd, "low": -odd, "some": [0.0, inf, 2.0][outcome.game] + self.options.plus}
"""


@pytest.fixture
def recorded_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores are recorded without a check, as earlier versions did, whose games can be compared."""
    monkeypatch.setattr("agentcho.games.play.playable._number", lambda value, *said: float(value))


@pytest.mark.usefixtures("recorded_as_they_are")
def test_recorded_scores_that_are_not_finite_are_compared_written_and_read(agentcho: Command, here: Path) -> None:
    (here / "odd.py").write_text(ODD)
    ran = agentcho("compare", "odd.py", "--model", "fake", "-n", "3", "--out", "c")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "written: c/compare.csv, c/compare.json, c/compare.png"
    found = read_comparison(here / "c" / "compare.json")
    text = found.model_dump_json(indent=1) + "\n"
    assert (here / "c" / "compare.json").read_text() == text
    assert isnan({metric.name: metric for metric in found.metrics}["high"].means["baseline"].value)
    assert {metric.name: metric for metric in found.metrics}["some"].means["baseline"].value == inf
    assert agentcho("view", "c").code == 0


@pytest.mark.usefixtures("recorded_as_they_are")
def test_a_sweep_of_recorded_scores_that_are_not_finite_is_written_and_read(agentcho: Command, here: Path) -> None:
    (here / "odd.py").write_text(ODD)
    ran = agentcho("sweep", "odd.py", "--model", "fake", "-n", "3", "--grid", "plus=0,1", "--out", "s")
    assert (ran.code, ran.err) == (0, "")
    found = read_result(here / "s" / "sweep.json")
    assert [str(game.score["high"]) for game in found.cells[0].games] == ["1.0", "inf", "nan"]
    assert (here / "s" / "sweep.json").read_text() == found.model_dump_json(indent=1) + "\n"
    assert agentcho("view", "s").code == 0


def test_a_plot_of_what_is_not_measured_is_refused_before_anything_is_played(agentcho: Command, here: Path) -> None:
    ran = agentcho(*COMPARE, "--repair", "all", "--plot", "front.png")
    assert "a plot of fidelity against cost needs both" in one_line(ran)
    assert list(here.iterdir()) == []


@pytest.mark.slow
def test_a_comparison_is_printed_and_with_a_folder_written(agentcho: Command, here: Path) -> None:
    ran = agentcho(*COMPARE, "--out", "c", "--json", "r.json")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "multi-qa · 3 games, paired by task and seed · seed 0 · fake"
    assert any(line.split()[:3] == ["all", "right", "baseline"] for line in lines)
    assert lines[-1] == "written: c/compare.csv, c/compare.json, c/compare.png"
    found = read_comparison(here / "r.json")
    assert found == read_comparison(here / "c" / "compare.json")
    assert found.command.startswith("agentcho compare multi-qa --modes baseline,choreographed:audit")
    assert sorted(path.name for path in (here / "c").iterdir() if path.is_dir()) == [
        "baseline",
        "choreographed-audit",
        "choreographed-enforce",
    ]
    again = agentcho(*COMPARE, "--out", "c")
    assert again.out.splitlines()[:-1] == ran.out.splitlines()[:-1]
    assert len(list((here / "c" / "baseline").iterdir())) == 1


def test_without_a_folder_it_is_kept_in_a_new_one_that_is_no_run(agentcho: Command, here: Path) -> None:
    ran = agentcho(*COMPARE, "--modes", "choreographed:enforce")
    assert (ran.code, ran.err) == (0, "")
    [folder] = (here / "runs").iterdir()
    assert re.fullmatch(r"\d{8}-\d{6}-compare-multi-qa", folder.name)
    assert ran.out.splitlines()[-1].startswith(f"written: runs/{folder.name}/compare.csv")
    again = agentcho(*COMPARE, "--modes", "choreographed:enforce", "--out", f"runs/{folder.name}")
    assert again.out == ran.out
    other = agentcho(*COMPARE, "--modes", "choreographed:audit")  # may start within the same second
    assert other.code == 0
    assert len(list((here / "runs").iterdir())) == 2
    assert agentcho("show", "last").err.startswith("error: no run 'last' in runs")


def test_a_scenario_of_ones_own_is_compared_without_more_code(agentcho: Command, here: Path) -> None:
    (here / "guess.py").write_text(OWN)
    rows = ({"question": "What?", "answer": "that"}, {"question": "Who?", "answer": "she"})
    (here / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ran = agentcho("compare", "guess.py", "--model", "fake", "-n", "2", "--tasks", "t.jsonl", "--json", "r.json")
    assert (ran.code, ran.err) == (0, "")
    request = json.loads((here / "r.json").read_text())["request"]
    assert (request["scenario"], request["tasks"]) == ("guess", "t.jsonl")


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("compare", "multi-qa", "--modes", "fast"), "column 'fast': unknown mode 'fast'"),
        (("compare", "multi-qa", "--modes", "baseline,baseline"), "is given twice"),
        (("compare", "multi-qa", "--set", "colour=red"), "colour"),
        (("compare", "nothing"), "no scenario or agent named 'nothing'; known:"),
        (("compare", "broken.py"), "broken.py:3: is not valid Python"),
        (("compare", "multi-qa", "--tasks", "poems"), "tasks poems: is neither a .jsonl or .json file"),
        (("compare", "multi-qa", "--tasks", "torn.jsonl"), "torn.jsonl:2: is not JSON"),
        (("compare", "multi-qa", "--tasks", "lacking.jsonl"), "lacking.jsonl:1: has no field 'answer'"),
        (("compare", "multi-qa", "--tasks", "empty.jsonl"), "empty.jsonl: is empty"),
        (("compare", "multi-qa", "--tasks", "one.jsonl", "-n", "2"), "has 1 task, and 2 games draw 2 each, 4 in all"),
        (("compare", "prisoners-dilemma", "--tasks", "facts"), "takes no tasks"),
        (("compare", "branch-solve-merge", "--tasks", "facts"), "of the kind Problem, but the scenario needs Concepts"),
        (("compare", "multi-qa", "--modes", "baseline:in-place"), "baseline takes no other words"),
    ],
)
def test_what_is_wrong_is_said_before_a_model_is_loaded(
    agentcho: Command, here: Path, words: tuple[str, ...], told: str
) -> None:
    (here / "broken.py").write_text("import agentcho\n\ndef (\n")
    one = '{"question": "What?", "answer": "that"}\n'
    (here / "torn.jsonl").write_text(f'{one}{{"question": \n')
    (here / "lacking.jsonl").write_text('{"question": "What?"}\n')
    (here / "empty.jsonl").write_text("\n")
    (here / "one.jsonl").write_text(one)
    assert told in one_line(agentcho(*words))


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(("flag", "value"), NUMBERS)
def test_what_an_option_cannot_take_is_a_usage_error(agentcho: Command, flag: str, value: str) -> None:
    ran = agentcho("compare", "multi-qa", flag, value)
    assert ran.code == 2
    assert "Usage:" in ran.err


def test_another_comparison_in_the_folder_is_refused(agentcho: Command) -> None:
    agentcho(*COMPARE, "--out", "c")
    assert "what differs: options" in one_line(agentcho(*COMPARE, "--out", "c", "--set", "layout=serial"))

"""`agentcho.compare`: gives the same results as the command, as objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars
import pytest
import typer

import agentcho
from agentcho.cli.app import app
from agentcho.errors import CannotWrite, ConfigError, GamesFailed, ResumeMismatch, ScenarioNotFound
from agentcho.lab.compare.compare import read_comparison
from agentcho.testing import FakeEngine

MODES = ("baseline", "choreographed:enforce")


class Pick(agentcho.Scenario):
    """An agent picks a side."""

    name = "pick"

    class Outcome(agentcho.Scenario.Outcome):
        """The side."""

        left: bool

    async def play(self, game: agentcho.Game) -> Outcome:
        ann = game.cast(agentcho.Agent, name="ann")
        await game.announce("Left or right?")
        return self.Outcome(left=await ann.choose(("left", "right")) == "left")

    def score(self, outcome: Any) -> dict[str, float]:
        """1 if the side was left."""
        return {"left": float(outcome.left)}


class Broken(Pick):
    """Ends with an error."""

    name = "broken"

    async def play(self, game: agentcho.Game) -> Any:
        raise ValueError("no side")


def compare(scenario: Any = None, **how: Any) -> Any:
    return agentcho.compare(scenario or Pick(), **{"modes": MODES, "games": 3, "engine": FakeEngine(), **how})


def test_a_comparison_has_tables() -> None:
    found = compare(seed=3, json=None)
    assert found.names == MODES
    frame = polars.DataFrame(found.table())
    assert frame.filter(polars.col("what") == "mean").select("column", "games").rows() == [(name, 3) for name in MODES]
    assert frame["p"].dtype == polars.Float64
    assert str(found).splitlines()[0] == "pick: 3 games a column, 2 columns, seed 3"
    assert ">choreographed:enforce</td>" in found._repr_html_()


@pytest.mark.slow
def test_its_folder_has_the_files_of_the_command(tmp_path: Path) -> None:
    told = list[str]()
    found = compare(out=tmp_path / "c", json=tmp_path / "r.json", tell=lambda what, *_: told.append(what))
    assert found == read_comparison(tmp_path / "r.json") == read_comparison(tmp_path / "c" / "compare.json")
    assert "games (baseline)" in told
    again = compare(out=tmp_path / "c")
    assert again.metrics == found.metrics
    assert len([*(tmp_path / "c" / "baseline").iterdir()]) == 1


def test_it_finds_what_the_command_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # without --out it creates a folder in runs/
    command = "compare prisoners-dilemma --modes baseline --games 2 --model fake --json"
    cli = typer.main.get_command(app())
    cli.main([*command.split(), str(tmp_path / "r.json")], standalone_mode=False)
    found = compare("prisoners-dilemma", modes="baseline", games=2, engine=None, model="fake")
    assert found == read_comparison(tmp_path / "r.json")
    assert "alice cooperates" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("how", "error", "told"),
    [
        ({"scenario": "nothing"}, ScenarioNotFound, "no scenario or agent named 'nothing'"),
        ({"modes": "fast"}, ConfigError, "unknown mode 'fast'"),
        ({"given": {"colour": 1}}, ConfigError, "given cannot be combined with a Scenario"),
        ({"scenario": "prisoners-dilemma", "given": {"colour": 1}}, ConfigError, "there is no option 'colour'"),
        ({"judge": "understudy"}, ConfigError, "the understudy cannot judge"),
        ({"judge": "a/model"}, ConfigError, "no text to judge"),
        ({"workers": 2}, ConfigError, "workers have no effect without on"),
        ({"fidelity_games": -1}, ConfigError, "fidelity_games is -1"),
        ({"timed_games": 1.5}, ConfigError, "timed_games is 1.5"),
        ({"on": "ray"}, ConfigError, "by its name or path"),
        ({"scenario": 3}, ConfigError, "scenario: 3 is not a scenario"),
        ({"modes": 3}, ConfigError, "modes: give a list of names"),
        ({"temperature": -1}, ConfigError, "temperature: Input should be greater than or equal to 0"),
        (
            {"heat": 1},
            ConfigError,
            "heat: there is no such option; the options are model, engine, tensor_parallel, pipeline_parallel,",
        ),
        ({"limits": {"heat": 1}}, ConfigError, "limits heat: there is no such limit; the limits are agent_tokens"),
        ({"json": "/proc/nowhere/r.json"}, CannotWrite, "nothing can be written"),
    ],
)
def test_what_cannot_be_is_an_error_before_a_model_is_loaded(
    how: dict[str, Any], error: type[Exception], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", lambda *_: pytest.fail("loaded"))
    with pytest.raises(error, match=told):
        compare(**{"engine": None, **how})


def test_games_that_fail_are_listed_and_another_comparison_in_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GamesFailed, match="ValueError: no side"):
        compare(Broken(), out=tmp_path)
    with pytest.raises(ResumeMismatch, match="what differs: scenario"):
        compare(out=tmp_path)
    assert json.loads((tmp_path / "request.json").read_text())["scenario"] == "broken"

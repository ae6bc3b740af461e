"""Whole runs of environments: from the command line, and games beside one that hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcho.config import RunConfig
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.integrations.textarena.environment import MoveResult
from agentcho.records.record import SavedRun
from tests.cli.conftest import Command

from .stage import Cards, Hanging, Silent, arena


@pytest.mark.slow
def test_a_step_that_hangs_ends_its_own_game_and_the_others_are_as_they_were_without_it(tmp_path: Path) -> None:
    made = iter([Cards, Cards, Hanging, Cards])  # the first determines the number of players
    alone = play(
        RunRequest(arena(Cards), RunConfig(model="fake", games=3), out=tmp_path / "a", find_agent=lambda name: Silent)
    )
    scenario = arena(lambda: next(made)(), seconds=0.5)
    config = RunConfig(model="fake", games=3)
    result = play(RunRequest(scenario, config, out=tmp_path / "b", find_agent=lambda name: Silent, at_once=3))
    (hung,) = result.errors
    assert "its step did not come back within 0.5 s" in str(result.errors[hung].error)
    assert alone.record is not None
    assert result.record is not None
    first, second = (SavedRun(run.record).games() for run in (alone, result) if run.record)
    others = first.keys() - {hung}
    assert len(others) == 2
    assert {g: [e.message for e in first[g]] for g in others} == {g: [e.message for e in second[g]] for g in others}
    assert not result.interrupted


class Failing(Cards):
    """Fails at a move, with the words of the move in its error."""

    def step(self, text: str) -> MoveResult:
        raise KeyError(text)


def test_an_error_of_the_environment_ends_its_game_and_says_where_without_a_word_that_was_said(tmp_path: Path) -> None:
    config = RunConfig(model="fake", games=1)
    result = play(RunRequest(arena(Failing), config, out=tmp_path, find_agent=lambda name: Silent))
    (failed,) = result.errors.values()
    (over,) = result.games
    assert failed.fault.kind == "KeyError"
    assert "test_runs.py:" in (failed.fault.where or "")
    assert (over.ended or "").startswith("error: KeyError (tests/arena/test_runs.py:")


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers an environment without TextArena under a name of TextArena's form."""
    monkeypatch.setattr(library, "is_arena", lambda name: False)
    found = library.scenario
    here = lambda name: type(arena(Cards)) if name == "textarena:here" else found(name)  # noqa: E731
    monkeypatch.setattr(library, "scenario", here)


@pytest.mark.usefixtures("cards")
def test_agents_are_chosen_on_the_command_line_and_told_where_there_is_none(agentcho: Command, here: Path) -> None:
    (here / "agents").mkdir()
    (here / "agents" / "quick.py").write_text("import agentcho\n\nclass Quick(agentcho.Agent):\n    role = 'quick'\n")
    code, _, err = agentcho("run", "textarena:here", "--model", "fake", "--agents", "quick,player")
    assert (code, err) == (0, "")
    saved = SavedRun(next((here / "runs").iterdir()))
    assert saved.info.options["agents"] == "quick,player"
    assert any("quick.py" in name for name in saved.info.sources)
    for wrong, what in {
        "nobody": "no scenario or agent named 'nobody'; known: ",
        "a,b,c,d": "textarena:here does not allow 4 players",
    }.items():
        code, _, err = agentcho("run", "textarena:here", "--model", "fake", "--agents", wrong)
        assert code == 2
        assert what in err
    code, _, err = agentcho("run", "debate", "--model", "fake", "--agents", "player")
    assert (code, "debate: there is no option 'agents'" in err) == (2, True)


def test_an_option_is_given_once(agentcho: Command) -> None:
    code, _, err = agentcho("run", "debate", "--agents", "a", "--set", "agents=b")
    assert (code, "agents is given twice" in err) == (2, True)

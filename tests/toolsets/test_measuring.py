"""Measuring, proving, comparing and training on recorded games take tool results from the record, without any call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

import agentcho
from agentcho import Agent, Engine, Game, RunConfig, Scenario
from agentcho.audit.audit import audit_run
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.lab.collect import Playing
from agentcho.lab.compare.columns import columns
from agentcho.lab.compare.compare import Comparing, Effort
from agentcho.lab.measure.whole import measure
from agentcho.lab.prove.prove import prove
from agentcho.lab.tune.lessons import lessons
from agentcho.lab.tune.recipe import Recipe
from agentcho.lab.tune.sampling import sample
from agentcho.lab.tune.training import Training
from agentcho.protocol.progress import no_progress
from agentcho.records.record import SavedRun
from agentcho.testing import FakeEngine

from ..engines import Engines

CONFIG = RunConfig(model="fake", games=2, max_tokens=6)
RECIPE = Recipe(rank=2, alpha=4, epochs=1, batch=2, dev=0.5)


class Looking(Scenario):
    """Ann keeps a secret and uses a tool that counts its calls; Bob hears what she says."""

    name = "looking"

    def __init__(self) -> None:
        super().__init__()
        self.looked = looked = list[str]()

        @agentcho.tool(audience="nobody", results="bob")
        def look(where: Literal["here", "there"]) -> str:
            looked.append(where)
            return f"look {len(looked)}"

        self._look = look

    async def play(self, game: Game) -> Scenario.Outcome:
        ann, bob = game.cast(Agent, "ann"), game.cast(Agent, "bob")
        await ann.say(to="ann")
        await ann.say(to="everyone", tools=[self._look], tool_choice="required", max_calls=1)
        await bob.say(to="everyone")
        return self.Outcome()


@pytest.fixture
def engine(engines: Engines) -> Iterator[Engine]:
    with engines(store_tokens=1 << 14) as engine:
        yield engine


def saved(scenario: Scenario, engine: Engine | FakeEngine, out: Path) -> SavedRun:
    played = play(RunRequest(scenario, CONFIG, engine=engine, out=out))
    assert played.record is not None
    return SavedRun(played.record)


def compared(engine: Engine | FakeEngine, out: Path, effort: Effort) -> int:
    """The number of calls made by a comparison of two columns."""
    scenario, ways = Looking(), columns("baseline,choreographed:enforce")
    found = Comparing(Playing(scenario, CONFIG, engine), ways, out, no_progress, effort).run("agentcho compare")
    assert found.calls == {column.name: 2 for column in ways}
    assert {name: len(cost.seconds) for name, cost in found.costs.items()} == {
        column.name: 2 * 3 for column in ways if effort.timed
    }
    assert {name: told.games for name, told in found.fidelity.items()} == {
        column.name: 2 for column in ways if effort.fidelity
    }
    return len(scenario.looked)


def test_games_that_are_timed_on_forced_words_call_nothing(tmp_path: Path) -> None:
    assert compared(FakeEngine(), tmp_path, Effort(fidelity=0, timed=2, repeats=3)) == 2 * CONFIG.games


def test_a_comparison_counts_the_calls_of_its_own_games_alone(tmp_path: Path) -> None:
    effort, ways = Effort(fidelity=0, timed=0), columns("baseline,choreographed:enforce")
    compared(FakeEngine(), tmp_path, effort)
    playing = Playing(Looking(), CONFIG.model_copy(update={"games": 1}), FakeEngine())
    found = Comparing(playing, ways, tmp_path, no_progress, effort).run("agentcho compare")
    assert found.calls == {column.name: 1 for column in ways}


@pytest.mark.slow
def test_words_that_are_held_against_the_baselines_call_nothing(engine: Engine, tmp_path: Path) -> None:
    assert compared(engine, tmp_path, Effort(fidelity=2, timed=0)) == 2 * CONFIG.games


def test_a_trace_calls_once_a_game_and_what_is_there_is_not_played_again(tmp_path: Path) -> None:
    scenario, file = Looking(), tmp_path / "traces.jsonl"
    playing = Playing(scenario, CONFIG, FakeEngine())
    for games in (1, 2, 2):
        assert sample(playing, range(games), file, no_progress).games == games
        assert len(scenario.looked) == games


@pytest.mark.slow
def test_an_audit_with_its_measurement_and_a_proof_call_nothing(engine: Engine, tmp_path: Path) -> None:
    scenario = Looking()
    run = saved(scenario, engine, tmp_path)
    audit_run(run)
    assert measure([said for said in run.games().values() if said], engine, parts={"differential", "ablation"})
    assert prove(run.export(), engine).compared
    assert len(scenario.looked) == CONFIG.games


@pytest.mark.slow
def test_tuning_calls_nothing(engines: Engines, tmp_path: Path) -> None:
    scenario, engine, file = Looking(), engines.own(), tmp_path / "traces.jsonl"
    sample(Playing(scenario, CONFIG, engine), range(CONFIG.games), file, no_progress)
    told = lessons(file, scenario.name, engine, RECIPE)
    assert Training(scenario.name, engine, told, RECIPE, tmp_path / "out", lambda now: None).train().step > 0
    assert len(scenario.looked) == CONFIG.games

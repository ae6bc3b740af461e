"""When games start: at most a number of them at once, or as many as the store has room for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import agentcho
from agentcho.config import ModelConfig, RunConfig
from agentcho.events import Began, Event, GameOver
from agentcho.games.runs.limiter import FIRST
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.protocol.call import StepResult
from agentcho.records.record import find
from agentcho.testing import FakeEndpoint, FakeEngine
from tests.engines import Engines

from .plays import monologue
from .stage import Scripted

ONCE = {"model": "fake", "max_tokens": 16}


class Ear:
    """Counts the games that have begun and are not over."""

    def __init__(self) -> None:
        self.now, self.most, self.ended = set[int](), 0, list[int]()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Began):
            self.now.add(event.game)
        if isinstance(event, GameOver):
            self.now.discard(event.game)
            self.ended.append(event.game)
        self.most = max(self.most, len(self.now))


class Watched(FakeEngine):
    """Records the share of its store that is held after each step."""

    def __init__(self, store_tokens: int) -> None:
        super().__init__(store_tokens=store_tokens)
        self.held = list[float]()

    def step(self, deterministic: bool = False) -> StepResult:
        result = super().step(deterministic)
        self.held.append(result.held)
        return result


def heard(engine: Any, games: int, at_once: int | None = None, out: Path | None = None) -> Ear:
    ear = Ear()
    config = RunConfig(games=games, **ONCE)  # type: ignore[arg-type]
    played = play(RunRequest(Scripted(monologue(4)), config, engine=engine, sink=ear, at_once=at_once, out=out))
    assert len(played.games) == games
    assert not played.errors
    return ear


@pytest.mark.parametrize("at_once", [1, 2, 7, 50])
def test_a_number_means_that_number(at_once: int, tmp_path: Path) -> None:
    assert heard(FakeEngine(), 20, at_once, tmp_path).most == min(20, at_once)
    info = find("last", tmp_path).info
    assert (info.at_once, info.most) == (at_once, min(20, at_once))


@pytest.mark.slow
def test_without_one_games_begin_while_there_is_room(tmp_path: Path) -> None:
    roomy = heard(FakeEngine(), 60, out=tmp_path)
    info = find("last", tmp_path).info
    assert info.at_once is None
    assert info.most in (roomy.most, roomy.most + 1)
    assert roomy.most > 2 * FIRST
    narrow = Watched(store_tokens=500)
    ear = heard(narrow, 60)
    assert 1 < ear.most < 2 * FIRST
    late = narrow.held[len(narrow.held) // 3 :]
    assert max(late) <= 1.0
    assert sum(late) / len(late) > 0.25
    halves = [sum(game < 30 for game in ear.ended[:30]), sum(game < 30 for game in ear.ended[30:])]
    assert halves[0] >= 28
    assert heard(FakeEngine(store_tokens=1), 5).most == 1


def test_games_whose_agents_speak_through_apis_do_not_wait_for_a_local_step(tmp_path: Path) -> None:
    async def script(game: agentcho.Game) -> None:
        await game.cast(agentcho.Agent, "ann", model="far").say(to="everyone")

    config = RunConfig(games=6, models={"far": ModelConfig(model="api:far")}, model="fake")
    ear, far = Ear(), {"far": FakeEndpoint()}
    played = play(RunRequest(Scripted(script), config, engine=FakeEngine(), others=far, sink=ear))
    assert len(played.games) == 6
    assert ear.most > 1


def test_it_is_the_same_each_time() -> None:
    engines = [FakeEngine(store_tokens=500) for _ in range(3)]
    ends = [heard(engine, 12).ended for engine in engines]
    assert ends[0] == ends[1] == ends[2]
    assert engines[0].batches == engines[1].batches


@pytest.mark.slow
def test_the_real_engine_says_how_much_is_held(engines: Engines) -> None:
    wide, narrow = engines(store_tokens=4096), engines(store_tokens=256, context=256)
    assert heard(narrow, 12).most < heard(wide, 12).most


def test_games_without_an_engine_and_games_that_fail_let_the_next_in() -> None:
    class Still(agentcho.Scenario):
        name = "still"

        async def play(self, game: Any) -> Any:
            if game.index % 2:
                raise KeyError(game.index)
            return self.Outcome()

    for at_once in (None, 1, 3):
        played = play(RunRequest(Still(), RunConfig(games=9), engine=FakeEngine(), at_once=at_once))
        assert (len(played.games), sorted(played.errors)) == (9, [1, 3, 5, 7])

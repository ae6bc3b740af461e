"""Choosing a checkpoint by games: what counts, and how it is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

import agentcho
from agentcho.config import RunConfig
from agentcho.errors import GamesFailed
from agentcho.lab.collect import Interrupted, Playing
from agentcho.lab.tune.choice import Choice
from agentcho.protocol.progress import no_progress
from agentcho.testing import FakeEngine

ADAPTER = Path(__file__).parents[1] / "fixtures" / "formats" / "adapter" / "trained"


class Half(agentcho.Scenario):
    """Games of an even number go well; others end with an error, or all do."""

    name = "half"

    class Options(agentcho.Scenario.Options):
        """Whether all games end with an error."""

        never: bool = False

    class Outcome(agentcho.Scenario.Outcome):
        """The game went well."""

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        if self.options.never or game.index % 2:
            raise ValueError("it went wrong")
        return self.Outcome()

    def score(self, outcome: Outcome) -> dict[str, float]:
        return {"well": 1.0}


class Shared:
    """An engine without weights, as the base of an adapter."""

    def __init__(self) -> None:
        self.adapters, self.dropped = self, list[str]()

    def adapted(self, folder: str) -> FakeEngine:
        return FakeEngine()

    def drop(self, digest: str) -> None:
        self.dropped.append(digest)


def chosen_by(scenario: agentcho.Scenario, base: Shared, check: Callable[[], None]) -> float:
    numbers = range(4, 8)
    playing = Playing(scenario, RunConfig(model="fake", games=numbers.stop), FakeEngine())
    return Choice(playing, numbers, "well").measured(ADAPTER, check, lambda: base, no_progress)


def test_games_that_fail_count_as_nothing_unless_all_do() -> None:
    base = Shared()
    assert chosen_by(Half(), base, lambda: None) == 0.5
    assert len(base.dropped) == 1
    with pytest.raises(GamesFailed, match="it went wrong"):
        chosen_by(Half(never=True), base, lambda: None)
    assert len(base.dropped) == 2, "the adapter does not stay on the engine"


def test_ctrl_c_ends_the_games_that_choose_a_checkpoint() -> None:
    calls = count()

    def check() -> None:
        if next(calls) > 1:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        chosen_by(Half(), Shared(), check)

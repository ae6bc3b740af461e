"""The prefill budget beside running decodes: if set, it reaches every engine."""

from __future__ import annotations

import pytest

from agentcho import Agent, Game, RunConfig
from agentcho.testing import FakeEngine, play


class Placed(FakeEngine):
    """Records the budgets it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.budgets = list[int | None]()

    def take_place(self, place: int, prefill_budget: int | None = None) -> None:
        self.budgets.append(prefill_budget)
        super().take_place(place, prefill_budget)


async def talk(game: Game) -> None:
    await game.cast(Agent("any"), "ann").say(max_tokens=1)


@pytest.mark.parametrize("budget", [None, 7])
def test_a_run_gives_it_to_each_of_its_engines(budget: int | None) -> None:
    own, other = Placed(), Placed()
    config = RunConfig(model="fake", prefill_budget=budget)
    play(talk, engine=own, others={"other": other}, config=config)
    assert own.budgets == other.budgets == [budget, None], "nothing of it is left in the engine"


def test_after_a_run_an_engine_has_its_own_again() -> None:
    engine = Placed()
    play(talk, engine=engine, config=RunConfig(model="fake", prefill_budget=7))
    assert engine._scheduler._budget == engine._runner.budget


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"deterministic": True}, "prefill_budget has no effect with deterministic"),
        ({"model": "openai:m", "base_url": "http://127.0.0.1:9"}, "prefill_budget has no effect on openai:m"),
        ({"prefill_budget": 0}, "greater than or equal to 1"),
    ],
)
def test_where_it_says_nothing_it_is_refused(options: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        RunConfig(**{"prefill_budget": 7, **options})  # type: ignore[arg-type]

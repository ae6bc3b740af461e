"""Mistakes in the code of a game raise an error that names them, before anything is played."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any, Self

import pytest
from pydantic import BaseModel, Field, SecretStr, model_validator

import agentcho
from agentcho.errors import ArgumentError, AudienceError, ConfigError, ScenarioError
from agentcho.message import audience
from agentcho.scenario import json_options, recorded_options, secret_options


class Waiter(agentcho.Agent):
    """Declares its attributes in three ways."""

    dish: str
    tip = 3

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(name, **attributes)

    async def run(self) -> None:
        await self.say(max_tokens=4)


def test_attributes_that_a_class_or_its_bases_declare_can_be_given_by_name() -> None:
    waiter = Waiter("ann", dish="soup", tip=4, system="You serve.", view=None)
    assert (waiter.dish, waiter.tip, waiter.system) == ("soup", 4, "You serve.")


def test_a_name_in_the_class_is_not_the_name_of_each_of_its_agents() -> None:
    class Cook(Waiter):
        name = "cook"

    @dataclass
    class Guest(agentcho.Agent):
        name: str = "guest"

        def __post_init__(self) -> None:
            super().__init__(self.name)

    assert (Guest().name, Guest("dan").name) == ("guest", "dan")
    ann, bob = Cook("ann"), Cook("bob")
    assert (ann.name, bob.name) == ("ann", "bob")
    bob.name = "ben"
    played = agentcho.run(ann, bob, model="fake", seed=1)
    assert [*dict.fromkeys(message.author for message in played.messages())] == ["ann", "ben"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"systm": "You serve."},
            "Waiter has no attribute 'systm'; did you mean 'system'? If not, declare it in the class",
        ),
        ({"tips": 4}, "Waiter has no attribute 'tips'; did you mean 'tip'? If not, declare it in the class"),
        ({"zzzzzz": 4}, "Waiter has no attribute 'zzzzzz'; declare it in the class"),
        ({"_game": None}, "Waiter has no attribute '_game'"),
    ],
)
def test_another_one_is_refused_with_the_nearest(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        Waiter("ann", **given)
    assert str(refused.value).startswith(told)


def test_it_is_refused_where_an_agent_is_cast() -> None:
    class Dinner(agentcho.Scenario):
        async def play(self, game: agentcho.Game) -> agentcho.Scenario.Outcome:
            game.cast(Waiter, "ann", systm="You serve.")
            return self.Outcome()

    with pytest.raises(ArgumentError, match="did you mean 'system'"):
        agentcho.run(Dinner(), model="fake", display="none")


@pytest.mark.parametrize("lockstep", [False, True])
def test_an_agent_that_does_not_say_what_it_does_is_refused_before_a_model_is_loaded(
    lockstep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(ScenarioError, match="agent 'bob' cannot play on its own: Agent defines no `run`"):
        agentcho.run(Waiter("ann"), agentcho.Agent("bob"), display="none", lockstep=lockstep)


@pytest.mark.parametrize("together", ["play_agents", "lockstep"])
def test_and_so_it_is_in_a_scenario(together: str) -> None:
    class Dinner(agentcho.Scenario):
        async def play(self, game: agentcho.Game) -> agentcho.Scenario.Outcome:
            await getattr(game, together)(game.cast(agentcho.Agent, "bob"))
            return self.Outcome()

    with pytest.raises(ScenarioError, match="Define `async def run"):
        agentcho.run(Dinner(), model="fake", display="none")


def test_a_run_of_one_agent_alone_counts() -> None:
    told: list[str] = []

    async def run() -> None:
        told.append("ran")

    agentcho.run(agentcho.Agent("bob", run=run), model="fake", display="none")
    assert told == ["ran"]


def test_a_scenario_without_a_play_is_refused() -> None:
    class Empty(agentcho.Scenario):
        pass

    with pytest.raises(ScenarioError, match=r"Empty cannot be played: it defines no `play`\. Define `async def play"):
        Empty()


def test_a_scenario_without_options_says_so() -> None:
    class Plain(agentcho.Scenario):
        async def play(self, game: agentcho.Game) -> agentcho.Scenario.Outcome:
            return self.Outcome()

    with pytest.raises(ConfigError, match=r"there is no option '\w+'\. It has no options$"):
        Plain(rounds=1)


class Inner(BaseModel):
    """A part of options."""

    names: frozenset[str]
    word: SecretStr


def test_options_are_the_same_json_in_every_process_and_show_no_secret() -> None:
    class Played(agentcho.Scenario):
        class Options(agentcho.Scenario.Options):
            roles: frozenset[int] = frozenset({30, 4, 100})
            inner: tuple[Inner, ...] = (Inner(names=frozenset("zebra"), word=SecretStr("plum")),)
            rounds: dict[int, tuple[frozenset[str], ...]] = Field(default={2: (frozenset("ba"),)})

        async def play(self, game: agentcho.Game) -> agentcho.Scenario.Outcome:
            return self.Outcome()

    shown = {
        "roles": [4, 30, 100],
        "inner": [{"names": sorted("zebra"), "word": "**********"}],
        "rounds": {"2": [["a", "b"]]},
    }
    given = Played(inner=(Inner(names=frozenset("zebra"), word=SecretStr("plum")),))
    assert json_options(given) == json_options(Played()) == recorded_options(given) == shown
    assert secret_options(given) == secret_options(Played()) == ["inner"]
    assert recorded_options(Played()) == {name: value for name, value in shown.items() if name != "inner"}


def test_an_option_that_must_be_given_is_not_said_to_have_a_default() -> None:
    class Played(agentcho.Scenario):
        class Options(agentcho.Scenario.Options):
            rounds: int
            names: list[str] = Field(default_factory=lambda: ["ann"])
            short: bool = Field(default_factory=lambda data: data["rounds"] < 3)

        async def play(self, game: agentcho.Game) -> agentcho.Scenario.Outcome:
            return self.Outcome()

    told = "rounds (required), names (default ['ann']), short (default made from other options)"
    with pytest.raises(ConfigError) as refused:
        Played()
    assert str(refused.value).endswith(f"Its options: {told}")


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("bo", "no agent named 'bo'; did you mean 'bob'? the cast is: ann, bob"),
        ("Hello there", "no agent named 'Hello there': an audience is 'everyone' or names of agents; pass words"),
        ("All", "no agent named 'All'; write 'everyone' for all agents"),
        ("zzz", "no agent named 'zzz'; the cast is: ann, bob"),
        (["an", "bo"], "no agent named 'an', 'bo'; the cast is: ann, bob"),
        (["everyone", "bob"], "'everyone' is not an agent's name; give 'everyone' alone, not in a list"),
    ],
)
def test_an_audience_that_is_nobody_says_who_is_meant(named: str | list[str], told: str) -> None:
    with pytest.raises(AudienceError) as refused:
        audience(named, ("ann", "bob"))
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize("to", [agentcho.Agent("bob"), [agentcho.Agent("bob")]], ids=["one", "list"])
def test_an_agent_as_an_audience_is_told_to_be_given_by_name(to: Any) -> None:
    with pytest.raises(AudienceError, match=r"give the agent's name, 'bob'$"):
        audience(to, ("ann", "bob"))


def test_a_play_that_does_not_take_the_game_is_refused_before_it_is_called() -> None:
    class Alone(agentcho.Scenario):
        async def play(self) -> agentcho.Scenario.Outcome:  # type: ignore[override]
            return self.Outcome()

    told = (
        r"scenario Alone cannot be played: its `play` does not take the game alone. Define `async def play\(self, game"
    )
    with pytest.raises(ScenarioError, match=told):
        Alone()


@pytest.mark.parametrize(("named", "cast"), [("x" * 100_000, ("ann",)), ("bo", [f"bob{n}" for n in range(5000)])])
def test_names_that_would_take_long_to_compare_are_not(named: str, cast: list[str]) -> None:
    with pytest.raises(AudienceError) as refused:
        audience(named, cast)
    assert "did you mean" not in str(refused.value)
    assert str(refused.value).startswith(f"no agent named {named[:20]!r}"[:30])


def test_every_error_can_be_imported_from_the_package() -> None:
    from agentcho import errors

    kinds = [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.AgentchoError)
    ]
    assert all(getattr(agentcho, each.__name__) is each and each.__name__ in agentcho.__all__ for each in kinds)


def test_an_error_of_options_quotes_no_secret() -> None:
    class Locked(agentcho.Scenario):
        """Has a secret, and an option that is refused."""

        class Options(agentcho.Scenario.Options):
            """The options."""

            key: SecretStr
            count: int = 1

            @model_validator(mode="after")
            def _checked(self) -> Self:
                raise ValueError("it is refused")

        async def play(self, game: Any) -> agentcho.Scenario.Outcome:
            raise NotImplementedError

    for wrong in ({"count": "x"}, {}):  # type: dict[str, Any]
        with pytest.raises(ConfigError) as refused:
            Locked(key="".join(("ze", "bra")), **wrong)
        assert "zebra" not in "".join(traceback.format_exception(refused.value))

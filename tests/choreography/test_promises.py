"""What the verbs promise: answers have no extra keys, and a play that returns nothing is told what to return."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field

from agentcho import Agent, Decode, Game, Scenario, run
from agentcho.errors import ScenarioError
from agentcho.protocol.json_schema import closed
from agentcho.testing import FakeEngine, play


class Point(BaseModel):
    """A model in a model."""

    x: int = 0
    properties: str = Field(default="", description="a key that is also a word of schemas")


class Open(BaseModel):
    """Takes whatever comes."""

    model_config = ConfigDict(extra="allow")

    y: int = 0


class Answer(BaseModel):
    """Models in every place that a model can have."""

    point: Point
    several: list[Point] = []
    maybe: Point | None = None
    either: Point | Open = Open()
    named: dict[str, Point] = {}
    pair: tuple[Point, Open] | None = None


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"extra": 1}, False),
        ({"point": {"extra": 1}}, False),
        ({"point": {"properties": "x"}}, True),
        ({"several": [{"extra": 1}]}, False),
        ({"maybe": {"extra": 1}}, False),
        ({"either": {"y": 1, "extra": 1}}, True),
        ({"named": {"any": {}}}, True),
        ({"named": {"any": {"extra": 1}}}, False),
        ({"pair": [{}, {"extra": 1}]}, True),
        ({"pair": [{"extra": 1}, {}]}, False),
    ],
)
def test_a_closed_schema_takes_no_keys_that_its_models_have_not(changes: dict[str, Any], fits: bool) -> None:
    schema, answer = Answer.model_json_schema(), {"point": {}} | changes
    assert Draft202012Validator(schema).is_valid(answer), "as pydantic has it, all of them fit"
    assert Draft202012Validator(closed(schema)).is_valid(answer) == fits
    assert closed(closed(schema)) == closed(schema)


def test_an_answer_is_asked_for_with_a_closed_schema() -> None:
    asked: list[Any] = []

    def answer(call: Decode, prompt: str) -> str:
        asked.append(call.sampling.json_schema)
        return json.dumps({"point": {"x": 1}})

    async def script(game: Game) -> None:
        assert (await game.cast(Agent, "alice").answer(Answer)).point.x == 1

    play(script, engine=FakeEngine(answer=answer))
    assert asked == [closed(Answer.model_json_schema())]


@pytest.mark.parametrize(("returned", "what"), [(None, "None"), ({"winner": "SECRET"}, "a dict"), (1, "a int")])
def test_a_play_that_returns_no_outcome_is_told_what_to_return(returned: Any, what: str) -> None:
    class Careless(Scenario):
        """Forgets to return an outcome."""

        name = "careless"

        async def play(self, game: Game) -> Any:
            return returned

    plays: Callable[[], object] = lambda: play(Careless())  # noqa: E731
    with pytest.raises(ScenarioError, match=rf"`play` of careless returned {what}; .*return self\.Outcome") as told:
        plays()
    assert "SECRET" not in str(told.value)


class Opaque(Scenario):
    """Its options and its outcome may hold anything."""

    class Options(Scenario.Options):
        """Anything."""

        given: object = None

    class Outcome(Scenario.Outcome):
        """Anything."""

        good: int = 1
        found: object = None

    options: Options

    async def play(self, game: Game) -> Outcome:
        """Return what is given."""
        return self.Outcome(found=self.options.given)


@pytest.mark.parametrize("found", [object(), [object()], {"a": b"\xff"}])
def test_an_outcome_that_is_not_json_names_its_field(found: object) -> None:
    what = f"field 'found' of the outcome of opaque is a value of type {type(found).__name__} and cannot be written as"
    with pytest.raises(ScenarioError, match=what):
        play(Opaque(given=found))


def test_an_option_that_is_not_json_names_its_field_before_the_run() -> None:
    with pytest.raises(ScenarioError, match="field 'given' of the options of opaque is a value of type object"):
        run(Opaque(given=object()), engine=FakeEngine())


def test_an_outcome_of_models_and_lists_is_recorded() -> None:
    inner = Opaque.Outcome(found={1})
    assert play(Opaque(given=[inner])).over.outcome == {"good": 1, "found": [{"good": 1, "found": [1]}]}


class Sync(Agent):
    """Its `run` is no coroutine function."""

    role = "sync"

    def run(self) -> None:  # type: ignore[override]
        """Do nothing."""


class Fine(Agent):
    """Plays on its own."""

    role = "fine"

    async def run(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("together", ["play_agents", "lockstep"])
@pytest.mark.parametrize(
    ("agents", "told"),
    [
        (lambda fine, sync: (fine, sync), r"`run` of Sync is not a coroutine; write `async def run\(self\)`"),
        (lambda fine, sync: (fine, None), r"None is not an agent; give agents that game\.cast has returned$"),
        (lambda fine, sync: ("ann", "ben"), r"'ann' is not an agent; give agents that game\.cast has returned$"),
        (
            lambda fine, sync: ([fine, fine],),
            r"an argument of type list is not an agent; .* one by one, as in game\.{}\(\*agents\)$",
        ),
        (lambda fine, sync: (Fine,), r"the class Fine is not an agent; give agents that game\.cast has returned$"),
    ],
)
def test_only_agents_with_a_coroutine_play_on_their_own(
    together: str, agents: Callable[[Agent, Agent], tuple[Any, ...]], told: str
) -> None:
    async def script(game: Game) -> None:
        await getattr(game, together)(*agents(game.cast(Fine), game.cast(Sync)))

    with pytest.raises(ScenarioError, match=told.format(together)):
        play(script)


def test_a_program_s_own_agent_needs_a_coroutine_too() -> None:
    with pytest.raises(ScenarioError, match="`run` of Sync is not a coroutine"):
        run(Sync("ann"), engine=FakeEngine())

"""Tool calls in games: what is behind their arguments is what their encodings attended to."""

from __future__ import annotations

import pytest

from agentcho import Agent, Game, RunConfig, View
from agentcho.config import Leakage, Mode
from agentcho.errors import LeakageError
from agentcho.message import EVERYONE
from agentcho.provenance.views import ToolUse
from agentcho.testing import FakeEndpoint
from agentcho.testing.rehearsal import play

POST = ToolUse("post", EVERYONE, effect=True, trusted=False)


class Caller(Agent):
    """Has a system prompt."""

    role, system = "caller", "Be brief."


class Open(Caller):
    """Has an open system prompt."""

    open_system = True


async def calls(game: Game, agent: Agent, view: View | None = None, release: bool = False) -> None:
    """Calls a tool whose arguments become public."""
    call = await agent.think(view=view)
    game._messages.check_call(call.id, POST, release)


@pytest.mark.parametrize("mode", ["choreographed", "baseline"])
@pytest.mark.parametrize("leakage", ["enforce", "deny", "audit"])
def test_a_system_prompt_is_in_the_worlds_way_unless_it_is_open(mode: Mode, leakage: Leakage) -> None:
    refusals = []

    async def script(game: Game) -> None:
        closed, opened = game.cast(Caller, "ann"), game.cast(Open, "bob")
        await game.announce("What is the weather?")
        for agent in (opened, closed):
            try:
                await calls(game, agent)
            except LeakageError as refused:
                refusals.append((agent.name, refused.path))
        await calls(game, closed, View.of(["scenario.1"]))
        await calls(game, closed, release=True)

    play(script, config=RunConfig(model="fake", mode=mode, leakage=leakage, max_tokens=4))
    assert refusals == ([] if leakage == "audit" else [("ann", ("ann.0",))])


@pytest.mark.parametrize("mode", ["choreographed", "baseline"])
def test_what_was_read_long_ago_is_in_the_way_where_its_encodings_carry_it(mode: Mode) -> None:
    """A public message was made over a secret: attending to it is attending to the secret, unless prompts are text."""
    refusals: list[str] = []

    async def script(game: Game) -> None:
        ann = game.cast(Agent, "ann")
        secret = await game.announce("The word is swordfish.", to="ann")
        said = await ann.say(to="everyone", view=View.of([secret]))
        try:
            await calls(game, ann, View.of([said.id]))
        except LeakageError as refused:
            refusals.extend(refused.path)

    play(script, config=RunConfig(model="fake", mode=mode, max_tokens=4))
    assert refusals == (["scenario.0"] if mode == "choreographed" else [])


def test_what_a_model_behind_an_api_was_sent_is_what_its_calls_were_made_from() -> None:
    refusals: list[tuple[str, ...]] = []

    async def script(game: Game) -> None:
        ann = game.cast(Caller, "ann")
        asked = await game.announce("What is the weather?")
        for view in (None, View.of([asked])):
            try:
                await calls(game, ann, view)
            except LeakageError as refused:
                refusals.append(refused.path)

    play(script, config=RunConfig(model="fake", max_tokens=4), endpoint=FakeEndpoint())
    assert refusals == [("ann.0",)]

"""The shipped helpers for testing users' agents: `play`, scripted lines, and the smallest JSON of a schema."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field, TypeAdapter

from agentcho import Agent, Decode, Game, Limits, RunConfig, Scenario
from agentcho.config import Mode
from agentcho.engine.fake.smallest_json import smallest
from agentcho.errors import RequestError, StoreDamaged
from agentcho.testing import FakeEngine, play

from .conftest import BACKENDS
from .stage import MODES


class Guess(BaseModel):
    """An answer."""

    number: int


class Guesser(Agent):
    """An agent as a user would write it."""

    role = "guesser"
    system = "You guess numbers."
    audience = "everyone"

    async def guess(self) -> int:
        await self.think("What do you think?")
        if await self.ask("Are you sure?", ["yes", "no"]) == "no":
            return -1
        return (await self.answer(Guess)).number


class Guessing(Scenario):
    """One guess."""

    name = "guessing"

    class Outcome(Scenario.Outcome):
        """The number."""

        number: int

    async def play(self, game: Game) -> Scenario.Outcome:
        return self.Outcome(number=await game.cast(Guesser, "ann").guess())

    def score(self, outcome: Any) -> dict[str, float]:
        return {"right": float(outcome.number == 7)}


def test_what_the_fake_keeps_is_checked_as_a_models_is() -> None:
    engine = FakeEngine()
    first = engine.prefill("hello")
    engine.prefill("there", parents=[first])
    engine.check_integrity()
    engine.store.used += 1
    with pytest.raises(StoreDamaged, match="pages in use"):
        engine.check_integrity()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
def test_a_scenario_is_played_with_scripted_lines(mode: Mode, backend: str) -> None:
    lines = {"ann": ["seven it is", "yes", '{"number":7}']}
    rehearsal = play(Guessing(), lines, config=RunConfig(mode=mode), backend=backend)
    assert (rehearsal.over.outcome, rehearsal.over.score) == ({"number": 7}, {"right": 1.0})
    assert [m.text for m in rehearsal.said("ann")] == lines["ann"]
    assert rehearsal.said("bob") == ()
    assert [e.message.role for e in rehearsal.entries][:2] == ["system", "user"]
    assert (rehearsal.engine.pages, rehearsal.engine.rows) == (0, 0)


def test_other_lines_lead_elsewhere() -> None:
    assert play(Guessing(), {"ann": ["hm", "no"]}).over.outcome == {"number": -1}


@pytest.mark.parametrize(
    ("lines", "said"),
    [(["hm"], "ann has no lines left"), (["hm", "perhaps"], "not one of the choices"), ([], "no lines left")],
)
def test_lines_that_do_not_do_say_why(lines: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        play(Guessing(), {"ann": lines})


def test_without_lines_it_says_what_seed_and_prompt_make_of_it() -> None:
    def texts(seed: int) -> list[str]:
        return [m.text for m in play(Guessing(), config=RunConfig(seed=seed)).said()]

    assert texts(1) == texts(1)
    assert len({tuple(texts(seed)) for seed in range(9)}) > 1


def test_a_function_is_a_scenario_and_a_reply_sees_what_is_read() -> None:
    prompts: list[str] = []

    def reply(call: Decode, prompt: str) -> str:
        prompts.append(prompt)
        return f"I am {call.name}"

    async def script(game: Game) -> str:
        ann, bob = game.cast(Guesser, "ann"), game.cast(Guesser, "bob")
        await ann.say(header="To Bob: ")
        return (await bob.say()).text

    over = play(script, reply).over
    assert over.outcome == {"value": "I am bob"}
    assert prompts == ["You guess numbers.", "You guess numbers.\nTo Bob: I am ann"]


def test_options_engine_and_limits_are_the_callers() -> None:
    engine = FakeEngine(lambda call, prompt: "on and on", bos=False)

    async def script(game: Game) -> None:
        ann = game.cast("guesser", "ann")
        while True:
            await ann.say()

    config = RunConfig(limits=Limits(agent_messages=2))
    rehearsal = play(script, engine=engine, config=config, find_agent=lambda name: Guesser)
    assert rehearsal.over.ended == "limit: ann reached 2 messages"
    assert rehearsal.engine is engine
    assert not rehearsal.entries[-1].made[-1].receipt.bos


def test_what_a_game_raises_comes_out() -> None:
    async def script(game: Game) -> None:
        await anyio.sleep(0)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        play(script)


def test_it_imports_no_torch() -> None:
    code = "import sys, agentcho.testing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Tree(BaseModel):
    """Refers to itself."""

    left: Tree | None
    right: list[Tree]


class Endless(BaseModel):
    """Needs itself."""

    more: Endless


SCHEMAS: list[Any] = [
    bool, int, str, None, float, Guess, Tree, list[int], dict[str, int], Literal["a", "b"], tuple[int, str],
    int | str, Annotated[list[bool], Field(min_length=2)], Annotated[str, Field(min_length=3, max_length=4)],
    Annotated[int, Field(ge=5)], Annotated[int, Field(gt=5)], Annotated[int, Field(le=-5)],
    Annotated[int, Field(gt=1, lt=3)], Annotated[float, Field(gt=0, lt=1)], Annotated[float, Field(gt=0.5)],
    Annotated[float, Field(lt=-0.5)], Annotated[int, Field(ge=-3, le=3)],
]  # fmt: skip


@pytest.mark.parametrize("kind", SCHEMAS, ids=str)
def test_the_smallest_json_fits_its_schema(kind: Any) -> None:
    adapter = TypeAdapter[Any](kind)
    adapter.validate_json(smallest(adapter.json_schema()))


def test_a_schema_without_an_end_is_refused() -> None:
    with pytest.raises(RequestError, match="finite"):
        smallest(Endless.model_json_schema())

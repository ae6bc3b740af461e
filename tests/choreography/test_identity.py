"""A speaker is identified by the seat that the game assigned, whatever the agent says about itself."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from itertools import repeat
from typing import Any

import pytest

from agentcho import After, Agent, Game, Message, Read, RunConfig, View
from agentcho.errors import AudienceError, RequestError, ScenarioError
from agentcho.message import EVERYONE, Audience, Words
from agentcho.testing import FakeEngine, play


class Eve(Agent):
    """Reads everything that she may."""

    role = "eve"
    audience = "everyone"
    mood: str


class Liar(Eve):
    """Returns its own name once, and then another agent's."""

    asked = 0

    @property
    def name(self) -> str:
        self.asked += 1
        return "eve" if self.asked == 1 else "alice"

    @name.setter
    def name(self, name: str) -> None:
        pass


class Twin(Eve):
    """Equals every agent."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def rename(eve: Agent) -> None:
    with pytest.raises(ScenarioError, match="cannot rename eve to 'alice'"):
        eve.name = "alice"


def through_its_dict(eve: Agent) -> None:
    eve.__dict__.update(name="alice", _name="alice", seat="alice")


def past_its_own_rules(eve: Agent) -> None:
    object.__setattr__(eve, "_name", "alice")
    with pytest.raises(ScenarioError):
        object.__setattr__(eve, "name", "alice")


def through_its_class(eve: Agent) -> None:
    type(eve).name = "alice"  # type: ignore[assignment, method-assign]


@pytest.mark.parametrize("trick", [rename, through_its_dict, past_its_own_rules, through_its_class, lambda eve: None])
@pytest.mark.parametrize("kind", [Eve, Liar, Twin])
def test_no_name_that_an_agent_takes_opens_what_is_anothers(kind: type[Agent], trick: Callable[[Agent], None]) -> None:
    async def script(game: Game) -> Message:
        own = type(kind.__name__, (kind,), {})
        alice, eve = game.cast(Eve, "alice", system="alice's own"), game.cast(own("eve"))
        await alice.think()
        if kind is not Liar or trick is through_its_class:
            trick(eve)
        said: Message = await eve.say()
        return said

    [_, said] = play(script).said()
    assert (said.author, said.parents) == ("eve", ())


def test_the_name_of_an_agent_is_that_of_its_seat() -> None:
    async def script(game: Game) -> None:
        agent = Eve("mallory")
        agent.name = "eve"
        assert game.cast(agent).name == "eve"
        agent.__dict__["_name"] = "alice"
        assert agent.name == "eve"
        assert game.cast(Eve("somebody"), "bob").name == "bob"
        with pytest.raises(TypeError):
            game.agents["carol"] = agent  # type: ignore[index]

    play(script)


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda agent: pickle.loads(pickle.dumps(agent))], ids=["copy", "deep", "pickle"]
)
def test_a_copy_has_no_seat(again: Callable[[Agent], Agent]) -> None:
    async def script(game: Game) -> None:
        eve = game.cast(Eve, "eve", system="words", mood="good")
        other = again(eve)
        assert (other.name, other.brief, getattr(other, "mood", None)) == ("eve", None, "good")
        other._game = eve._game
        for act in (other.say, lambda: other.tell("x"), lambda: other.release(_message("eve.0"))):
            with pytest.raises(ScenarioError, match="eve is not in this game"):
                await act()
        with pytest.raises(AudienceError, match=r"named 'eve' has already joined; give another name$"):
            game.cast(other)
        other.name = "bob"
        assert (await game.cast(other).say()).author == "bob"

    play(script)


def _message(id: str) -> Message:
    return Message(id, 0, "prefill", "assistant", "eve", EVERYONE, (), Words("", "x", (1,), (0, 1)))


def test_an_agent_sits_once() -> None:
    async def script(game: Game) -> Agent:
        eve = game.cast(Eve, "eve")
        with pytest.raises(AudienceError, match="is already in a game, as 'eve'"):
            game.cast(eve, "bob")
        return eve

    async def another(game: Game) -> None:
        with pytest.raises(AudienceError, match="is already in a game, as 'eve'"):
            game.cast(sitting[0])
        sitting[0]._game = game
        with pytest.raises(ScenarioError):
            await sitting[0].say()
        assert list(game.agents) == []

    sitting: list[Agent] = []

    async def first(game: Game) -> None:
        sitting.append(await script(game))
        await sitting[0].say()

    play(first)
    play(another)


def test_what_is_released_is_what_the_game_has_under_its_id() -> None:
    async def script(game: Game) -> None:
        alice, eve = game.cast(Eve, "alice"), game.cast(Eve, "eve")
        plan, own = await alice.think(), await eve.think()
        for forged in (plan, _message(plan.id), _message("eve.9")):
            with pytest.raises(AudienceError, match="cannot release"):
                await eve.release(forged)
        await eve.release(_message(own.id))

    engine = FakeEngine(lambda call, prompt: f"{call.name} thinks")
    entries = play(script, engine=engine).entries
    assert [e.message.text for e in entries if e.message.author == "eve"] == ["eve thinks"] * 2


# -- subclasses of str and Audience ------------------------------------------------------------------------


class Odd(str):
    """Compares, hashes and prints as another word."""

    seems: str

    def __new__(cls, word: str, seems: str) -> Odd:
        made = super().__new__(cls, word)
        made.seems = seems
        return made

    def __eq__(self, other: object) -> bool:
        return bool(other == self.seems)

    def __hash__(self) -> int:
        return hash(self.seems)

    def __str__(self) -> str:
        return self.seems


class Wide(Audience):
    """Claims to include everyone."""

    def includes(self, agent: str) -> bool:
        return True

    def covers(self, other: Audience) -> bool:
        return True


@pytest.mark.parametrize(
    ("to", "readers"),
    [
        (Odd("eve", "bob"), {"alice", "eve"}),
        ([Odd("eve", "bob"), "bob"], {"alice", "bob", "eve"}),
        (Odd("eve", "everyone"), {"alice", "eve"}),
        (Odd("everyone", "bob"), None),
        (Wide(frozenset({"bob"})), {"alice", "bob"}),
        (Audience(frozenset({Odd("eve", "bob")})), {"alice", "eve"}),
        ((name for name in ["bob"]), {"alice", "bob"}),
    ],
)
def test_an_audience_is_made_of_exact_words(to: Any, readers: set[str] | None) -> None:
    async def script(game: Game) -> None:
        alice, _, _ = (game.cast(Eve, name) for name in ("alice", "bob", "eve"))
        await alice.say(to=to)

    [said] = play(script).said()
    assert type(said.audience) is Audience
    assert said.audience.members == readers
    assert all(type(name) is str for name in said.audience.members or ())


def mood(agent: Agent) -> object:
    return getattr(agent, "mood", None)


def test_attributes_are_for_an_agent_that_is_made_here() -> None:
    """For an existing agent they would be ignored, or change an object that its creator holds."""

    async def script(game: Game) -> None:
        ready = Eve("eve", mood="good")
        with pytest.raises(RequestError, match="mood, system cannot be given for an existing agent; set it on"):
            game.cast(ready, mood="bad", system="You are Eve.")
        assert (mood(ready), ready.system, dict(game.agents)) == ("good", None, {})
        assert game.cast(ready) is ready
        assert mood(game.cast(Eve, "bob", mood="bad")) == "bad"

    play(script)


@pytest.mark.parametrize("to", [1, [1], None, b"bob", [["bob"]], [None], object(), repeat("bob")])
def test_what_is_no_audience_is_refused_by_one_error(to: Any) -> None:
    async def script(game: Game) -> None:
        alice, _ = game.cast(Eve, "alice"), game.cast(Eve, "bob")
        alice.audience = to
        for act in (lambda: game.announce("x", to=to), alice.say, lambda: alice.tell("x")):
            with pytest.raises(AudienceError):
                await act()
        assert list(game.said) == []

    play(script)


def test_a_view_is_made_of_exact_ids() -> None:
    async def script(game: Game) -> None:
        alice, eve = game.cast(Eve, "alice"), game.cast(Eve, "eve")
        await alice.think()
        own = await eve.think()
        for id in (Odd("alice.0", own.id), Odd(own.id, "alice.0")):
            await eve.say(view=View((Read(id), Read(own.id, After(id)))))

    config = RunConfig(model="fake", leakage="audit")
    said = [e for e in play(script, config=config).entries if e.message.id in ("eve.1", "eve.2")]
    assert [e.message.parents for e in said] == [("alice.0", "eve.0"), ("eve.0", "eve.0")]
    assert [e.direct for e in said] == [("alice.0",), ()]
    assert all(type(id) is str for e in said for id in e.message.parents)

"""Everything that a game's code can read is in one table, and reads of private names are noticed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, field_validator

from agentcho import (
    After,
    Agent,
    Audience,
    Game,
    Limits,
    Message,
    Metadata,
    Read,
    RunConfig,
    Scenario,
    View,
    errors,
    tool,
)
from agentcho.agent import Pieces
from agentcho.errors import (
    AgentchoError,
    AnswerInvalid,
    AudienceError,
    ContextOverflow,
    LeakageError,
    LimitReached,
    RequestError,
)
from agentcho.games.play.streamed_messages import Streamed
from agentcho.provenance.code_reads import SIGHTS, WORDS
from agentcho.provenance.readable_messages import ReadableMessages
from agentcho.provenance.taint import TrackedHistory
from agentcho.provenance.views import History
from agentcho.testing import play

CLASSES = (Game, Agent, Message, Metadata, History, ReadableMessages, Pieces, Streamed, View, Audience, Scenario)
SEQUENCE = {
    *("__len__", "__iter__", "__getitem__", "__contains__", "__reversed__", "__eq__", "__hash__", "__repr__"),
}
Script = Callable[[Game, Agent, Agent], Awaitable[Any]]


def public(cls: type) -> set[str]:
    """The public names of a class: those in its body, and the attributes that its instances get."""
    ours = [base for base in inspect.getmro(cls) if base.__module__.startswith("agentcho")]
    given = {name for base in ours for name in _given(base)}
    own = {name for name in dir(cls) if not name.startswith("_")} | set(getattr(cls, "__annotations__", ()))
    more = SEQUENCE if cls is History else {"__aiter__", "__anext__"} if cls is Pieces else set()
    return {name for name in own | given | more if not name.startswith("_") or name in more}


def _given(cls: type) -> Iterator[str]:
    for line in inspect.getsource(cls).splitlines():
        for targets in re.findall(r"^\s+(self\.[\w., ]+?)(?:: [^=]+)? = ", line):
            yield from re.findall(r"self\.(\w+)", targets)


def listed(cls: type) -> set[str]:
    return {name for sight in SIGHTS if sight.of == cls.__name__ for name in sight.names}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_public_name_is_private_or_public_by_the_table(cls: type) -> None:
    assert public(cls) == listed(cls), f"say in provenance/code_reads.py what is read by the names of {cls.__name__}"


def test_every_error_is_in_the_table_once() -> None:
    there = {name for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, AgentchoError)}
    rows = [sight.of for sight in SIGHTS if sight.names == ("raised",)]
    assert sorted(rows) == sorted({*there, "Cancelled"})


def test_no_name_has_two_rows_and_every_row_says_why() -> None:
    names = [(sight.of, name) for sight in SIGHTS for name in sight.names]
    assert len(names) == len(set(names))
    assert all(sight.why for sight in SIGHTS)
    classes = {cls.__name__ for cls in CLASSES}
    assert {sight.of for sight in SIGHTS if sight.names != ("raised",)} == classes


def test_a_new_name_is_missed() -> None:
    class Grown(History):
        def lengths(self) -> list[int]:
            return []

    assert public(Grown) - listed(History) == {"lengths"}


# -- reads of private names ------------------------------------------------------------------------------------


class Talker(Agent):
    """Says whatever the fake generates."""

    role = "talker"


@tool(audience="nobody")
def count() -> str:
    return "done"


class Answer(BaseModel):
    sure: bool


def tainted(script: Script, **config: Any) -> set[str]:
    """What counts as looked at when the script is over and the scenario then speaks to everyone; alice has had two
    private thoughts before."""

    async def whole(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        for _ in range(2):
            await alice.think(max_tokens=4)
        await bob.say(to="everyone", max_tokens=4)
        await script(game, alice, bob)
        await game.announce("So be it.")

    entries = play(whole, config=RunConfig(model="fake", **config)).entries
    last = next(entry for entry in reversed(entries) if entry.message.author is None)
    return set(last.act.tainted_by)


def of_said(read: Callable[[Any], Any]) -> Script:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        read(game.said)

    return script


def of_words(name: str) -> Script:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        thought = await alice.think(max_tokens=4)
        getattr(thought, name)
        if name == "saying":
            thought.saying(text="other words")

    return script


async def parents(game: Game, alice: Agent, bob: Agent) -> None:
    assert (await alice.say(to="everyone", max_tokens=4)).parents == ("alice.0", "alice.1", "bob.0")


async def new_offset(game: Game, alice: Agent, bob: Agent) -> None:
    assert (await alice.say(view=View.of(["alice.0"], new_at=99), max_tokens=4)).new_offset == 99


async def offsets(game: Game, alice: Agent, bob: Agent) -> None:
    view = View((Read("alice.0", at=0), Read("bob.0")))
    assert (await alice.say(to="everyone", view=view, max_tokens=4)).offsets == (0, None)


async def metadata(game: Game, alice: Agent, bob: Agent) -> None:
    assert (await alice.say(to="everyone", max_tokens=4)).metadata.author == "alice"


async def choose(game: Game, alice: Agent, bob: Agent) -> None:
    await alice.choose(["yes", "no"])


async def ask(game: Game, alice: Agent, bob: Agent) -> None:
    await alice.ask("Well?", ["yes", "no"])


async def answer(game: Game, alice: Agent, bob: Agent) -> None:
    await alice.answer(Answer)


async def stream(game: Game, alice: Agent, bob: Agent) -> None:
    async with alice.stream(to=(), max_tokens=4) as pieces:
        async for _ in pieces:
            break


async def found(game: Game, alice: Agent, bob: Agent) -> None:
    await alice.think("A question.", max_tokens=4)
    game.message("alice.2")


async def respelled(game: Game, alice: Agent, bob: Agent) -> None:
    await alice.think("A question.", max_tokens=4)
    game.retokenized("yes", "alice.2")


async def race(game: Game, alice: Agent, bob: Agent) -> None:
    await game.first(alice.think(max_tokens=9), bob.say(to="everyone", max_tokens=2))


async def raced(game: Game, alice: Agent, bob: Agent) -> None:
    assert game.raced in (True, False)


HIDDEN = {"alice.0", "alice.1"}
READS: dict[str, tuple[Script, set[str]]] = {
    **{f"Message.{name}": (of_words(name), {"alice.2"}) for name in sorted(WORDS)},
    "Message.saying": (of_words("saying"), {"alice.2"} | HIDDEN),
    "Message.parents": (parents, {"alice.0", "alice.1"}),
    "Message.offsets": (offsets, {"alice.0"}),
    "Message.new_offset": (new_offset, {"alice.0"}),
    "Message.metadata": (metadata, {"alice.0", "alice.1"}),
    "Agent.choose": (choose, {"alice.2"}),
    "Agent.ask": (ask, {"alice.3"}),
    "Agent.answer": (answer, {"alice.2"}),
    "Agent.stream": (stream, {"alice.2"}),
    "Pieces.__anext__": (stream, {"alice.2"}),
    "Pieces.__aiter__": (stream, {"alice.2"}),
    "History.__len__": (of_said(len), HIDDEN),
    "History.__iter__": (of_said(list), HIDDEN),
    "History.__getitem__": (of_said(lambda said: said[-1]), HIDDEN),
    "History.__contains__": (of_said(lambda said: "alice" in said), HIDDEN),
    "History.__reversed__": (of_said(lambda said: list(reversed(said))), HIDDEN),
    "History.__eq__": (of_said(lambda said: said == ()), HIDDEN),
    "History.__hash__": (of_said(hash), HIDDEN),
    "History.__repr__": (of_said(repr), HIDDEN),
    "History.count": (of_said(lambda said: said.count("alice")), HIDDEN),
    "History.index": (of_said(lambda said: said.index(said[-1])), HIDDEN),
    "History.find": (of_said(lambda said: said.find("alice.1")), {"alice.1"}),
    "History.backwards": (of_said(lambda said: next(said.backwards("alice"))), set()),
    "History.open_to": (of_said(lambda said: list(said.open_to(Audience(frozenset({"alice"}))))), HIDDEN),
    "History.logs": (of_said(lambda said: said.logs), HIDDEN),
    "Game.message": (found, {"alice.2"}),
    "Game.retokenized": (respelled, {"alice.2"}),
    "Game.first": (race, {"alice.2"}),
    "Game.raced": (raced, HIDDEN),
}
"""A read of each name that the table calls private, and the messages it looks at."""
SELF_EVIDENT = {"Pieces.message", "Pieces.error"}
"""Covered by other reads: a message like any other, an error when it is raised."""


@pytest.mark.parametrize("name", READS)
def test_what_the_table_calls_private_is_noticed(name: str) -> None:
    script, looked_at = READS[name]
    assert tainted(script) == looked_at


def test_each_private_name_has_a_read_here() -> None:
    private = {
        f"{sight.of}.{name}" for sight in SIGHTS if sight.taints is not None for name in sight.names if name != "raised"
    }
    assert private == READS.keys() | SELF_EVIDENT


def test_history_has_no_way_that_is_not_told_of() -> None:
    ways = {name for name, each in vars(History).items() if callable(each) or isinstance(each, property)}
    assert ways - {"__init__", "__repr__"} <= vars(TrackedHistory).keys()  # printing it lists its items


@pytest.mark.parametrize("id", ["alice.7", "alice.1.result", "alice.0.thought", "alice.tools0"])
def test_an_id_that_is_not_there_counts_what_its_author_has_said(id: str) -> None:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        with suppress(KeyError):
            game.message(id)

    assert tainted(script) == HIDDEN


def test_an_id_that_is_not_there_counts_what_the_scenario_has_said() -> None:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        await game.announce("Only alice.", to="alice")
        with suppress(KeyError):
            game.message("scenario.1")

    assert tainted(script) == {"scenario.0"}


def test_who_guesses_the_id_of_a_result_in_a_view_has_looked_at_the_result() -> None:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        await alice.say(to=(), tools=[count], tool_choice="count", max_calls=1, max_tokens=60)
        await alice.tell("Well.", to=(), view=View.of([alice.brief, "alice.2.step0.result"]))

    assert tainted(script) == {"alice.2.step0.result"}


def test_who_probes_for_the_calls_of_a_model_has_looked_at_them() -> None:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        said = await alice.say(to="everyone", tools=[count], tool_choice="count", max_calls=1, max_tokens=60)
        assert game.message(said.id)
        assert game.message(f"{said.id}.step0")

    assert tainted(script) == {"alice.2.step0"}


def test_where_a_message_begins_tells_whether_its_model_called_a_tool() -> None:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        view = View((Read(game.said[0].id),), new_at=100)
        said = await alice.say(to="everyone", view=view, tools=[count], tool_choice="count", max_calls=1, max_tokens=60)
        assert said.new_offset is None

    assert {"alice.2.step0", "alice.2.step0.result"} <= tainted(script)


@pytest.mark.parametrize("place", ["read", "new"])
def test_a_refused_position_that_depends_on_a_length_is_a_look_at_it(place: str) -> None:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        thought = await alice.think(max_tokens=4)
        after = After(thought.id, -1000)
        reads = (Read(thought.id),) if place == "new" else (Read(thought.id), Read((await alice.think()).id, after))
        with pytest.raises(RequestError, match="is not a position"):
            await alice.tell("So?", to=(), view=View(reads, new_at=after if place == "new" else None))

    assert "alice.2" in tainted(script)


def test_the_logs_of_what_was_said_are_a_copy_of_what_views_see() -> None:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        [log] = game.said.logs
        count = len(log.messages)
        said = await alice.say(to="everyone", max_tokens=4)
        assert len(log.messages) == count
        [log] = game.said.logs
        assert log.messages[log.places[said.id]].parents == ("bob.0",)

    tainted(script)


async def parents_of_what_is_listed(game: Game, alice: Agent, bob: Agent) -> None:
    said = await alice.say(to="everyone", max_tokens=4)
    for listed in (
        *game.said.open_to(Audience(None)),
        game.said.find(said.id),
    ):
        assert listed is not None
        assert not {"alice.0", "alice.1"} & {*listed.parents}


async def in_view(game: Game, alice: Agent, bob: Agent) -> None:
    await alice.say(to="everyone", view=lambda readable: View.of(list(readable)[-1:]), max_tokens=4)


async def streamed_to_alice(game: Game, alice: Agent, bob: Agent) -> None:
    async with game.streamed(to="alice") as page:
        await page.write("Only alice.")
    await alice.say(to=(), view=View.of([page.id, bob.brief, "alice.1"]), max_tokens=4)


async def open_to_all(game: Game, alice: Agent, bob: Agent) -> None:
    await alice.say(to="everyone", view=View.open_to(game.said, "everyone"), max_tokens=4)


async def by_its_id(game: Game, alice: Agent, bob: Agent) -> None:
    assert game.message((await alice.think(max_tokens=4)).id).author == "alice"
    assert game.message(await alice.tell("A plan.", to=())).id
    assert game.message(await game.announce("Only alice.", to="alice")).id


async def wrong_arguments(game: Game, alice: Agent, bob: Agent) -> None:
    with pytest.raises(RequestError):
        await alice.think(max_tokens=0)


async def before_a_deadline(game: Game, alice: Agent, bob: Agent) -> None:
    with anyio.move_on_after(60):
        await alice.think(max_tokens=4)


async def cancelled_in_the_open(game: Game, alice: Agent, bob: Agent) -> None:
    await cancelled(alice.say(to="everyone", max_tokens=200))


@pytest.mark.parametrize(
    "script",
    [
        parents_of_what_is_listed,
        before_a_deadline,
        cancelled_in_the_open,
        in_view,
        streamed_to_alice,
        open_to_all,
        by_its_id,
        wrong_arguments,
    ],
)
def test_what_the_table_calls_public_is_not_noticed(script: Script) -> None:
    assert tainted(script) == set()


async def cancelled(move: Coroutine[Any, Any, Any]) -> None:
    """Start a move, and cancel it."""
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def late() -> None:
                await anyio.lowlevel.checkpoint()
                scope.cancel()

            group.start_soon(late)
            await move
    assert scope.cancelled_caught


def test_who_cancels_a_message_has_looked_at_how_long_it_takes() -> None:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        await cancelled(alice.think(max_tokens=200))

    assert tainted(script) == {"alice.2"}


# -- limits and other errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "looked_at"),
    [
        ({"agent_messages": 2}, HIDDEN),
        ({"game_messages": 4}, HIDDEN | {"bob.1"}),
    ],
    ids=["agent", "game"],
)
def test_who_hears_of_a_limit_has_looked_at_all_that_it_counts(limits: dict[str, int], looked_at: set[str]) -> None:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        await bob.think(max_tokens=2)
        with pytest.raises(LimitReached):
            await alice.think()
        with anyio.CancelScope(shield=True):  # the game is over and cancels code that is not shielded
            await game.announce("It has thought enough.")

    assert tainted(script, limits=Limits(**limits)) == looked_at


def test_nothing_is_said_after_a_limit_that_is_caught() -> None:
    async def whole(game: Game) -> None:
        alice = game.cast(Talker, "alice")
        for _ in range(2):
            await alice.think(max_tokens=4)
        with pytest.raises(LimitReached):
            await alice.think(max_tokens=4)
        await game.announce("So be it.")

    played = play(whole, config=RunConfig(model="fake", limits=Limits(agent_messages=2)))
    assert [entry.message.author for entry in played.entries] == ["alice", "alice"]


def test_who_hears_that_a_message_is_too_long_has_looked_at_what_its_author_reads() -> None:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        with pytest.raises(ContextOverflow):
            await alice.tell("word " * 5000, to=())

    assert tainted(script) == HIDDEN


class Unsure(BaseModel):
    sure: bool

    @field_validator("sure")
    @classmethod
    def never(cls, value: bool) -> bool:
        raise ValueError("nobody is")


def test_who_hears_that_an_answer_is_refused_has_looked_at_what_its_author_reads() -> None:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        with pytest.raises(AnswerInvalid):
            await alice.answer(Unsure, to=())

    assert tainted(script) == {*HIDDEN, "alice.2"}


def test_who_cancels_a_call_of_a_tool_has_looked_at_the_call() -> None:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        begun = anyio.Event()

        @tool(audience="nobody")
        async def slow() -> str:
            begun.set()
            await anyio.sleep_forever()
            return "done"

        async with anyio.create_task_group() as group:
            group.start_soon(partial(alice.say, to=(), tools=[slow], tool_choice="slow", max_tokens=60))
            await begun.wait()
            group.cancel_scope.cancel()

    assert tainted(script) == {"alice.2.step0"}


@pytest.mark.parametrize(
    ("id", "error", "looked_at"),
    [("alice.0", LeakageError, {"alice.0", "bob.1"}), ("alice.7", AudienceError, {*HIDDEN, "bob.1"})],
)
def test_who_guesses_ids_in_views_has_looked_at_what_is_there(id: str, error: Any, looked_at: set[str]) -> None:
    async def script(game: Game, alice: Agent, bob: Agent) -> None:
        await bob.think(max_tokens=4)
        with pytest.raises(error):
            await bob.say(to="everyone", view=View.of([id]))

    assert tainted(script) == looked_at

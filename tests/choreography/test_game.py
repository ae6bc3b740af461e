"""Games on the fake engine: the cast, who reads what, and that turns are independent."""

from collections.abc import Awaitable, Callable
from itertools import permutations

import anyio
import pytest

from agentcho import Agent, Decode, Game, Message
from agentcho.choreography.choreographer import Choreographer
from agentcho.errors import AudienceError, ScenarioError, TaskError
from agentcho.message import audience
from agentcho.records.canonical import canonical_transcript
from agentcho.tasks import Concepts
from agentcho.testing import FakeEngine

from .conftest import BACKENDS
from .stage import MODES, Play, Script, Talker, game, spoken, talker

# -- the cast and audiences --------------------------------------------------------------------------------


def test_a_thought_is_its_authors_alone_and_what_is_said_is_read_by_its_audience(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b, c = (game.cast(Talker, name) for name in ("alice", "bob", "carol"))
        await a.think()
        await a.say(to="bob")
        await b.say()
        await c.say()

    entries, _ = game(play, script)
    thought, whisper, _, last = spoken(entries)
    assert thought.audience == audience("alice")
    assert whisper.audience == audience(["alice", "bob"])
    assert [m.parents for m in spoken(entries)] == [(), ("alice.0",), ("alice.1",), ("bob.0",)]
    assert last.audience.members is None


@pytest.mark.parametrize("names", ["ali", "Alice", "alice ", "", ["bob", "bobb"], "scenario", ["everyone"]])
def test_an_audience_is_of_exact_names(play: Play, names: str | list[str]) -> None:
    async def script(game: Game) -> None:
        a, _ = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        for act in (lambda to: a.say(to=to), lambda to: a.tell("x", to=to), lambda to: game.announce("x", to=to)):
            with pytest.raises(AudienceError):
                await act(to=names)
        assert game.said == ()

    game(play, script)


@pytest.mark.parametrize(
    ("tasks", "before", "count", "told"),
    [
        (0, 0, 1, r"has none; give it a task set, as in `tasks = \"arithmetic\"`"),
        (2, 1, 2, r"draws 2 more, but of the 2 of this game 1 is left; return the number"),
        (1, 1, 1, r"draws 1 more, but of the 1 of this game none are left"),
    ],
)
def test_a_draw_of_more_tasks_than_there_are_says_what_the_game_has(
    tasks: int, before: int, count: int, told: str
) -> None:
    own = Game(Choreographer(FakeEngine()), tasks=[Concepts(id=f"{n}", words=("a", "b")) for n in range(tasks)])
    assert len(own.draw(before)) == before
    with pytest.raises(TaskError, match=told):
        own.draw(count)


@pytest.mark.parametrize("name", ["everyone", "scenario", "Alice", "a b", " ", "-", "1st", "alice"])
def test_a_name_that_cannot_be_or_is_taken_is_refused(play: Play, name: str) -> None:
    async def script(game: Game) -> list[str]:
        game.cast(Talker, "alice")
        with pytest.raises(AudienceError):
            game.cast(Talker, name)
        return list(game.agents)

    _, [over] = game(play, script)
    assert over.outcome == {"value": ["alice"]}


def test_an_agent_is_cast_from_a_class_an_instance_or_a_library(play: Play) -> None:
    async def script(game: Game) -> None:
        assert game.cast(Talker).name == "talker"
        assert game.cast(Talker, "bob", mood="good").mood == "good"
        assert game.cast(Talker("carol")).name == "carol"
        with pytest.raises(AudienceError, match="library"):
            game.cast("talker", "dora")
        await game.agents["carol"].say(to=["talker", "bob"])

    entries, _ = game(play, script)
    assert spoken(entries)[0].audience == audience(["talker", "bob", "carol"])


def test_the_system_prompt_is_private_and_read_first(play: Play) -> None:
    async def script(game: Game) -> None:
        await game.announce("the rules")
        a, b = game.cast(Talker, "alice", system="You are Alice."), game.cast(Talker, "bob")
        await a.say()
        await b.say()
        with pytest.raises(KeyError):
            game.message("bob.9")
        assert game.message("alice.0").text == "You are Alice."

    entries, _ = game(play, script)
    assert [m.parents for m in spoken(entries)] == [("alice.0", "scenario.0"), ("scenario.0", "alice.1")]


def test_an_announcement_is_read_by_its_audience_and_recorded_even_if_nobody_reads_it(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await game.announce("for bob", to="bob")
        await a.say()
        await b.say()
        await game.announce("into the void")

    entries, _ = game(play, script)
    assert [m.parents for m in spoken(entries)] == [(), ("scenario.0", "alice.0")]
    told = [e.message for e in entries if e.message.author is None]
    assert [m.text for m in told] == ["for bob", "into the void"]


def test_agents_that_are_started_hear_each_other(play: Play) -> None:
    class Counting(Talker):
        async def run(self) -> None:
            for _ in range(3):
                await self.say(max_tokens=2 if self.name == "alice" else 6)

    async def script(game: Game) -> None:
        await game.play_agents(game.cast(Counting, "alice"), game.cast(Counting, "bob"))

    entries, _ = game(play, script, talker(9))
    parents = {m.id: m.parents for m in spoken(entries)}
    assert parents["alice.1"] == ("alice.0",)
    assert parents["bob.1"] == ("alice.0", "alice.1", "bob.0")


# -- rounds ------------------------------------------------------------------------------------------------


def test_moves_of_a_round_are_unseen_until_it_closes_and_come_out_in_order(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        seen: list[tuple[str, ...]] = []

        async def twice(agent: Agent) -> None:
            await agent.say(to="everyone", prompt="well?", max_tokens=9)
            seen.append(tuple(m.id for m in game.said))
            await agent.say()

        await game.together(twice(b), a.say(max_tokens=1))
        assert seen == [("bob.0", "bob.1")]
        assert [m.id for m in game.said] == ["bob.0", "bob.1", "bob.2", "alice.0"]
        await a.say()

    entries, _ = game(play, script, talker(9))
    parents = {m.id: m.parents for m in spoken(entries)}
    assert parents == {
        "bob.1": ("bob.0",),
        "alice.0": (),
        "bob.2": ("bob.0", "bob.1"),
        "alice.1": ("bob.1", "bob.2", "alice.0"),
    }


def test_a_game_has_raced_where_who_ends_first_decided_an_order(play: Play) -> None:
    """Moves of a round have fixed places and do not race; concurrent messages in the same place do."""

    async def script(game: Game) -> list[bool]:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await a.say()
        await game.together(a.say(), b.say())
        before = game.raced
        async with anyio.create_task_group() as group:
            group.start_soon(a.say)
            group.start_soon(b.say)
        return [before, game.raced]

    _, [over] = game(play, script)
    assert over.outcome == {"value": [False, True]}
    assert over.raced


def test_a_round_within_a_round_comes_out_with_the_outer_one(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b, c = (game.cast(Talker, name) for name in ("alice", "bob", "carol"))

        async def pair() -> None:
            await b.think()
            await game.together(b.say(), a.say())
            await a.say()

        await game.together(pair(), c.say())
        await c.say()

    entries, _ = game(play, script)
    parents = {m.id: m.parents for m in spoken(entries)}
    assert parents["bob.1"] == ("bob.0",)
    assert parents["alice.0"] == ()
    assert parents["alice.1"] == ("bob.1", "alice.0")
    assert parents["carol.0"] == ()
    assert parents["carol.1"] == ("bob.1", "alice.0", "alice.1", "carol.0")


def test_tasks_that_a_move_starts_sit_in_its_place(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")

        async def both() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(a.say)
                group.start_soon(b.say)
            await a.say()

        await game.together(both(), b.think())

    entries, _ = game(play, script)
    assert {m.id: len(m.parents) for m in spoken(entries)} == {"alice.0": 0, "bob.0": 0, "bob.1": 0, "alice.1": 2}


def test_a_move_that_fails_fails_the_round_and_what_was_said_stays(play: Play) -> None:
    async def script(game: Game) -> list[str]:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")

        async def breaks() -> None:
            await a.say(max_tokens=2)
            raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            await game.together(breaks(), b.say(max_tokens=12))
        await b.say(max_tokens=1)
        return [m.id for m in game.said]

    _, [over] = game(play, script, talker(12))
    assert over.outcome == {"value": ["alice.0", "bob.1"]}


def test_a_game_that_fails_gives_up_its_own_and_leaves_the_others_alone(play: Play) -> None:
    engine = talker(5)

    async def script(game: Game) -> int:
        a = game.cast(Talker, "alice", system=f"You play game {game.index}.")
        await a.say()
        for _ in range(3):
            if game.index == 1:
                raise LookupError("mine")
            await a.say(max_tokens=2)
        return engine.pages

    with pytest.raises(LookupError):
        game(play, script, engine, games=2)

    async def lives(game: Game) -> object:
        try:
            return await script(game)
        except LookupError:
            return None

    _, overs = game(play, lives, engine, games=2)
    assert overs[-1].outcome == {"value": 5}


# -- independence of turns ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_what_an_agent_says_does_not_depend_on_what_others_do(play: Play, mode: str) -> None:
    """Ids, seeds and tokens of Alice's first turn: with Bob silent, busy before, and busy at the same time."""

    def first(others: Callable[[Game, Agent, Awaitable[Message]], Awaitable[object]]) -> Message:
        async def script(game: Game) -> None:
            b, a = game.cast(Talker, "bob", system="Be Bob."), game.cast(Talker, "alice", system="Be Alice.")
            await others(game, b, a.say(prompt="well?"))

        entries, _ = game(play, script, mode="baseline" if mode == "baseline" else "choreographed")
        return next(m for m in spoken(entries) if m.author == "alice")

    async def silent(game: Game, bob: Agent, turn: Awaitable[Message]) -> None:
        await turn

    async def before(game: Game, bob: Agent, turn: Awaitable[Message]) -> None:
        for _ in range(3):
            await bob.think("hm?", max_tokens=2)
        await turn

    async def beside(game: Game, bob: Agent, turn: Awaitable[Message]) -> None:
        async def busy() -> None:
            for _ in range(3):
                await bob.say(max_tokens=2)

        async def one() -> None:
            await turn

        await game.together(busy(), one())

    assert first(silent) == first(before) == first(beside)


def test_every_turn_of_every_author_in_every_game_has_coins_of_its_own(play: Play) -> None:
    seeds: list[int] = []

    def reply(call: Decode, prompt: str) -> str:
        seeds.append(call.sampling.seed)
        return "x"

    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await game.together(a.think(), b.think())
        await a.think()

    game(play, script, FakeEngine(reply), games=2)
    assert len(set(seeds)) == len(seeds) == 6


async def busy(game: Game) -> None:
    """A bit of everything."""
    a, b = game.cast(Talker, "alice", system="one"), game.cast(Talker, "bob", system="two")
    await game.announce("the rules")
    await game.together(a.think("plan"), b.think("plan"))
    await a.say()
    await b.tell("so be it")
    await game.together(b.say(), a.ask("which?", ["left", "right"]))


def record(backend: str, script: Script, mode: str, seed: int = 0) -> tuple[object, ...]:
    """The transcript of three games, the tokens they encoded, and the batches."""
    engine = FakeEngine()
    entries, _ = game(
        lambda work: anyio.run(work, backend=backend),
        script,
        engine,
        games=3,
        seed=seed,
        mode="baseline" if mode == "baseline" else "choreographed",
    )
    return canonical_transcript(entries), sum(entry.usage.encoded for entry in entries), engine.batches


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_transcript_and_batches_on_both_loops(mode: str) -> None:
    first, *others = [record(backend, busy, mode) for backend in (*BACKENDS, *BACKENDS)]
    assert others == [first] * 3
    assert record("asyncio", busy, mode, seed=1) != first


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_order_in_which_tasks_start_does_not_show(backend: str) -> None:
    """Three agents talk concurrently, started in every order."""

    def talk(order: tuple[str, ...]) -> tuple[object, ...]:
        async def script(game: Game) -> None:
            cast = {name: game.cast(Talker, name, system=name) for name in ("alice", "bob", "carol")}

            async def speaks(agent: Agent) -> None:
                for _ in range(3):
                    await agent.say()

            await game._choreographer.tasks.together(*(speaks(cast[name]) for name in order))

        return record(backend, script, "choreographed")

    assert len({repr(talk(order)) for order in permutations(("alice", "bob", "carol"))}) == 1


def test_a_game_is_the_same_alone_and_among_others(play: Play) -> None:
    alone, _ = game(play, busy, seed=5)
    among, _ = game(play, busy, seed=5, games=4)
    assert canonical_transcript(among)[0] == canonical_transcript(alone)[0]


@pytest.mark.parametrize("ends", ["outcome", "error"])
def test_nothing_more_can_be_said_in_a_game_that_is_over(play: Play, ends: str) -> None:
    """Such a message would stand in the transcript beside an outcome that does not count it."""
    kept = list[tuple[Game, Talker]]()

    async def early(game: Game) -> None:
        kept.append((game, game.cast(Talker, "alice")))
        await kept[0][1].say(to="everyone")
        if ends == "error":
            raise RuntimeError("on purpose")

    if ends == "error":
        with pytest.raises(RuntimeError, match="on purpose"):
            game(play, early)
    else:
        game(play, early)

    async def late(_: Game) -> None:
        over, alice = kept[0]
        said = over.message(over.said[0].id)
        for verb in (
            lambda: alice.say(),
            lambda: alice.think(),
            lambda: alice.choose(["a", "b"]),
            lambda: alice.tell("x", to="everyone"),
            lambda: alice.release(said, to="everyone"),
            lambda: over.announce("x"),
            lambda: over.together(alice.say()),
        ):
            with pytest.raises(ScenarioError, match="game 0 is over, and nothing more can be said in it"):
                await verb()
        with pytest.raises(ScenarioError, match="game 0 is over"):
            async with over.streamed():
                pass
        with pytest.raises(ScenarioError, match="game 0 is over"):
            over.cast(Talker, "bob")
        assert len(over.said) == 1

    game(play, late)

"""Refusals of calls, and what they reveal: nothing that others read, heard or said in secret.

A call that does not fit is refused to its own author; limits of the whole game are no reason to refuse a call. That a
failing prefetch goes unnoticed is tested in `tests/choreography/test_prefetch.py`; that a refused shadow fails only
those who read it, in `tests/engine/test_postponed.py`.
"""

from __future__ import annotations

import anyio
import pytest

from agentcho import After, Agent, Decode, Game, Limits, Read, RunConfig, Sampling, View
from agentcho.errors import ContextOverflow, LimitReached, RequestError, StoreFull
from agentcho.testing import FakeEngine
from agentcho.testing.rehearsal import Rehearsal, Script, play

from ..engines import Engines
from .interference.engines import Models
from .interference.play import play as played
from .interference.workflows import Act
from .looks import Look

CONTEXT = 120
TOO_LONG = 30
"""That many words fit the tight store once, but not twice."""


class Talker(Agent):
    """Says as many words as it may, to everyone."""

    role, audience = "talker", "everyone"


@pytest.fixture(scope="module")
def models(engines: Engines) -> Models:
    return Models(engines)


def rehearsed(script: Script, context: int = CONTEXT, in_place: bool = False, **limits: int) -> Rehearsal:
    config = RunConfig(model="fake", reuse="in-place" if in_place else "rotate", max_tokens=4, limits=Limits(**limits))
    return play(script, config=config, engine=FakeEngine(lambda call, prompt: "word " * 200, context=context))


# -- limits of the whole game --------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", [1, 9, 40])
def test_a_refusal_does_not_count_what_others_have_said_in_secret(secret: int) -> None:
    async def script(game: Game) -> list[int]:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await alice.think(max_tokens=secret, view=View(()))
        needed = []
        for most in (CONTEXT, 10**6):
            with pytest.raises(ContextOverflow) as refused:
                await bob.say(max_tokens=most)
            needed.append(refused.value.needed - most)
        return needed

    over = rehearsed(script, game_tokens=50).over
    assert over.outcome is not None
    first, second = over.outcome["value"]
    assert first == second < 10


def test_the_message_that_reaches_the_games_limit_ends_there_and_the_game_with_it() -> None:
    async def script(game: Game) -> int:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await alice.think(max_tokens=20)
        with pytest.raises(LimitReached, match="the game reached the limit of 30 tokens"):
            await bob.say(max_tokens=60)
        with pytest.raises(LimitReached):
            await bob.say(max_tokens=1)
        return 1

    found = rehearsed(script, game_tokens=30)
    sampled = [message.sampled or (0, 0) for message in found.said()]
    assert [stop - start for start, stop in sampled] == [20, 10]
    assert found.said("bob")[0].stopped == "max_tokens"


def test_room_is_asked_for_what_sampling_allows_whatever_the_game_allows(models: Models) -> None:
    engine = models("tight")
    told = []
    for most in (None, 1, 500):
        with pytest.raises(StoreFull) as refused:
            engine.submit([Decode("so", sampling=Sampling(max_tokens=1000), most=most)])
        told.append(str(refused.value))
    assert len(set(told)) == 1
    (id,) = engine.submit([Decode("so", sampling=Sampling(max_tokens=20, temperature=0), most=3)])
    while id not in engine.step().finished:
        pass
    start, stop = engine.message(id).sampled or (0, 0)
    assert stop - start <= 3
    engine.release([id])


# -- positions ---------------------------------------------------------------------------------------------------


def test_what_would_stand_before_the_beginning_is_refused_to_its_author_with_nothing_said() -> None:
    async def script(game: Game) -> list[str]:
        alice, bob = game.cast(Talker, "alice", system="a secret"), game.cast(Talker, "bob")
        await alice.tell("one")
        for view in (
            View((Read("alice.0"), Read("alice.1", After("alice.0", -500)))),
            View((Read("alice.0"),), After("alice.0", -500)),
        ):
            with pytest.raises(RequestError, match="is not a position"):
                await alice.tell("two", view=view)
        await bob.say()
        return [m.id for m in game.said]

    assert rehearsed(script).over.outcome == {"value": ["alice.0", "alice.1", "bob.0"]}


def test_what_is_read_in_place_and_does_not_fit_is_refused_to_its_author_with_nothing_said() -> None:
    async def script(game: Game) -> list[str]:
        alice, bob = game.cast(Talker, "alice", system="a secret " * 20), game.cast(Talker, "bob")
        with pytest.raises(ContextOverflow):
            await alice.tell("w " * 90, view=View.of(["alice.0"]))
        await alice.tell("w " * 90, view=View(()))
        await bob.say()
        await alice.say(view=View.of(["alice.0", "alice.1"]))
        return [m.id for m in game.said]

    assert rehearsed(script, in_place=True).over.outcome == {"value": ["alice.0", "alice.1", "bob.0", "alice.2"]}


def test_what_its_readers_have_one_after_another_has_to_fit_wherever_its_author_placed_it() -> None:
    """Over overlapping messages it is short for its author; others read it over the same in a row."""

    async def script(game: Game) -> list[str]:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        for _ in range(2):
            await alice.tell("word " * 40, view=View(()))
        beside = View((Read("alice.0", 1), Read("alice.1", 1)), 1)
        with pytest.raises(ContextOverflow):
            await alice.tell("word " * 40, view=beside)
        await alice.tell("word", view=beside)
        await bob.say(view=View.of(["alice.2"]))
        return [m.id for m in game.said]

    assert rehearsed(script).over.outcome == {"value": ["alice.0", "alice.1", "alice.2", "bob.0"]}


def test_in_place_what_a_message_reaches_is_known_before_it_is_encoded() -> None:
    """For overlapping messages, others' and its own: the predicted end is the one that its encodings have."""

    async def script(game: Game) -> dict[str, int]:
        alice, bob = game.cast(Talker, "alice", system="a secret " * 5), game.cast(Talker, "bob")
        await alice.tell("side by side " * 4, view=View(()))
        await alice.tell("over a secret", view=View.of(["alice.0", "alice.1"]))
        await alice.tell("over all that was told", to=("bob",), view=View.of(["alice.2", "alice.1", "alice.0"]))
        await bob.say(view=View.of(["alice.3", "alice.2"]))
        await alice.tell("over what was said", view=View.of(["bob.0", "alice.3"]))
        await bob.tell("and over that", view=View.of(["alice.4", "bob.0"]))
        await game.together(*(agent.say() for agent in (alice, bob)))
        resolver = game._journal.resolver
        known = {id: spoken for id, spoken in resolver.drafts.items() if spoken.metadata.kind == "prefill"}
        return {id: resolver.end_position(spoken, len(game.message(id).tokens)) for id, spoken in known.items()}

    found = rehearsed(script, 4096, in_place=True)
    assert found.over.outcome is not None
    lengths = {entry.message.id: len(entry.message.tokens) for entry in found.entries}
    made = [record for entry in found.entries for record in entry.made]
    ends = {id: max(record.receipt.start + lengths[id] for record in made if record.message == id) for id in lengths}
    foretold: dict[str, int] = found.over.outcome["value"]
    assert foretold == {id: ends[id] for id in foretold}
    assert len(foretold) == 6


# -- the store ---------------------------------------------------------------------------------------------------


def told(secret: str) -> tuple[Act, ...]:
    """Alice has read two secrets when she tells a word to everyone; bob speaks over it, and then she does."""
    return (
        Act(0, "join", "alice", ("alice",), ""),
        Act(1, "join", "bob", ("bob",), ""),
        Act(2, "tell", "alice", ("alice",), secret),
        Act(3, "tell", "alice", ("alice",), secret + " sea"),
        Act(4, "tell", "alice", None, "red oak", (Look(2), Look(3))),
        Act(5, "say", "bob", None, "", (Look(4),)),
        Act(6, "say", "alice", ("alice",), "sun", (Look(4),)),
        Act(7, "say", "bob", None, "", (Look(4), Look(5))),
    )


def test_a_store_too_small_for_what_its_author_had_read_tells_its_author_alone(models: Models) -> None:
    config = RunConfig(deterministic=True, max_tokens=3)

    def journal(reader: str, secret: str) -> list[tuple[object, ...]]:
        async def work() -> list[tuple[object, ...]]:
            return (await played(models("tight"), told(secret), reader, config)).journal

        return anyio.run(work)

    short, long = "ice", "ice " * TOO_LONG
    assert not _refused(journal("alice", short))
    assert _refused(journal("alice", long))
    assert journal("bob", short) == journal("bob", long)
    assert not _refused(journal("bob", long))


def _refused(journal: list[tuple[object, ...]]) -> bool:
    return any(entry[:2] == ("raised", "StoreFull") for entry in journal)

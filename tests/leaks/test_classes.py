"""Who could tell that keys were already stored: storage is shared within a class of readers, never across classes."""

from __future__ import annotations

import json
from typing import get_args

import anyio
import pytest

from agentcho import Agent, Choreographer, Game, Prefill, RunConfig
from agentcho.agent import Names
from agentcho.config import Leakage, ReusePolicy
from agentcho.message import Audience, Metadata
from agentcho.protocol.call import Shadow
from agentcho.provenance.drafts import Draft
from agentcho.provenance.resolver import Resolver
from agentcho.provenance.views import Read, ReadSet

from .contract import Bench

SEEN = [None, frozenset({"alice"}), frozenset({"alice", "bob"}), frozenset({"bob"})]


def fed(bench: Bench, *calls: Prefill) -> int:
    """The number of tokens encoded for these prefills."""
    before = len(bench.steps)
    bench.run(*calls)
    return sum(result.encoded for result in bench.steps[before:])


def test_the_same_class_hits_and_another_does_not(bench: Bench) -> None:
    whole = fed(bench, Prefill("words", salt="alice"))
    assert whole > 0
    assert fed(bench, Prefill("words", salt="alice")) == 0
    assert fed(bench, Prefill("words", salt="bob")) == whole
    assert fed(bench, Prefill("words")) == whole
    assert fed(bench, Prefill("words", salt="bob"), Prefill("words", salt="alice"), Prefill("words")) == 0


def test_a_class_goes_on_upwards(bench: Bench) -> None:
    """Encodings over keys of different classes are not shared, whatever their own class."""
    one, other = Prefill("words", salt="alice"), Prefill("words", salt="bob")
    above = [Prefill("more", (one,), salt="x"), Prefill("more", (other,), salt="x")]
    once = fed(bench, one, above[0])
    assert fed(bench, other, above[1]) == once
    assert fed(bench, one, above[0], other, above[1]) == 0


@pytest.mark.parametrize("where", [{"offsets": (7,)}, {"new_offset": 60}, {"role": "system"}])
def test_what_differs_in_any_way_is_not_shared(bench: Bench, where: dict[str, object]) -> None:
    """Same words, same class: another position, another role."""
    [parent] = bench.run(Prefill("before"))
    assert fed(bench, Prefill("words", (parent,))) > 0
    assert fed(bench, Prefill("words", (parent,), **where)) > 0  # type: ignore[arg-type]
    assert fed(bench, Prefill("words", (parent,))) == 0


def calls_of(leakage: Leakage, audience: frozenset[str] | None, deterministic: bool = False) -> tuple[str, ...]:
    """Classes of the encodings of an own message, another's message to that audience, the answer and its shadow."""
    resolver = Resolver(ReusePolicy(leakage=leakage, shadow="always", deterministic=deterministic))
    both = (("own", "bob", frozenset({"bob"})), ("other", "alice", audience), ("answer", "bob", None))
    for id, author, readers in both:
        data = Metadata(id, "prefill", "user", author, Audience(readers), ())
        resolver.drafts[id] = Draft(data, id, author, ReadSet(author, (), None, ()))
    answer = resolver.drafts["answer"]
    answer.reads = ReadSet("bob", (Read("own"), Read("other")), None, ())
    calls = resolver.decode_plan(answer).calls
    assert isinstance(calls[-1], Shadow) == (leakage == "enforce" and not deterministic)
    return tuple(call.salt for call in calls)


@pytest.mark.parametrize("audience", SEEN)
def test_a_class_is_who_all_the_keys_are_for(audience: frozenset[str] | None) -> None:
    assert set(calls_of("audit", audience)) == {""}
    own, other, answer = calls_of("deny", audience)
    assert own == '["bob"]'
    assert other == json.dumps(Audience(audience).to_json())  # made by its author, and read by everyone in the audience
    assert answer == '"everyone"'
    own, other, *_, answer, shadow = calls_of("enforce", audience)
    assert (own, answer, shadow) == ('["bob"]', '["bob"]', '"everyone"')
    assert (
        other == {None: '"everyone"', SEEN[1]: '["alice"]', SEEN[2]: '["alice", "bob"]', SEEN[3]: '["bob"]'}[audience]
    )


@pytest.mark.parametrize("leakage", get_args(Leakage))
def test_the_deterministic_profile_shares_with_itself_alone(leakage: Leakage) -> None:
    fast, exact = (set(calls_of(leakage, SEEN[2], deterministic)) for deterministic in (False, True))
    assert not fast & exact


class Talker(Agent):
    """Says a word or two."""

    role = "talker"


def cost(bench: Bench, leakage: Leakage, first: Names, second: Names) -> tuple[int, int]:
    """Tokens encoded for bob's turn in one game, and then in a second game with the second audience."""
    spent: list[int] = []

    async def work() -> None:
        async with Choreographer(bench.engine, mode="choreographed", leakage=leakage) as c:
            for number, to in enumerate((first, second)):
                game = Game(c, number, 0, RunConfig(model="any", leakage=leakage, default_prompt="drop"))
                alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
                await game.announce("A word that only some may hear.", to=to)
                await alice.tell("Who heard that?", to=to, role="user")
                before = c.encoded
                await bob.say(to=bob.name, max_tokens=1, temperature=0)
                spent.append(c.encoded - before)

    anyio.run(work)
    return spent[0], spent[1]


@pytest.mark.parametrize("leakage", get_args(Leakage))
@pytest.mark.parametrize("readers", ["everyone", ("alice", "bob")])
def test_a_second_game_finds_what_the_first_one_made_for_the_same_readers(
    bench: Bench, leakage: Leakage, readers: Names
) -> None:
    first, second = cost(bench, leakage, readers, readers)
    assert second < first


def test_a_second_game_finds_nothing_that_was_made_for_others(bench: Bench) -> None:
    for one, other in (("everyone", ("alice", "bob")), (("alice", "bob"), "everyone")):
        first, second = cost(bench, "enforce", one, other)
        assert second == first


@pytest.mark.parametrize("leakage", ["enforce", "deny"])
@pytest.mark.parametrize("open_system", [True, False])
def test_an_open_system_prompt_is_of_one_class_and_private_ones_are_of_a_class_each(
    bench: Bench, leakage: Leakage, open_system: bool
) -> None:
    """The tokens encoded for two agents that think one token each over the same system prompt."""
    spent: list[int] = []

    async def work() -> None:
        async with Choreographer(bench.engine, mode="choreographed", leakage=leakage) as c:
            game = Game(c, 0, 0, RunConfig(model="any", leakage=leakage))
            for name in ("alice", "bobby"):
                before = c.encoded
                agent = game.cast(Talker, name, system="The same words.", open_system=open_system)
                await agent.think(max_tokens=1, temperature=0)
                spent.append(c.encoded - before)

    anyio.run(work)
    prompt = fed(bench, Prefill("The same words.", role="system", salt="another"))
    assert spent[0] - spent[1] == (prompt if open_system else 0)

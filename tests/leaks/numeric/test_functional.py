"""An enforced call gives the same result as a stock model that encodes everything from scratch under the same view.

So refusing everything cannot pass for enforcement, and shadows, lazy encodings and those made again are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agentcho import Engine, Game
from agentcho.records.transcript import own_records
from tests.engine.families import Family
from tests.engine.oracle import Oracle
from tests.engine.stage import gap
from tests.engines import Engines

from .definition import Definition
from .script import Act, chain, same_length, workflow
from .stage import (
    BITWISE,
    FAST,
    LONG,
    WORDS_A_TURN,
    Played,
    Profile,
    Script,
    apart_from_itself,
    differences,
    movement,
    others,
    play,
    same,
)

PROFILES = {
    "deterministic": BITWISE,
    "late shadows": FAST,
    "shadows": replace(FAST, turn=LONG),
    "lazy": replace(FAST, shadow="never"),
}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_an_enforced_call_equals_one_encoded_from_nothing_under_the_same_view(
    deep_family: Family, deep_engine: Engine, engines: Engines, profile: Profile
) -> None:
    acts, reader = workflow(30, steps=5), "bob"
    played = play(deep_engine, acts, reader, profile=profile)
    bos = deep_engine.framing.bos
    oracle = Oracle(engines.stock(deep_family), deep_family.layers, bos)
    definition = Definition(oracle, played.entries, 0 if bos is None else 1)
    own = [entry for entry in played.entries if entry.message.kind == "decode" and entry.message.author == reader]
    assert len(own) == len(played.double.own) > 0
    for entry, key in zip(own, played.double.own, strict=True):
        ours = played.double.kept[key].logits
        assert ours is not None
        assert gap(ours.log_softmax(-1), definition.chosen_from(entry.message.id)) < 1e-4


@pytest.mark.parametrize("seed", [31, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (32, 33))])
def test_a_reader_attends_to_all_of_its_view_and_to_its_own_words_as_it_spoke_them(
    llama_of: Callable[[int], Engine], seed: int
) -> None:
    played = play(llama_of(6), workflow(seed), "carol")
    records = {record.id: record for entry in played.entries for record in entry.made}
    for entry in (entry for entry in played.entries if entry.message.kind == "decode"):
        read = [records[piece.id] for piece in own_records(played.entries)[entry.message.id].receipt.context]
        assert tuple(record.message for record in read) == entry.message.parents
        assert all((record.recipe == "author") == (record.caller == entry.message.author) for record in read)


def test_what_a_reader_may_read_does_move_it(llama_of: Callable[[int], Engine]) -> None:
    acts = chain(3)
    for hidden in ("alice", "bob"):  # alice's secret affects alice; alice's words affect bob
        changed = tuple(_other_words(act, "alice") for act in acts)
        engine = llama_of(6)
        first = play(engine, acts, hidden)
        second = play(engine, changed, hidden)
        assert movement(first, second) > 1e-6


def _other_words(act: Act, who: str) -> Act:
    return replace(act, words=same_length(act.number, act.words)) if act.who == who else act


@pytest.mark.parametrize("turn", [pytest.param(WORDS_A_TURN, marks=pytest.mark.slow), LONG])
def test_shadow_lazy_and_deterministic_make_the_same_encodings(deep_engine: Engine, turn: int) -> None:
    acts, reader = workflow(34, steps=3), "alice"
    lazy = play(deep_engine, acts, reader, profile=replace(FAST, shadow="never", turn=turn))
    said = others(lazy, acts, reader)
    for profile in (FAST, replace(FAST, shadow="always"), replace(BITWISE, temperature=0)):
        again = play(deep_engine, acts, reader, said, replace(profile, turn=turn))
        assert differences(lazy, again, 1e-4) == []
        common = lazy.double.kept.keys() & again.double.kept.keys()
        assert {key for key in common if key.salt == '"everyone"'}
        for key in common:
            one, other = lazy.double.kept[key].cached, again.double.kept[key].cached
            assert all(same(a, b, 1e-4) for a, b in zip(one, other, strict=True)), key


class Forgetful(Script):
    """Before each act all encodings but the speaker's and bob's own are released: who reads one has it made again."""

    async def _do(self, game: Game, act: Act) -> None:
        books = game._journal
        for id, draft in books.resolver.drafts.items():
            own = draft.metadata.author in ("bob", act.who)
            known = [] if own else books.resolver.forget(id)
            game._choreographer.release(known)
            books.held[:] = [held for held in books.held if held not in known]
        await super()._do(game, act)


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(how, id=name, marks=pytest.mark.slow if name in ("shadows", "lazy") else ())
        for name, how in PROFILES.items()
    ],
)
def test_encodings_that_are_made_again_are_those_made_first(
    llama_of: Callable[[int], Engine], profile: Profile
) -> None:
    engine, acts, reader = llama_of(6), audible(workflow(35)), "bob"
    once = play(engine, acts, reader, profile=profile)
    again = play(engine, acts, reader, others(once, acts, reader), profile, script=Forgetful)
    tolerance = None if profile.deterministic else 1e-4
    assert len(again.double.again) > len(once.double.again)
    assert differences(once, again, tolerance) == []
    assert apart_from_itself(again, tolerance) == []


def audible(acts: tuple[Act, ...]) -> tuple[Act, ...]:
    """Without rounds: in a round, two readers of one forgotten message would each make it again."""
    return tuple(replace(act, round=None) for act in acts)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_reader_reads_the_ids_that_were_said_and_not_those_of_their_text(
    llama_of: Callable[[int], Engine], profile: Profile
) -> None:
    engine = llama_of(6)
    encode = engine.framing.content.encode
    letters = tuple(id for letter in " the and" for id in encode(letter))
    assert letters != tuple(encode(" the and"))
    played = play(engine, chain(1), "bob", {"0. so": letters}, profile)
    said = next(entry.message for entry in played.entries if entry.message.header == "0. so")
    assert (said.text, said.canonical) == (" the and", False)
    [(read, _, _)] = played.double.kept[played.double.own[0]].context
    assert played.double.kept[read].words.tokens == said.tokens


def test_the_stage_itself_tells_two_plays_apart(llama_of: Callable[[int], Engine]) -> None:
    engine, acts = llama_of(6), chain(1)
    first: Played = play(engine, acts, "bob")
    other = play(engine, tuple(_other_words(act, "alice") for act in acts), "bob", {"0. so": (5, 6)})
    assert differences(first, other)
    poisoned = play(engine, acts, "bob")
    key = poisoned.double.own[0]
    poisoned.double.kept[key].cached[0][0].fill_(float("nan"))
    assert differences(first, poisoned)

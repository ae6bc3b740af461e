"""Small facts of enforcement that mutants break: labels, cones, audiences, defaults. Without a model."""

from __future__ import annotations

import json

import pytest

from agentcho import Agent, Game, RunConfig
from agentcho.config import ReusePolicy
from agentcho.config.reuse import Shadowing
from agentcho.errors import LeakageError
from agentcho.message import EVERYONE, Audience, Metadata
from agentcho.protocol.call import ContextEntry, Receipt
from agentcho.provenance.drafts import Draft, ModelTokenization
from agentcho.provenance.labels import EncodingRecord, Ledger, Monitor
from agentcho.provenance.resolver import Resolver
from agentcho.provenance.views import After, Read, ReadSet, View
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import FakeEngine
from agentcho.testing.rehearsal import Rehearsal, Script, play

ALICE = Audience(frozenset({"alice"}))


class Talker(Agent):
    """Says whatever the engine generates."""

    role = "talker"


def enforced(script: Script, shadow: Shadowing = "auto") -> Rehearsal:
    """Play a script under enforce."""
    return play(script, config=RunConfig(model="fake", leakage="enforce", shadow=shadow, max_tokens=4))


async def _secret_then_public(game: Game) -> str:
    alice, bob = game.cast(Talker, "alice", system="a secret"), game.cast(Talker, "bob")
    first = await alice.say(to="everyone")
    second = await alice.say(to="everyone")
    await bob.say(to="everyone")
    return f"{first.id} {second.id}"


def records(played: Rehearsal) -> dict[tuple[str, str], EncodingRecord]:
    """All encodings of a play, by recipe and message."""
    return {(record.recipe, record.message): record for entry in played.entries for record in entry.made}


def test_a_cone_reaches_what_was_attended_to_by_what_is_attended_to() -> None:
    ledger = Ledger()
    ledger.record(1, "secret", "alice", "author", Receipt((), 0, False))
    ledger.record(2, "public", "alice", "author", Receipt((ContextEntry(1, 0, 3),), 3, False))
    third = ledger.record(3, "answer", "bob", "author", Receipt((ContextEntry(2, 0, 3),), 3, False))
    assert third.cone == {"secret", "public", "answer"}


def test_a_cone_holds_what_was_attended_to_and_not_what_was_asked_for() -> None:
    made = records(enforced(_secret_then_public))
    assert made["author", "alice.1"].cone == {"alice.0", "alice.1"}
    assert made["audience", "alice.1"].cone == {"alice.1"}
    assert made["audience", "bob.0"].cone == {"alice.1", "alice.2", "bob.0"}


def test_a_line_that_is_written_and_read_again_has_its_cones() -> None:
    for entry in enforced(_secret_then_public).entries:
        assert TranscriptEntry.from_json(json.loads(json.dumps(entry.to_json()))) == entry


def test_a_label_of_one_game_vouches_for_nothing_in_another() -> None:
    first, second = Monitor(), Monitor()
    first.guard("said", EVERYONE, EVERYONE).admit(1, ())
    first.guard("next", EVERYONE, EVERYONE).admit(2, (1,))
    with pytest.raises(LeakageError):
        second.guard("next", EVERYONE, EVERYONE).admit(2, (1,))


def test_everyone_is_no_roster() -> None:
    async def script(game: Game) -> None:
        game.cast(Talker, "alice")
        announced = await game.announce("welcome")
        late = game.cast(Talker, "late")
        assert game.message((await late.say(to="everyone")).id).parents == (announced,)

    entries = enforced(script).entries
    assert {entry.message.audience for entry in entries} == {EVERYONE}


def test_without_an_audience_a_message_is_its_authors_alone() -> None:
    async def script(game: Game) -> None:
        alice = game.cast(Talker, "alice")
        await alice.say()
        await alice.tell("so")
        await alice.think()
        await alice.ask("left or right?", ("left", "right"))

    assert {entry.message.audience for entry in enforced(script).entries} == {ALICE}


def test_an_open_system_prompt_is_nobodys_and_a_private_one_reaches_nobody_else() -> None:
    async def script(game: Game) -> None:
        alice = game.cast(Talker, "alice", system="same", open_system=True)
        bob = game.cast(Talker, "bob", system="same")
        await alice.say(to="everyone")
        await bob.say(to="everyone")
        await alice.say(to="everyone")

    made = records(enforced(script))
    prompts = {message: recipe for recipe, message in made if message in {"scenario.0", "bob.0"}}
    assert prompts == {"scenario.0": "audience", "bob.0": "author"}
    assert made["audience", "alice.0"].cone == {"scenario.0", "alice.0"}
    assert made["author", "bob.1"].cone == {"bob.0", "scenario.0", "alice.0", "bob.1"}
    assert made["audience", "bob.1"].cone == {"scenario.0", "alice.0", "bob.1"}
    assert made["audience", "alice.1"].cone == {"scenario.0", "alice.0", "bob.1", "alice.1"}


@pytest.mark.parametrize("shadow", ["auto", "always", "never"])
def test_what_all_may_read_is_encoded_once_until_its_author_has_a_secret(shadow: Shadowing) -> None:
    """One encoding serves as E(m) and X(m) if both would be made over the same. If shadows are never made, whether a
    reader's call makes X(m) would reveal that its author has no secret."""

    async def script(game: Game) -> None:
        alice, bob = (game.cast(Talker, name, system="same", open_system=True) for name in ("alice", "bob"))
        await alice.say(to="everyone")
        await bob.say(to="everyone")
        await alice.say(to="everyone")
        await alice.think("mine alone")
        await alice.say(to="everyone")
        await bob.say(to="everyone")

    played = enforced(script, shadow=shadow)
    made = [(record.message, record.recipe) for entry in played.entries for record in entry.made]
    assert len(set(made)) == len(made)
    said = {message: {recipe for id, recipe in made if id == message} for message, _ in made if message[-2] == "."}
    twice = {message for message, recipes in said.items() if recipes == {"author", "audience"}} - {"alice.2", "alice.3"}
    once = {message for message, recipes in said.items() if recipes == {"audience"}}
    if shadow == "never":
        assert (twice, once) == ({"alice.0", "bob.0", "alice.1", "alice.4"}, {"scenario.0"})
    else:
        assert (twice, once) == ({"alice.4"}, {"scenario.0", "alice.0", "bob.0", "alice.1", "bob.1"})
    assert "author" in said["alice.2"] & said["alice.3"], "what she thinks is hers alone"


@pytest.mark.parametrize(("home", "recipe"), [("plain", "audience"), ("tuned", "author")])
def test_beside_a_model_with_an_adapter_what_is_for_audiences_is_under_the_first_name(home: str, recipe: str) -> None:
    """So the author's encoding is a separate one there, under the name of its own model."""
    engine = FakeEngine()
    spelling = ModelTokenization("plain", None, engine, home)
    resolver = Resolver(ReusePolicy("choreographed", "enforce"), engine.bos, spelling=spelling)
    data = Metadata("said", "decode", "assistant", "alice", EVERYONE, ())
    draft = resolver.drafts["said"] = Draft(data, "", "alice", ReadSet("alice", (), None, ()), engine="plain")
    plan = resolver.decode_plan(draft)
    assert plan.recipe == recipe
    assert len(plan.calls) == (1 if recipe == "audience" else 2)


def test_others_read_a_message_where_its_author_did_not_put_it() -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice", system="a secret of some length"), game.cast(Talker, "bob")
        system = game.said[0].id
        placed = View((Read(system),), After(system, 9))
        await alice.say(to="everyone", view=placed)
        await bob.say(to="everyone")

    made = records(enforced(script))
    assert made["author", "alice.1"].receipt.start > made["audience", "alice.1"].receipt.start == 1


def test_others_never_read_an_authors_encoding_clean_or_not() -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await alice.say(to="everyone")  # over nothing at all, so it is clean
        await bob.say(to="everyone")

    played = enforced(script)
    made = {record.id: record for entry in played.entries for record in entry.made}
    own = played.entries[-1].own
    assert own is not None
    [read] = [made[piece.id] for piece in own.receipt.context]
    assert (read.message, read.recipe) == ("alice.0", "audience")

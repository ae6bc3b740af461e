"""Words after reading what not everyone who hears them may read: listed, refused, or charged before they are said."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from math import log2
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

import agentcho
from agentcho import Agent, Game, View
from agentcho.audit.audit import audit_entries
from agentcho.audit.notes import Seal
from agentcho.config import RunConfig
from agentcho.errors import AnswerInvalid, LeakageError
from agentcho.provenance.views import Charge, Read
from agentcho.testing import FakeEndpoint, Rehearsal, play
from tests.audit.transcripts import KEY, subject
from tests.people.said import Scripted

Script = Callable[[Game, Agent, Agent, Agent], Awaitable[Any]]
COLOURS = ("red", "green", "blue")


class Vote(BaseModel):
    """22 of them."""

    whom: Literal["bob", "carol"]
    doubt: Annotated[int, Field(ge=0, le=10)]


class Free(BaseModel):
    """There is no end of these."""

    reason: str


def rehearse(script: Script, replies: Any = None, words: Any = "refuse", budget: float | None = None, **more: Any):  # type: ignore[no-untyped-def]
    async def whole(game: Game) -> Any:
        return await script(game, *(game.cast(Agent, name) for name in ("alice", "bob", "carol")))

    config = RunConfig(model="fake", words=words, leak_budget=budget, **more.pop("run", {}))
    return play(whole, replies, config=config, **more)


def charges(played: Rehearsal) -> dict[str, Charge]:
    return {entry.message.id: entry.act.charge for entry in played.entries if entry.act.charge is not None}


async def whispered(game: Game) -> str:
    return await game.announce("The word is xyzzy.", to=["alice"])


def test_speech_after_a_secret_is_refused_before_anything_is_sampled() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> list[str]:
        await whispered(game)
        await alice.think()
        with pytest.raises(LeakageError, match=r"scenario\.0 \(by scenario\), alice\.0 \(by alice\)") as refused:
            await alice.say(to="everyone")
        assert refused.value.path == ("scenario.0", "alice.0")
        assert "xyzzy" not in str(refused.value)
        with pytest.raises(LeakageError, match=r"alice\.1 \(its prompt\)"):
            await alice.say(to="bob", prompt="What is the word?", view=View(()))
        return [m.id for m in game.said] + [(await alice.say(to="alice")).text]

    async def without(game: Game, alice: Agent, bob: Agent, carol: Agent) -> list[str]:
        await whispered(game)
        await alice.think()
        return [m.id for m in game.said] + [(await alice.say(to="alice")).text]

    refused, free = rehearse(script), rehearse(without)
    assert refused.over.outcome == free.over.outcome, "a refused turn takes no coins, and leaves nothing behind"


def test_what_everyone_may_read_is_in_nobodys_way() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        secret = await whispered(game)
        hello = await bob.say(to="everyone")
        await alice.say(to="everyone", view=View.of([hello.id]))
        await alice.think(view=View.of([secret]))
        await carol.say(to=["bob"])

    assert not charges(rehearse(script))


def test_a_choice_is_charged_by_how_many_there_are() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await whispered(game)
        await alice.choose(COLOURS, to="bob")
        await alice.choose([*COLOURS, "red"], to="everyone", view=View.of(["scenario.0"]))
        await bob.say(to="everyone", view=View.of(["alice.1"]))

    assert charges(rehearse(script)) == {
        "alice.0": Charge("choices", log2(3), (("alice", ("bob",)),)),
        "alice.1": Charge("choices", log2(3), (("alice", ("bob", "carol", "everyone")),)),
    }


def test_what_the_scenario_told_somebody_is_that_ones_secret() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await game.announce("You two are wolves.", to=["alice", "bob"])
        await game.announce("Nobody hears this.", to=[])
        await bob.choose(COLOURS, to="carol")

    (charge,) = charges(rehearse(script)).values()
    assert charge.owed == (("alice, bob", ("carol",)),)


def test_an_answer_is_said_in_private_and_told_in_one_spelling() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> Any:
        await whispered(game)
        vote = await alice.answer(Vote, to="everyone", header="My vote: ")
        await bob.say(to="everyone")
        return vote.model_dump()

    played = rehearse(script, {"alice": ['{"doubt": 3, "whom": "bob"}'], "bob": ["Ha."]})
    private, told = (entry.message for entry in played.entries if entry.message.author == "alice")
    assert (private.kind, private.audience.to_json(), private.text) == (
        "decode",
        ["alice"],
        '{"doubt": 3, "whom": "bob"}',
    )
    assert (told.kind, told.audience.to_json(), told.text) == (
        "prefill",
        "everyone",
        'My vote: {"doubt":3,"whom":"bob"}',
    )
    assert told.canonical
    assert played.over.outcome == {"value": {"whom": "bob", "doubt": 3}}
    (charge,) = charges(played).values()
    assert (charge.by, charge.bits, charge.owed) == ("schema", log2(22), (("alice", ("bob", "carol", "everyone")),))
    assert played.entries[-1].message.parents == (told.id,), "the private one is for alice alone"


def test_the_ids_of_answers_do_not_tell_whether_there_was_a_secret_behind_them() -> None:
    async def script(tell: Callable[[Game], Awaitable[str]], game: Game, *cast: Agent) -> list[str]:
        alice = cast[0]
        await alice.answer(Vote, to="everyone", view=View.of([await tell(game)]))
        await alice.choose(COLOURS, to="everyone", view=View(()))
        return [message.id for message in game.said if message.audience.members is None]

    async def said(game: Game) -> str:
        return await game.announce("The word is xyzzy.")

    replies = {"alice": ['{"doubt": 3, "whom": "bob"}', "red"]}
    told = []
    for tell in (whispered, said):
        outcome = rehearse(partial(script, tell), replies).over.outcome
        assert outcome is not None
        told.append([id for id in outcome["value"] if id != "scenario.0"])
    assert told == [["alice.0", "alice.1"]] * 2


def test_an_answer_without_bounds_is_refused_and_says_why() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await whispered(game)
        with pytest.raises(LeakageError, match="allows unlimited strings; give an enum"):
            await alice.answer(Free, to="everyone")
        await alice.answer(Free)

    assert not charges(rehearse(script))


def test_an_answer_that_does_not_fit_is_told_to_nobody() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await whispered(game)
        with pytest.raises(AnswerInvalid, match="it was not delivered"):
            await alice.answer(Vote, to="everyone")
        assert all(message.audience.to_json() == ["alice"] for message in game.said)

    rehearse(script, {"alice": ['{"whom":"bob","doubt":11}']})


def test_under_track_everything_is_said_and_listed() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await whispered(game)
        await alice.say(to="bob")
        await alice.answer(Free, to="bob", view=View.of(["scenario.0"]))
        await alice.choose(COLOURS, to="bob", view=View.of(["scenario.0"]))

    owed = (("alice", ("bob",)),)
    listed = charges(rehearse(script, words="track", budget=0.5))
    free = Charge("words", None, owed)
    said = [charge._replace(schema=None) for charge in listed.values()]
    assert said == [free, free, Charge("choices", log2(3), owed)]
    assert not charges(rehearse(script, words=None))


def test_what_the_code_releases_passes_and_is_listed() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await whispered(game)
        mine = await alice.think()
        await alice.release(mine, to="bob")
        await alice.say(to="carol", release=True)
        await alice.release(await alice.say(to="alice", view=View(())), to="alice")

    owed = (("alice", ("bob",)),)
    to_carol = (("alice", ("carol",)),)
    listed = charges(rehearse(script, budget=0))
    assert listed == {"alice.1": Charge("release", None, owed), "alice.2": Charge("release", None, to_carol)}


def test_a_release_is_in_the_way_of_nobody_whom_it_was_made_to() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await whispered(game)
        await alice.choose(COLOURS, to="bob")
        told = "alice.0"
        await bob.say(to="alice", view=View.of([told]))
        with pytest.raises(LeakageError, match=r"alice\.0"):
            await bob.say(to="carol", view=View.of([told]))
        with pytest.raises(LeakageError, match=r"\(scenario\.0 \(by scenario\)\)"):
            await alice.say(to="bob", view=View.of([told]))
        await alice.say(to="bob", view=View((Read(told, public=True),)))

    rehearse(script)


def test_what_was_told_of_a_secret_is_its_owners_wherever_it_goes() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await game.announce("The word is xyzzy.", to=["carol"])
        await carol.choose(COLOURS, to="alice")
        await alice.choose(COLOURS, to="bob", view=View.of(["carol.0"]))
        await alice.choose(COLOURS, to=["bob", "carol"], view=View.of(["carol.0"]))
        dora = game.cast(Agent, "dora")
        await bob.choose(COLOURS, to="dora", view=View.of(["alice.0"]))
        await dora.choose(COLOURS, to="carol")

    listed = charges(rehearse(script))
    assert {id: charge.owed for id, charge in listed.items()} == {
        "carol.0": (("carol", ("alice",)),),
        "alice.0": (("carol", ("bob",)),),
        "alice.1": (("carol", ("bob",)),),
        "bob.0": (("alice", ("dora",)), ("carol", ("dora",))),
        "dora.0": (("alice", ("carol",)), ("bob", ("carol",))),
    }


def test_charges_add_up_until_what_is_left_is_too_little() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> str:
        secret = View.of([await whispered(game)])
        for _ in range(2):
            await alice.choose(COLOURS, to="bob", view=secret)
        with pytest.raises(LeakageError) as refused:
            await alice.choose(COLOURS, to=["bob", "carol"], view=secret)
        await alice.choose(["yes", "no"], to="everyone", view=secret)
        await alice.choose(COLOURS, to="carol", view=secret)
        await alice.choose(["only"], to="bob", view=secret)
        with pytest.raises(LeakageError, match=r"only 0\.03007 of the 4\.2 bits of leak_budget are"):
            await alice.choose(["yes", "no"], to="bob", view=secret)
        await bob.choose(COLOURS, to="carol", view=View(()))
        return str(refused.value)

    said = rehearse(script, budget=4.2).over.outcome["value"]
    assert said == (
        "alice may not say this: it can tell bob 1.585 bits about secrets of alice, but only 1.03 of the 4.2 bits of "
        "leak_budget are left. Offer fewer choices, or raise leak_budget"
    )
    assert len(charges(rehearse(script, budget=4.2))) == 5


def test_a_budget_of_exactly_what_is_asked_is_enough() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        secret = View.of([await whispered(game)])
        for _ in range(27):
            await alice.choose(COLOURS, to="bob", view=secret)

    assert len(charges(rehearse(script, budget=27 * log2(3)))) == 27


def test_who_comes_late_has_heard_what_everyone_has() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        secret = View.of([await whispered(game)])
        await alice.choose(["yes", "no"], to="everyone", view=secret)
        game.cast(Agent, "dora")
        await alice.choose(["yes", "no"], to="dora", view=secret)
        with pytest.raises(LeakageError, match=r"tell dora .* only 0 of the"):
            await alice.choose(["yes", "no"], to="dora", view=secret)
        await alice.choose(["yes", "no"], to="bob", view=secret)
        with pytest.raises(LeakageError, match="tell bob"):
            await alice.choose(["yes", "no"], to="everyone", view=secret)

    rehearse(script, budget=2)


def test_what_a_refusal_says_depends_on_no_words() -> None:
    """It does reveal how much others have revealed, and nothing else: it is the same whatever their words were."""

    def heard(secret: str) -> Any:
        async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> list[str]:
            await game.announce(f"The word is {secret}.", to=["carol"])
            told = []
            await carol.choose(["xyzzy", "plugh"], to="alice")
            await carol.choose(["xyzzy", "plugh"], to="bob", view=View.of(["scenario.0"]))
            await bob.choose(["xyzzy", "plugh"], to="alice")
            for who, names in ((alice, "everyone"), (alice, ["bob"]), (bob, "everyone")):
                for choices in (COLOURS, ("yes", "no")):
                    try:
                        await who.choose(choices, to=names)
                    except LeakageError as error:
                        told.append(f"{error} {error.path}")
            return told

        first = {"xyzzy": "red", "plugh": "blue"}[secret]
        replies = {"carol": [secret, secret], "bob": [secret, first], "alice": [first, "yes", "no"]}
        return rehearse(script, replies, budget=2.6).over.outcome["value"]

    assert len(heard("xyzzy")) == 5
    assert heard("xyzzy") == heard("plugh")
    assert not any("xyzzy" in line for line in heard("xyzzy"))


def test_an_owner_that_the_speaker_does_not_know_of_is_not_named() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await game.announce("The word is xyzzy.", to=["carol"])
        await carol.choose(["yes", "no"], to="alice")
        await alice.choose(["yes", "no"], to="bob", view=View.of(["carol.0"]))
        game.cast(Agent, "dora")
        await carol.choose(["yes", "no"], to="dora", view=View.of(["scenario.0"]))
        with pytest.raises(LeakageError, match="tell dora 1 bits about secrets of others") as refused:
            await bob.choose(["yes", "no"], to="dora")
        assert "carol" not in str(refused.value)

    rehearse(script, budget=1)


@pytest.mark.parametrize(
    "run", [{"mode": "baseline"}, {"leakage": "audit"}, {"leakage": "deny"}, {"deterministic": True}]
)
def test_the_rule_holds_however_messages_are_read(run: dict[str, Any]) -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await whispered(game)
        with pytest.raises(LeakageError):
            await alice.say(to="everyone")
        await alice.answer(Vote, to="everyone")
        if run.get("leakage") != "deny":  # under deny nobody may read a message with the word behind it
            await bob.think()

    played = rehearse(script, run=run)
    assert [charge.bits for charge in charges(played).values()] == [log2(22)]


def test_under_audit_what_was_behind_the_encodings_is_in_the_way() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await whispered(game)
        await alice.choose(COLOURS, to="everyone")
        await bob.say(to="everyone")

    rehearse(script)
    rehearse(script, run={"mode": "baseline", "leakage": "audit"})
    with pytest.raises(LeakageError, match="by way of what others had read"):
        rehearse(script, run={"leakage": "audit"})


def test_a_model_behind_an_api_is_held_to_the_same_rule() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await whispered(game)
        with pytest.raises(LeakageError):
            await alice.say(to="everyone")
        await alice.choose(COLOURS, to="everyone")
        await alice.answer(Vote, to="everyone", view=View.of(["scenario.0"]))

    played = rehearse(script, endpoint=FakeEndpoint())
    assert [charge.bits for charge in charges(played).values()] == [log2(3), log2(22)]


def test_a_budget_is_of_a_rule() -> None:
    with pytest.raises(ValidationError, match="give words=refuse or words=track"):
        RunConfig(leak_budget=3)
    for wrong in (-1, float("inf"), float("nan")):
        with pytest.raises(ValidationError):
            RunConfig(words="refuse", leak_budget=wrong)


def test_a_person_is_refused_before_it_is_asked_and_forgets_nothing() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await whispered(game)
        hello = await bob.say(to="everyone")
        with pytest.raises(LeakageError, match=r"scenario\.0"):
            await alice.say(to="everyone", view=View.of([hello.id]))
        await alice.choose(COLOURS, to="bob", view=View.of([hello.id]))
        await alice.answer(Vote, to="carol", view=View(()))

    person = Scripted(["green", '{"whom": "carol", "doubt": 7}'])
    played = rehearse(script, {"bob": ["Hello."]}, people={"alice": person})
    assert [asked.to.to_json() for asked in person.asked] == [["alice", "bob"], ["alice", "carol"]]
    assert [charge.owed for charge in charges(played).values()] == [(("alice", ("bob",)),), (("alice", ("carol",)),)]
    assert played.entries[-1].message.text == '{"doubt":7,"whom":"carol"}'
    about = subject(agents=("alice", "bob", "carol"), words="refuse", leakage="enforce")
    ledger = audit_entries(about, {0: list(played.entries)}, Seal(KEY)).words
    assert ledger is not None
    assert ledger.unaccounted == 0
    assert {(row.owner, row.reader): row.bits for row in ledger.rows} == {
        ("alice", "bob"): log2(3),
        ("alice", "carol"): log2(22),
    }


def test_who_plays_two_agents_knows_what_both_were_shown() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        await whispered(game)
        with pytest.raises(LeakageError, match="not everyone may read"):
            await bob.say(to="everyone", view=View(()))
        await bob.choose(COLOURS, to="carol", view=View(()))

    both = Scripted(["green"])
    played = rehearse(script, {"carol": ["Well."]}, people={"alice": both, "bob": both})
    assert [charge.owed for charge in charges(played).values()] == [(("alice", ("carol",)),)]
    apart = Scripted(["Hello."])
    rehearse(hello, {"carol": ["Well."]}, people={"alice": Scripted([]), "bob": apart})
    assert [asked.agent for asked in apart.asked] == ["bob"], "another person has not heard it"


async def hello(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
    await whispered(game)
    await bob.say(to="everyone", view=View(()))


@agentcho.tool(audience="nobody")
def draw(what: str) -> str:
    """A card."""
    return f"the {what} of hearts"


@agentcho.tool(results="everyone")
def roll(dice: int) -> str:
    """What everyone sees."""
    return f"{dice} times a six"


def test_what_a_tool_told_in_private_is_in_the_way() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        with pytest.raises(LeakageError, match="tools0"):
            await alice.say(to="everyone", tools=[draw])
        await alice.say(to="alice", tools=[draw], tool_choice="required", max_calls=1)
        result = next(m.id for m in game.said if m.role == "tool")
        with pytest.raises(LeakageError, match="result"):
            await alice.say(to="everyone", view=View.of([result]))
        await alice.choose(COLOURS, to="bob", view=View.of([result]))
        with pytest.raises(LeakageError, match=r"bob\.0\.step0 \(by bob\)"):  # the call itself is private
            await bob.say(to="everyone", view=View(()), tools=[roll], tool_choice="required", max_calls=1)

    call = {
        "draw": '{"name": "draw", "arguments": {"what": "ace"}}',
        "roll": '{"name": "roll", "arguments": {"dice": 2}}',
    }
    replies = {"alice": [call["draw"], "Mine.", "red"], "bob": [call["roll"], "So."]}
    assert [charge.owed for charge in charges(rehearse(script, replies)).values()] == [(("alice", ("bob",)),)]

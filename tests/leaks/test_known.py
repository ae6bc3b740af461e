"""Messages of known words: available at once, refused only to their authors, never encoded for somebody else."""

from __future__ import annotations

from typing import Any

import pytest

from agentcho import After, Agent, Game, Read, RunConfig, View
from agentcho.errors import ContextOverflow, RequestError
from agentcho.testing import FakeEngine
from agentcho.testing.rehearsal import Rehearsal, Script, play

CONTEXT = 120


class Talker(Agent):
    """Says to everyone whatever the engine generates."""

    role, audience = "talker", "everyone"


def played(script: Script, engine: FakeEngine | None = None) -> Rehearsal:
    config = RunConfig(model="fake", leakage="enforce", max_tokens=4)
    return play(script, config=config, engine=engine or FakeEngine(context=CONTEXT))


def test_who_reads_a_message_has_nothing_encoded_over_what_its_author_had_read() -> None:
    """Otherwise the length of that would show in where the message ends, and in whether it fits."""

    async def script(game: Game) -> str:
        alice, bob = game.cast(Talker, "alice", system="a secret " * 20), game.cast(Talker, "bob")
        told = await alice.tell("a word to all", to="everyone")
        await bob.say(view=View((Read(told),), After(told, 3)))
        with pytest.raises(ContextOverflow):
            await alice.tell("w " * 70, to="everyone", view=View.of(["alice.0"]))
        await bob.say()
        return told

    found = played(script)
    made = {(record.message, record.recipe) for entry in found.entries for record in entry.made}
    assert ("alice.1", "audience") in made
    assert ("alice.1", "author") not in made
    assert found.over.outcome == {"value": "alice.1"}


def test_what_does_not_fit_is_refused_to_its_author_with_nothing_said() -> None:
    async def script(game: Game) -> int:
        alice = game.cast(Talker, "alice")
        for _ in range(3):
            await alice.tell("w " * 30, to=())
        with pytest.raises(ContextOverflow, match=str(CONTEXT)):
            await alice.tell("w " * 30, to="everyone")
        with pytest.raises(ContextOverflow, match=str(CONTEXT)):
            await game.announce("w " * CONTEXT)
        with pytest.raises(RequestError, match="surrogate"):
            await game.announce("\ud800")
        assert [m.id for m in game.said] == ["alice.0", "alice.1", "alice.2"]
        return len(await alice.tell("w", to="everyone", view=View(())))

    assert played(script).over.outcome == {"value": len("alice.3")}


def test_a_game_ends_with_what_nobody_read_and_nothing_encoded_for_it() -> None:
    async def script(game: Game) -> str:
        alice = game.cast(Talker, "alice", system="be brief")
        told = await alice.tell("nobody reads this", to="everyone", view=View(()))
        return game.message(told).text + game.message(await game.announce("nor this")).text

    found = played(script)
    assert found.over.outcome == {"value": "nobody reads thisnor this"}
    assert (found.engine.steps, [entry.encoding for entry in found.entries]) == (0, [None] * 3)
    assert [entry.message.text for entry in found.entries] == ["be brief", "nobody reads this", "nor this"]


def test_all_that_was_fed_is_on_some_line() -> None:
    async def script(game: Game) -> int:
        alice, bob = (game.cast(Talker, name, system=f"you are {name}") for name in ("alice", "bob"))
        await game.announce("talk")
        for _ in range(2):
            await game.together(alice.say(prompt="well?"), bob.say(prompt="well?"))
        await alice.tell("that is it", to="everyone")
        await bob.say()
        never_read = engine.debug.deferred
        return game._choreographer.encoded + sum(call.own.length for call in never_read)

    engine = FakeEngine()
    found = played(script, engine)
    fed = found.over.outcome
    assert fed is not None
    assert sum(entry.usage.encoded for entry in found.entries) == fed["value"]


WRONG = ((0,), (-1,), (1 << 70,), ("x",), (1.5,), 5, (True,))


@pytest.mark.parametrize("ids", WRONG)
def test_ids_that_no_message_can_have_are_refused_to_their_author(ids: Any) -> None:
    """Otherwise whoever reads them would fail."""

    async def script(game: Game) -> list[str]:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        with pytest.raises(RequestError):
            await game.tell(alice, "hello", "everyone", "user", ids=ids)
        await bob.say()
        return [message.id for message in game.said]

    over = played(script).over.outcome
    assert over is not None
    assert over["value"] == ["bob.0"]

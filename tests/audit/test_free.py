"""Games replayed with a free schedule: whether a reader observes a difference if secrets are longer."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from agentcho import Agent, Engine, Game, RunConfig, Scenario
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.lab.display.prove import show
from agentcho.lab.prove import Proof
from agentcho.lab.prove.free import EARLIER, LENGTHLESS, Freed, free
from agentcho.lab.prove.html import html
from agentcho.lab.prove.proof import FreePlay
from agentcho.lab.prove.wording import headline, schedule
from agentcho.protocol.call import EnginePort
from agentcho.records.record import SavedRun
from agentcho.testing import FakeEngine


class Plans(Agent):
    """Thinks in private, and then says the same to everyone regardless of the thought."""

    async def run(self) -> None:
        await self.think(max_tokens=12)
        await self.tell("I am ready.", to="everyone")


class Talks(Agent):
    """Speaks repeatedly."""

    async def run(self) -> None:
        for _ in range(4):
            await self.say(to="everyone", max_tokens=3)


class Meeting(Scenario):
    """Alice plans while Bob speaks."""

    name = "meeting"

    class Options(Scenario.Options):
        """How the agents are run concurrently."""

        lockstep: bool = False

    options: Options

    async def play(self, game: Game) -> Scenario.Outcome:
        cast = game.cast(Plans, "alice"), game.cast(Talks, "bob")
        await (game.lockstep if self.options.lockstep else game.play_agents)(*cast)
        return self.Outcome()


class Vote(Scenario):
    """One agent chooses in private between words of equal length, then another says something."""

    name = "vote"

    async def play(self, game: Game) -> Scenario.Outcome:
        alice, bob = game.cast(Agent, "alice"), game.cast(Agent, "bob")
        await alice.choose(("yes", "not"))
        await bob.say(to="everyone", max_tokens=2)
        return self.Outcome()


def freed(scenario: Scenario, engine: EnginePort, out: Path, games: int = 1) -> Freed:
    """Plays and records a scenario, then replays it with a free schedule."""
    config = RunConfig(games=games, temperature=1.0, seed=3)
    record = play(RunRequest(scenario, config, engine=engine, out=out)).record
    assert record is not None
    run = SavedRun(record)
    return free(scenario, run.info.config, engine, run.games())


@pytest.mark.parametrize("lockstep", [False, True])
def test_other_lengths_are_told_side_by_side_and_not_in_lockstep(tmp_path: Path, lockstep: bool) -> None:
    found = freed(Meeting(lockstep=lockstep), FakeEngine(), tmp_path, games=2)
    assert found.skipped == ()
    told = [(one.game, one.owner, one.reader, one.swapped, one.plays) for one in found.plays]
    assert told == [(game, "alice", "bob", ("alice.0",), 2) for game in (0, 1)]
    assert {one.changed > 0 for one in found.plays} == {not lockstep}


@pytest.mark.slow
def test_words_of_a_model_are_told_too(tmp_path: Path, three: Engine) -> None:
    [one] = freed(Meeting(lockstep=True), three, tmp_path).plays
    assert (one.plays, one.changed) == (2, 0)
    [one] = freed(Meeting(), three, tmp_path).plays
    assert one.changed > 0


def test_what_cannot_have_another_length_shows_nothing(tmp_path: Path) -> None:
    found = freed(Vote(), FakeEngine(), tmp_path)
    assert [(one.owner, one.reader, one.why) for one in found.skipped] == [("alice", "bob", LENGTHLESS)]
    assert found.plays == ()


def test_a_game_with_ids_of_an_earlier_version_is_not_played_with_words_of_other_messages(tmp_path: Path) -> None:
    record = play(RunRequest(Vote(), RunConfig(seed=3), engine=FakeEngine(), out=tmp_path)).record
    assert record is not None
    run = SavedRun(record)
    first, *rest = run.games()[0]
    numbered = first._replace(act=first.act._replace(call="alice.0"))
    found = free(Vote(), run.info.config, FakeEngine(), {0: [numbered, *rest]})
    assert [(one.owner, one.reader, one.why) for one in found.skipped] == [("alice", "bob", EARLIER)]
    assert found.plays == ()


def proof(plays: tuple[FreePlay, ...] | None) -> Proof:
    """A proof that contains nothing else."""
    return Proof(
        source="s",
        model="m",
        seed=0,
        swap="same-length",
        stride=1,
        workflows=1,
        compared=(),
        skipped=(),
        waits=(),
        environment={},
        free=plays,
    )


def test_a_demonstration_says_what_the_schedule_tells() -> None:
    told = FreePlay(game=0, owner="alice", reader="bob", swapped=("alice.0",), plays=2, changed=1)
    calm = told.model_copy(update={"changed": 0})
    assert "The schedule is frozen" in schedule(proof(None))
    assert schedule(proof((calm,))).endswith("no reader observed a difference in 1 comparison.")
    assert schedule(proof((told, calm))).endswith(
        "the schedule reveals how long private messages are in 1 of 2 comparisons: bob of alice."
    )
    tells = [
        headline(proof(plays)).sentence.endswith("; the schedule reveals hidden lengths")
        for plays in (None, (calm,), (told,))
    ]
    assert tells == [False, False, True]
    assert [proof(plays).exit_code for plays in (None, (calm,), (told,))] == [3, 3, 1]
    for plays in (None, (told,)):
        written = StringIO()
        show(proof(plays), "plain", written)
        text = " ".join(written.getvalue().split())
        assert schedule(proof(plays)) in text
        assert schedule(proof(plays)).removesuffix(".") in " ".join(html(proof(plays)).split())
    assert Proof.model_validate_json(proof((told,)).model_dump_json()) == proof((told,))

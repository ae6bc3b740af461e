"""What is refused before anything is computed: found from the graph and the audiences, shortest way told."""

from __future__ import annotations

from typing import NamedTuple, get_args

import pytest

from agentcho import Agent, Game, RunConfig
from agentcho.config import Leakage, Mode, Way
from agentcho.denial import carried
from agentcho.errors import LeakageError
from agentcho.message import Audience, Metadata
from agentcho.testing import FakeEngine, play
from agentcho.visibility import Read, ReadSet, View


class Known(NamedTuple):
    """A message of the graph."""

    metadata: Metadata


def graph(**messages: tuple[str, str]) -> dict[str, Known]:
    """`plan=("alice", "")`: who may read it ("*": all), and what its author had read, in order."""
    said = {}
    for id, (readers, reads) in messages.items():
        audience = Audience(None if readers == "*" else frozenset(readers.split()))
        data = Metadata(id, "prefill", "user", None, audience, tuple(reads.split()))
        said[id] = Known(data)
    return said


SAID = graph(
    plan=("alice", ""), rules=("*", ""), said=("*", "rules plan"), echo=("*", "said"), far=("*", "rules echo"),
    clean=("*", "rules"), whisper=("alice bob", "clean"), both=("*", "echo plan"),
)  # fmt: skip


def asked(reads: str, way: Way, caller: str | None = "bob") -> tuple[str, ...]:
    """What is refused of these reads."""
    ids = reads.split()
    direct = tuple(id for id in ids if caller and not SAID[id].metadata.audience.includes(caller))
    return carried(ReadSet(caller, tuple(Read(id) for id in ids), None, direct), way, SAID)


@pytest.mark.parametrize(
    ("reads", "path"),
    [
        ("", ""), ("rules clean whisper", ""), ("plan", "plan"), ("said", "said plan"), ("echo", "echo said plan"),
        ("far", "far echo said plan"), ("far said", "said plan"), ("both", "both plan"), ("clean both", "both plan"),
    ],
)  # fmt: skip
def test_deny_tells_the_shortest_way_to_what_is_hidden(reads: str, path: str) -> None:
    assert asked(reads, Way(leakage="deny")) == tuple(path.split())


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("leakage", get_args(Leakage))
def test_only_deny_looks_further_than_what_is_named(mode: Mode, leakage: Leakage) -> None:
    way = Way(mode, leakage)
    further = mode == "choreographed" and leakage == "deny"
    assert asked("far rules", way) == (("far", "echo", "said", "plan") if further else ())
    assert asked("rules plan", way) == (() if leakage == "audit" else ("plan",))


def test_who_may_read_it_all_is_never_refused() -> None:
    for way in (Way(mode, leakage) for mode in get_args(Mode) for leakage in get_args(Leakage)):
        assert asked(" ".join(id for id in SAID if id != "whisper"), way, "alice") == ()
        assert asked(" ".join(SAID), way, None) == ()  # the scenario's own


class Careless(Agent):
    """Reads everything, its own or not."""

    role = "careless"

    def view(self, readable: object) -> View:
        """All that was said, whoever it is for."""
        assert isinstance(self._game, Game)
        return View.of(self._game.said)


@pytest.mark.parametrize(("mode", "leakage"), [(m, k) for m in get_args(Mode) for k in get_args(Leakage)])
def test_a_careless_view_is_refused_before_the_engine_hears_of_it(mode: Mode, leakage: Leakage) -> None:
    engine, refused = FakeEngine(), list[tuple[str, ...]]()

    async def script(game: Game) -> int:
        alice, bob = game.cast(Agent, "alice"), game.cast(Careless, "bob")
        await alice.think()
        steps = engine.steps
        try:
            await bob.say("everyone")
        except LeakageError as error:
            refused.append(error.path)
        return engine.steps - steps

    config = RunConfig(model="fake", mode=mode, leakage=leakage, max_tokens=4)
    rehearsal = play(script, config=config, engine=engine)
    bobs = [entry for entry in rehearsal.entries if entry.message.author == "bob"]
    if leakage == "audit":
        assert [entry.direct for entry in bobs] == [("alice.0",)]
        return
    assert (refused, bobs) == ([("alice.0",)], [])
    assert rehearsal.over.outcome == {"value": 0}

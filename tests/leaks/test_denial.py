"""Refusals before anything is computed: found from the graph and the audiences, with the shortest path."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

import pytest

from agentcho import Agent, Game, RunConfig
from agentcho.config import Leakage, Mode, ReusePolicy
from agentcho.errors import LeakageError
from agentcho.message import Audience, Metadata
from agentcho.provenance.labels import LeakPaths
from agentcho.provenance.views import Read, ReadSet, View
from agentcho.testing import FakeEngine, play

DENY = ReusePolicy(leakage="deny")


class Known(NamedTuple):
    """A message of the graph."""

    metadata: Metadata


def graph(**messages: tuple[str, str]) -> dict[str, Known]:
    """`plan=("alice", "")`: who may read it ("*": everyone), and what its author had read, in order."""
    said = {}
    for id, (readers, reads) in messages.items():
        audience = Audience(None if readers == "*" else frozenset(readers.split()))
        data = Metadata(id, "prefill", "user", None, audience, tuple(reads.split()))
        said[id] = Known(data)
    return said


SAID = graph(
    plan=("alice", ""),
    rules=("*", ""),
    said=("*", "rules plan"),
    echo=("*", "said"),
    far=("*", "rules echo"),
    clean=("*", "rules"),
    whisper=("alice bob", "clean"),
    both=("*", "echo plan"),
)


def asked(reads: str, reuse: ReusePolicy, caller: str | None = "bob") -> tuple[str, ...]:
    """The path that is refused for these reads."""
    ids = reads.split()
    direct = tuple(id for id in ids if caller and not SAID[id].metadata.audience.includes(caller))
    return LeakPaths(reuse, SAID).leak_path(ReadSet(caller, tuple(Read(id) for id in ids), None, direct))


@pytest.mark.parametrize(
    ("reads", "path"),
    [
        *(("", ""), ("rules clean whisper", ""), ("plan", "plan"), ("said", "said plan"), ("echo", "echo said plan")),
        *(("far", "far echo said plan"), ("far said", "said plan")),
        *(("both", "both plan"), ("clean both", "both plan")),
    ],
)
def test_deny_tells_the_shortest_way_to_what_is_hidden(reads: str, path: str) -> None:
    assert asked(reads, ReusePolicy(leakage="deny")) == tuple(path.split())


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("leakage", get_args(Leakage))
def test_only_deny_looks_further_than_what_is_named(mode: Mode, leakage: Leakage) -> None:
    reuse = ReusePolicy(mode, leakage)
    further = mode == "choreographed" and leakage == "deny"
    assert asked("far rules", reuse) == (("far", "echo", "said", "plan") if further else ())
    assert asked("rules plan", reuse) == (() if leakage == "audit" else ("plan",))


class Counted(dict[str, Known]):
    """Messages that count lookups."""

    looked = 0

    def __getitem__(self, id: str) -> Known:
        self.looked += 1
        return super().__getitem__(id)


def chained(said: dict[str, Known], length: int) -> Iterator[ReadSet]:
    """Messages each over the one before; yields the reads of each before adding it."""
    for number in range(length):
        parents = (f"m{number - 1}",) if number else ()
        yield ReadSet("alice", tuple(map(Read, parents)), None, ())
        audience = Audience(None if number else frozenset({"alice"}))
        said[f"m{number}"] = Known(Metadata(f"m{number}", "prefill", "user", "alice", audience, parents))


def test_a_message_is_looked_at_once_however_long_the_chain() -> None:
    said, length = Counted(), 10_000
    denial = LeakPaths(DENY, said)
    assert not any(denial.leak_path(reads) for reads in chained(said, length))
    assert said.looked <= length
    last = (Read(f"m{length - 1}"),)
    path = denial.leak_path(ReadSet("bob", last, None, ()))
    assert path == tuple(f"m{number}" for number in reversed(range(length)))
    assert said.looked <= 2 * length + 1, "what is refused is walked once"


def test_what_was_never_asked_about_is_worked_out_once_and_without_recursion() -> None:
    said, length = Counted(), 10_000
    list(chained(said, length))
    denial, last = LeakPaths(DENY, said), (Read(f"m{length - 1}"),)
    for _ in range(3):
        assert denial.leak_path(ReadSet("alice", last, None, ())) == ()
    assert said.looked <= 2 * length


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_are_refused_where_something_behind_is_hidden(seed: int) -> None:
    draw, said, names = random.Random(seed), dict[str, Known](), ("alice", "bob", "carol")
    denial = LeakPaths(DENY, said)
    for number in range(12):
        parents = draw.sample(sorted(said), draw.randint(0, min(3, len(said))))
        for caller in draw.sample(names, 2):
            direct = tuple(id for id in parents if not said[id].metadata.audience.includes(caller))
            path = denial.leak_path(ReadSet(caller, tuple(map(Read, parents)), None, direct))
            assert path == nearest(said, parents, caller)
        few = frozenset(draw.sample(names, draw.randint(1, 2)))
        audience = Audience(few if draw.random() < 0.4 else None)
        said[f"m{number}"] = Known(Metadata(f"m{number}", "prefill", "user", "alice", audience, tuple(parents)))


def nearest(said: dict[str, Known], parents: Sequence[str], caller: str) -> tuple[str, ...]:
    """The first path to a hidden message, trying all paths by length and then in the order of the prompts."""
    ways: list[tuple[str, ...]] = [(id,) for id in parents]
    while ways:
        for reuse in ways:
            if not said[reuse[-1]].metadata.audience.includes(caller):
                return reuse
        ways = [(*reuse, parent) for reuse in ways for parent in said[reuse[-1]].metadata.parents]
    return ()


def test_who_may_read_it_all_is_never_refused() -> None:
    for reuse in (ReusePolicy(mode, leakage) for mode in get_args(Mode) for leakage in get_args(Leakage)):
        assert asked(" ".join(id for id in SAID if id != "whisper"), reuse, "alice") == ()
        assert asked(" ".join(SAID), reuse, None) == ()  # messages of the scenario


class Careless(Agent):
    """Reads everything, whoever may read it."""

    role = "careless"

    def view(self, readable: object) -> View:
        """All messages, whatever their audience."""
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
            await bob.say(to="everyone")
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

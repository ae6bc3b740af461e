"""Random scripts played by real games on the real choreographer, by agents with views of their own, on an engine of
sets: what each agent attends to is in its view, by reachability, and what is hidden from a reader makes no difference
to it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from random import Random
from typing import NamedTuple, get_args

import anyio
import pytest

from agentcho import Agent, Choreographer, Game, Metadata, Read, RunConfig, View
from agentcho.config import Leakage
from agentcho.events import Ended, Event
from agentcho.message import Audience
from agentcho.records.transcript import TranscriptEntry

from .reach import Said, World
from .scripts import CAST, READER, Change, Line, changed, hidden, named, script
from .sets import Sets
from .stage import Plan

BACKENDS = ["asyncio", "trio"]


class Reader(Agent):
    """Reads what its script says and generates only a header."""

    role = "reader"
    planned = View(())

    def view(self, readable: Sequence[Metadata]) -> View:
        """The planned view; asserts that it is readable."""
        assert {read.id for read in self.planned.reads} <= {metadata.id for metadata in readable}
        return self.planned

    async def act(self, plan: Plan) -> str:
        """Say one message; returns its id."""
        self.planned = View(tuple(Read(id, at) for id, at in plan.reads), plan.at)
        to = Audience(plan.audience)
        if plan.generated:
            return (await self.say(to=to, header=plan.text)).id
        return await self.tell(plan.text, to=to)


class Played(NamedTuple):
    """`world` is what the script said, by the game's ids; `heard` what the reader's messages depend on, by number."""

    world: World
    entries: list[TranscriptEntry]
    heard: dict[int, object]


def play(lines: dict[int, Line], leakage: Leakage, deterministic: bool = False, backend: str = "asyncio") -> Played:
    """Play a script in a game of its own, on an engine that ignores guards."""
    engine, events, ids = Sets(guarded=False), list[Event](), dict[int, str]()
    world, config = World(), RunConfig(model="sets", leakage=leakage, deterministic=deterministic)

    async def act(game: Game, plan: Plan) -> str:
        if plan.author is None:
            return await game.announce(plan.text, to=Audience(plan.audience))
        agent = game.agents[plan.author]
        assert isinstance(agent, Reader)
        return await agent.act(plan)

    async def work() -> dict[int, object]:
        async with Choreographer(engine, mode="choreographed", leakage=leakage, deterministic=deterministic) as c:
            game = Game(c, config=config, sink=events.append)
            for name in CAST:
                game.cast(Reader, name)
            for _, group in groupby(sorted(lines.items()), key=lambda pair: pair[1].round):
                plans = {number: named(line.plan, ids) for number, line in group}
                said = await game.together(*(act(game, plan) for plan in plans.values()))
                for id, (number, plan) in zip(said, plans.items(), strict=True):
                    ids[number] = id
                    world.said[id] = Said(id, plan.author, plan.audience, plan.ids)
            own = {e.message.id: e.encoding or 0 for e in entries(events) if e.message.author == READER}
            return {n: engine.storage(own[id]).key for n, id in ids.items() if lines[n].plan.generated and id in own}

    heard: dict[int, object] = anyio.run(work, backend=backend)
    assert not engine.held
    return Played(world, entries(events), heard)


def entries(events: list[Event]) -> list[TranscriptEntry]:
    """The transcript."""
    return [event.entry for event in events if isinstance(event, Ended)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_what_an_agent_attends_to_is_what_reachability_says(leakage: Leakage, backend: str) -> None:
    outside = 0
    for seed in range(12):
        world, transcript, _ = play(dict(enumerate(script(Random(seed)))), leakage, seed % 2 == 0, backend)
        records = {record.id: record for entry in transcript for record in entry.made}
        for entry in transcript:
            author = entry.message.author
            assert author is not None or entry.message.kind == "prefill"
            if entry.message.kind == "prefill" or author is None:
                continue
            assert entry.message.parents == world.said[entry.message.id].reads
            assert entry.own is not None
            for read in entry.own.receipt.context:
                record = records[read.id]
                reach = world.heard(author, record.message) if leakage == "enforce" else world.reach(record.message)
                assert record.cone == reach
                outside += not record.cone <= world.view(author)
    assert (outside > 0) == (leakage == "audit")


@pytest.mark.slow
@pytest.mark.parametrize("change", get_args(Change))
def test_what_is_hidden_makes_no_difference_in_a_game(change: Change) -> None:
    told = 0
    for seed in range(12):
        lines = script(Random(seed))
        assert hidden(lines)
        same, other = dict(enumerate(lines)), changed(lines, change)
        for deterministic in (False, True):
            ours, theirs = (play(each, "enforce", deterministic).heard for each in (same, other))
            assert ours == theirs
            assert len(ours) >= 2
        told += play(same, "audit").heard != play(other, "audit").heard
    assert told > 4

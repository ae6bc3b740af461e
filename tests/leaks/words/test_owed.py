"""To whom words may reveal whose secrets, in random games: compared with sets computed from the receipts one by one."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from agentcho import Agent, Game, View
from agentcho.config import RunConfig
from agentcho.message import Audience, Message
from agentcho.provenance.views import Read
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import Rehearsal, play

NAMES = ("alice", "bob", "carol", "dora")
AUDIENCES: list[Any] = [
    "everyone",
    ["alice"],
    ["bob", "carol"],
    ["alice", "bob"],
    ["carol"],
    ["alice", "carol", "dora"],
]


def game_of(seed: int, leakage: str) -> Rehearsal:
    """A game in which agents read some of what they may read, sometimes their own words as others do, and speak."""
    random = Random(seed)

    def look(game: Game, name: str) -> View:
        there = [message for message in game.said if message.audience.includes(name)]
        return View(tuple(Read(m.id, public=random.random() < 0.3) for m in there if random.random() < 0.4))

    async def whole(game: Game) -> None:
        agents = [game.cast(Agent, name) for name in NAMES[:3]]
        for turn in range(14):
            if turn == 8:
                agents.append(game.cast(Agent, "dora"))
            to = random.choice([each for each in AUDIENCES if turn > 8 or "dora" not in each])
            who, how = random.choice(agents), random.random()
            if how < 0.2:
                await game.announce("Hear.", to=to)
            elif how < 0.3:
                await who.tell("So.", to=to, view=look(game, who.name))
            elif how < 0.4:
                mine = [m for m in game.said if m.author == who.name]
                if mine:
                    await who.release(game.message(random.choice(mine).id), to=to, view=look(game, who.name))
            elif how < 0.7:
                await who.choose(["yes", "no"], to=to, view=look(game, who.name))
            else:
                prompt = "Well?" if random.random() < 0.3 else None
                await who.say(to=to, prompt=prompt, view=look(game, who.name), max_tokens=3)

    config = RunConfig(model="fake", words="track", leakage=leakage)  # type: ignore[arg-type]
    return play(whole, config=config)


def may(reader: str, audience: Audience) -> bool:
    return audience.members is None or reader in audience.members


def repeated(entries: dict[str, TranscriptEntry], id: str) -> set[str]:
    """The messages whose words a message may repeat, by its receipt."""
    entry = entries[id]
    if entry.message.kind == "decode":
        assert entry.own is not None
        return set(entry.own.cone) - {id}
    return set() if entry.act.released is None else {entry.act.released}


def secrets(entries: dict[str, TranscriptEntry], over: Iterable[str], reader: str) -> set[str]:
    found: set[str] = set()
    for id in over:
        if not may(reader, entries[id].message.audience):
            found |= {id} | secrets(entries, repeated(entries, id), reader)
    return found


def owner(message: Message) -> str:
    if message.author is None:
        return ", ".join(sorted(message.audience.members or ())) or "scenario"
    return message.author


def owed(entries: dict[str, TranscriptEntry], id: str, cast: Iterable[str]) -> dict[str, set[str]]:
    said, found = entries[id].message, dict[str, set[str]]()
    over = repeated(entries, id)
    if entries[id].act.released is not None:
        over |= set().union(*(repeated(entries, each) for each in over))
    readers = {*cast, "everyone"} if said.audience.members is None else set(said.audience.members)
    for reader in readers - {said.author}:
        for secret in secrets(entries, over, reader):
            found.setdefault(owner(entries[secret].message), set()).add(reader)
    return found


@pytest.mark.parametrize("leakage", ["enforce", "audit"])
def test_what_is_owed_is_what_the_receipts_say(leakage: str) -> None:
    some = none = 0
    for seed in range(14):
        played = game_of(seed, leakage)
        entries = {entry.message.id: entry for entry in played.entries}
        for id, entry in entries.items():
            charge = entry.act.charge
            if entry.message.author is None or (entry.message.kind == "prefill" and entry.act.released is None):
                assert charge is None
                continue
            expected = owed(entries, id, NAMES)
            told = {} if charge is None else {each: set(readers) for each, readers in charge.owed}
            for readers in (*expected.values(), *told.values()):
                readers.discard("dora")  # who reads no more than everyone does is not always present yet
            expected = {each: readers for each, readers in expected.items() if readers}
            assert {each: readers for each, readers in told.items() if readers} == expected, (seed, id)
            some, none = some + bool(expected), none + (not expected)
    assert min(some, none) > 30

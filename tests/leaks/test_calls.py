"""Random games with tools, compared with an independent implementation of the rules: a call runs if and only if
everyone who learns its arguments may know what these depend on, besides its own list of tools, and no untrusted words
behind them have an effect.

What a call depends on is computed by `reach`, from the reads alone; who learned what, and what is untrusted, by a walk
without caches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from agentcho import Agent, Game, Message, RunConfig, View
from agentcho.audit.audit import audit_entries
from agentcho.audit.notes import Seal
from agentcho.audit.report import AuditReport
from agentcho.config import Leakage
from agentcho.engine.fake.fake_text import babble, comply
from agentcho.errors import LeakageError
from agentcho.games.tools.tool import Declared, Tool
from agentcho.message import EVERYONE, Audience
from agentcho.protocol.call import Decode
from agentcho.testing import FakeEngine
from agentcho.testing.rehearsal import Rehearsal, play

from ..audit.transcripts import subject
from .reach import Said, World
from .scripts import CAST

Members = frozenset[str] | None


class Oracle:
    """The facts of a game, from the metadata of its messages and not from anything that the library concludes."""

    def __init__(self, game: Game, leakage: Leakage) -> None:
        self._game, self._leakage, self.world = game, leakage, World()
        self.told: dict[str, Members] = {}
        self.results: dict[str, tuple[str, bool]] = {}
        self.choices: set[str] = set()
        self.copies: dict[str, str] = {}

    def look(self) -> list[str]:
        """Record what was said since the last time; returns its ids."""
        drafts = self._game._messages.drafts
        fresh = [id for id in drafts if id not in self.world.said]
        for id in fresh:
            data = drafts[id].metadata
            self.world.said[id] = Said(id, data.author, data.audience.members, data.parents)
        return fresh

    def is_result(self, id: str) -> bool:
        """Whether it is the result of a tool."""
        return self._game._messages.drafts[id].metadata.role == "tool"

    def behind(self, call: str) -> set[str]:
        """Everything that could have influenced a call."""
        said = self.world.said[call]
        if self._leakage == "enforce":
            return set[str]().union(*(self.world.heard(said.author, read) for read in said.reads))
        return set[str]().union(*map(self.world.reach, said.reads))

    def secret(self, call: str, tool: Declared) -> set[str]:
        """Those of them that not everyone who learns the tool's arguments may know, without the list of tools that it
        was chosen from."""
        offered = {id for id in self.world.said[call].reads if ".tools" in id}
        return {id for id in self.behind(call) - offered if not self._may_know(tool.audience.members, id)}

    def dirty(self, call: str, tool: Declared) -> set[str]:
        """Those of them that may contain untrusted words, if the tool has an effect."""
        return {id for id in self.behind(call) if tool.effect and self._dirty(id)}

    def _may_know(self, who: Members, id: str) -> bool:
        known = [self.world.said[id].audience, self.told.get(id, frozenset())]
        if None in known:
            return True
        return who is not None and who <= frozenset().union(*(each for each in known if each is not None))

    def _dirty(self, id: str) -> bool:
        if id in self.results and not self.results[id][1]:
            return True
        more = [self.results[id][0]] if id in self.results else []
        more += [self.copies[id]] if id in self.copies else []
        reads = self.world.said[id].reads
        return id not in self.choices and any(map(self._dirty, (*reads, *more)))


class Walk:
    """One random game. `ran` are the calls that ran, with what the oracle says about each; `refused` the others."""

    def __init__(self, seed: int, leakage: Leakage) -> None:
        self._random, self._leakage = Random(seed), leakage
        self._own: dict[str, list[Message]] = {name: [] for name in CAST}
        self._tool: Tool | None = None
        self._running = 0
        self.ran, self.refused = list[tuple[str, set[str], set[str]]](), list[tuple[str, set[str], set[str]]]()
        self.named: list[tuple[str, ...]] = []

    def reply(self, call: Decode, prompt: str) -> str:
        """Calls have no arguments; everything else is generated."""
        if call.forms:
            return json.dumps({"name": "tool", "arguments": {}})
        return comply(call, prompt) if call.is_whole else babble(call, prompt)

    async def play(self, game: Game) -> None:
        """Eighteen random acts."""
        self._game, self._oracle = game, Oracle(game, self._leakage)
        self._agents = {name: game.cast(Agent, name) for name in CAST}
        acts = (self._announce, self._say, self._say, self._choose, self._release, self._call, self._call, self._call)
        for _ in range(18):
            name = self._random.choice(CAST)
            try:
                await self._random.choice(acts)(name, self._agents[name])
            except LeakageError:  # deny refuses even to read it
                assert self._leakage == "deny"
            self._oracle.look()

    async def _announce(self, name: str, agent: Agent) -> None:
        await self._game.announce("news", to=self._to())

    async def _say(self, name: str, agent: Agent) -> None:
        self._own[name].append(await agent.say(to=self._to(), view=self._view(name), max_tokens=2))

    async def _choose(self, name: str, agent: Agent) -> None:
        await agent.choose(("yes", "no"), to=self._to(), view=self._view(name))
        self._oracle.choices.update(self._oracle.look())

    async def _release(self, name: str, agent: Agent) -> None:
        if self._own[name]:
            message = self._random.choice(self._own[name])
            self._oracle.copies[await agent.release(message, to=self._to(), view=self._view(name))] = message.id

    async def _call(self, name: str, agent: Agent) -> None:
        declared, release = self._declared(), self._random.random() < 0.1
        ran: list[bool] = []

        async def run() -> str:
            ran.append(True)
            return "result"

        tool = Tool("tool", "", {"type": "object", "properties": {}}, run, declared)
        beside = [Tool("other", "", {"type": "object"}, run, self._declared())] if self._random.random() < 0.5 else []
        asked: dict[str, Any] = {"tools": [tool, *beside], "tool_choice": "tool", "max_calls": 1, "release": release}
        view, before = self._view(name), len(self.named)
        try:
            self._own[name].append(await agent.say(to=self._to(), view=view, max_tokens=12, **asked))
        except LeakageError as error:
            self.named.append(error.path)
        self._note(declared, release, bool(ran), len(self.named) > before)

    def _note(self, declared: Declared, release: bool, ran: bool, raised: bool) -> None:
        """Compare a call with the oracle."""
        oracle, fresh = self._oracle, self._oracle.look()
        calls = [id for id in fresh if oracle.world.said[id].author is not None]
        if not calls:  # deny refused its reads
            assert raised
            self.named.pop()
            return
        call = calls[0]
        secret, dirty = oracle.secret(call, declared), oracle.dirty(call, declared)
        assert ran == (not raised)
        if ran:
            result = next(id for id in fresh if oracle.is_result(id))
            oracle.results[result] = call, declared.trusted
            oracle.told[call] = declared.audience.members
        if not release:
            (self.ran if ran else self.refused).append((call, secret, dirty))

    def _declared(self) -> Declared:
        random = self._random
        audience = random.choice((EVERYONE, Audience(frozenset()), Audience(frozenset(random.sample(CAST, 2)))))
        results = random.choice((None, EVERYONE, Audience(frozenset(random.sample(CAST, 1)))))
        return Declared(audience, random.random() < 0.5, random.random() < 0.5, results)

    def _to(self) -> Audience:
        wide = EVERYONE if self._random.random() < 0.4 else None
        return wide or Audience(frozenset(self._random.sample(CAST, self._random.randint(0, 2))))

    def _view(self, name: str) -> View:
        readable = [m.id for m in self._game.said if m.audience.includes(name) and m.role != "system"]
        return View.of(self._random.sample(readable, min(len(readable), self._random.randint(0, 4))))


def walked(seed: int, leakage: Leakage) -> tuple[Walk, Rehearsal]:
    walk = Walk(seed, leakage)
    engine = FakeEngine(walk.reply, answer=walk.reply)
    config = RunConfig(model="fake", leakage=leakage, max_tokens=64)
    return walk, play(walk.play, config=config, engine=engine)


def games(count: int, leakage: Leakage) -> Iterator[tuple[Walk, Rehearsal]]:
    return (walked(seed, leakage) for seed in range(count))


@pytest.mark.parametrize(
    ("leakage", "count"),
    [("enforce", 10), ("deny", 12), *(pytest.param(each, 200, marks=pytest.mark.slow) for each in ("enforce", "deny"))],
)
def test_a_call_runs_if_and_only_if_the_rules_allow_it(leakage: Leakage, count: int) -> None:
    ran = secrets = dirty = 0
    for walk, _ in games(count, leakage):
        assert not [call for call, secret, untrusted in walk.ran if secret or untrusted]
        assert not [call for call, secret, untrusted in walk.refused if not secret and not untrusted]
        for named, (_, secret, untrusted) in zip(walk.named, walk.refused, strict=True):
            assert set(named) == (secret or untrusted)
        ran += len(walk.ran)
        secrets += sum(bool(secret) for _, secret, _ in walk.refused)
        dirty += sum(bool(untrusted) and not secret for _, secret, untrusted in walk.refused)
    assert min(ran, secrets) >= 5
    assert dirty >= 1 or leakage == "deny"


def test_an_audit_says_of_each_call_what_the_rules_say() -> None:
    seen = set()
    for walk, played in games(6, "audit"):
        assert not walk.refused
        verdicts = {call.message: call for call in report(played).calls}
        for id, secret, untrusted in walk.ran:
            call = verdicts[id]
            assert (set(call.secrets), set(call.untrusted)) == (secret, untrusted)
            assert call.verdict == ("told" if secret else "untrusted" if untrusted else "clean")
            seen.add(call.verdict)
    assert seen == {"told", "untrusted", "clean"}


def report(played: Rehearsal) -> AuditReport:
    return audit_entries(subject(agents=CAST), {0: list(played.entries)}, Seal(b"k" * 32))

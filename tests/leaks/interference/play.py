"""Plays a workflow in a real game, and records everything that the reader's own code can see.

That is: what its view is shown, what its verbs return, each streamed piece, the class and text of every error, in the
order in which they happen; and what its words were chosen from. Messages are named by the number of their act, because
ids also count hidden messages, which is part of the schedule. Independent of what was changed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast
from unittest.mock import patch

import anyio
from pydantic import BaseModel

import agentcho
from agentcho import Agent, Choreographer, Game, RunConfig, Scenario
from agentcho.events import Began, Ended, Event
from agentcho.games.play import streamed_messages
from agentcho.games.play.streamed_messages import Streamed
from agentcho.message import Audience, Message, Metadata
from agentcho.protocol.call import EnginePort
from agentcho.provenance.views import After, Read, View

from ..looks import Look
from .port import TOOL, Journal, Port
from .workflows import Act

ID = re.compile(r"\b(?:scenario|alice|bob|carol|dave)\.\d+(?:\.step\d+|\.[\w+-]+-\d+)?(?:\.result)?\b")


class Plan(BaseModel):
    """What `answer` asks for."""

    yes: bool


Schedule = Literal["written", "lockstep", "free"]
"""Acts in their written order; or concurrent agents, in lockstep or free."""


class Torn(Exception):
    """Leaves a stream."""


@dataclass(frozen=True)
class Seen:
    """One play: the journal of the reader, and the names of the acts and results that were published to it."""

    journal: Journal
    out: frozenset[str]


class Player(Agent):
    """Reads what it is told to read; the reader records what it is shown."""

    role = "player"
    looks: View | None = View(())
    stage: Stage | None = None
    plays: Callable[[], Awaitable[None]] | None = None

    def view(self, readable: Sequence[Metadata]) -> View:
        """The given view, or the default one if there is none."""
        if self.stage is not None:
            self.stage.note("shown", tuple(self.stage.metadata(data) for data in readable))
        return super().view(readable) if self.looks is None else self.looks

    async def run(self) -> None:
        """Its own acts, if agents play concurrently."""
        if self.plays is not None:
            await self.plays()


class Stage(Scenario):
    """Plays acts one after another; those of one round at once. `name` is the name of its games in records."""

    name = "acts"

    class Outcome(Scenario.Outcome):
        """Empty."""

    def __init__(self, acts: Sequence[Act], reader: str, journal: Journal) -> None:
        super().__init__()
        self._acts, self._reader, self.journal = acts, reader, journal
        self._ids, self._names = dict[int, str](), dict[str, str]()
        self._said = dict[int, Message]()
        self._ended = set[str]()
        self._doing = dict[str, int]()

    @property
    def out(self) -> frozenset[str]:
        """What was published that the reader may read: acts, and results, which have the audience of their act."""
        heard = {act.number for act in self._acts if act.heard_by(self._reader)}
        acts = {f"#{number}" for number in heard if number in self._ids}
        return frozenset(acts | self._ended & {f"#{number}{what}" for number in heard for what in ("", ".call.result")})

    def hear(self, event: Event) -> None:
        """Names generated messages when they begin: one may be published whose call was cancelled at its last token."""
        if isinstance(event, Began):
            number = event.header.removesuffix(". ")
            self._names[event.id] = f"#{number}" if number else f"#{self._doing[event.author]}.call"
        if isinstance(event, Ended):
            called = event.entry.act.call
            if called is not None:
                self._names[event.entry.message.id] = f"{self._names[called]}.result"
            self._ended.add(self._names.get(event.entry.message.id, ""))

    async def play(self, game: Game) -> Scenario.Outcome:
        """Play all acts."""
        rounds: dict[int, list[Act]] = {}
        for act in self._acts:
            rounds.setdefault(act.number if act.round is None else act.round, []).append(act)
        for moves in rounds.values():
            if len(moves) == 1:
                await self._do(game, moves[0])
            else:
                await game.together(*(self._do(game, move) for move in moves))
        return self.Outcome()

    async def _do(self, game: Game, act: Act) -> None:
        """Play one act, and record what the reader's own code learns from it."""
        mine = act.who == self._reader
        self._doing[act.who] = act.number  # concurrent acts of a round have different authors
        try:
            told = await self._act(game, act)
        except Exception as error:
            if mine:
                self.note("raised", type(error).__name__, self._plain(str(error)))
            return
        if told is None:
            return
        self._ids[act.number] = told.id if isinstance(told, Message) else told
        self._names[self._ids[act.number]] = f"#{act.number}"
        if isinstance(told, Message):
            self._said[act.number] = told
        if mine:
            self.note("told", self._message(told) if isinstance(told, Message) else f"#{act.number}")

    def _act(self, game: Game, act: Act) -> Coroutine[Any, Any, Message | str | None]:
        to = "everyone" if act.to is None else act.to
        if act.kind == "announce":
            return game.announce(act.words, to=to)
        if act.kind == "streamed":
            return self._stream(game, act)
        if act.kind == "join":
            return self._join(game, act)
        agent = self._agent(game, act)
        if act.kind == "tell":
            return agent.tell(act.words, to=to)
        return self._release(agent, act) if act.kind == "release" else self._say(agent, act)

    async def _stream(self, game: Game, act: Act) -> str | None:
        to = "everyone" if act.to is None else act.to
        with patch.object(streamed_messages, "LEAST", 1):  # otherwise so few letters would be encoded only at the close
            async with game.streamed(to) as page:
                await self._write(page, act.words)
        return page.id

    async def _write(self, page: Streamed, words: str) -> None:
        for piece in re.findall(r"\S+\s*", words):
            await page.write(piece)

    async def _join(self, game: Game, act: Act) -> str | None:
        agent = game.cast(Player, act.who, system=act.words or None)
        if act.who == self._reader:
            agent.stage = self
        return agent.brief

    async def _release(self, agent: Player, act: Act) -> str | None:
        said = self._said.get(-1 if act.of is None else act.of)
        return None if said is None else await agent.release(said, to="everyone" if act.to is None else act.to)

    async def _say(self, agent: Player, act: Act) -> Message | str | None:
        to = "everyone" if act.to is None else act.to
        asked: dict[str, Any] = {"prompt": act.prompt, "header": act.header}
        if act.trouble is not None:
            return await self._fail(agent, act)
        match act.verb:
            case "think":
                return await agent.think(**asked)
            case "choose":
                self.note("chose", await agent.choose(("yes", "no", "or not"), **asked, max_tokens=24))
                return None
            case "answer":
                self.note("answered", repr(await agent.answer(Plan, **asked, max_tokens=64)))
                return None
            case "stream":
                async with agent.stream(to=to, **asked) as pieces:
                    async for text in pieces:
                        self.note("heard", text)
                return pieces.message
        if act.calls:
            return await agent.say(to=to, **asked, tools=[_tool(act)], tool_choice="required", max_calls=1)
        return await agent.say(to=to, **asked)

    async def _fail(self, agent: Player, act: Act) -> Message | None:
        """A call that fails, or that returns its message if it ends before it could fail."""
        to, mine = "everyone" if act.to is None else act.to, agent.name == self._reader
        asked: dict[str, Any] = {"header": act.header}
        if act.trouble == "refused":
            return await agent.say(to=to, **asked, max_tokens=-1)
        if act.trouble == "left":
            async with agent.stream(to=to, **asked) as pieces:
                async for text in pieces:
                    if mine:
                        self.note("heard", text)
                    raise Torn("enough")
            return None
        if act.trouble == "cancelled":
            with anyio.CancelScope() as scope:
                await agent.say(to=to, **asked | {"on_token": lambda text: scope.cancel()})
            if mine:
                self.note("cancelled", scope.cancelled_caught)
            return None
        return await agent.say(to=to, **asked)

    def _agent(self, game: Game, act: Act) -> Player:
        agent = game.agents[act.who]
        assert isinstance(agent, Player)
        if agent.plays is not None:
            agent.looks = None
            return agent
        looks = [look for look in act.view if look.number in self._ids]
        unsaid = (Read("nobody.1"),) if act.trouble == "unsaid" else ()
        reuse: Literal["judge"] | None = "judge" if act.number % 5 == 4 else None
        agent.looks = View((*(self._read(look) for look in looks), *unsaid), None, reuse)
        return agent

    def _read(self, look: Look) -> Read:
        id = self._ids[look.number]
        if look.after is not None and look.after in self._ids:
            return Read(id, After(self._ids[look.after], look.plus))
        return Read(id, "rightmost" if look.rightmost else look.at)

    # -- recording ---------------------------------------------------------------------------------------

    def note(self, *what: object) -> None:
        """Record something that the reader's code sees."""
        self.journal.append(what)

    def metadata(self, data: Metadata) -> tuple[object, ...]:
        """Metadata as a view is shown it."""
        parents = tuple(map(self._plain, data.parents))
        return self._plain(data.id), data.kind, data.role, data.author, _audience(data.audience), parents

    def _message(self, said: Message) -> tuple[object, ...]:
        return (
            *self.metadata(said.metadata), said.header, said.text, said.tokens, said.content, said.sampled,
            said.stopped, said.canonical, said.offsets, said.new_offset,
        )  # fmt: skip

    def _plain(self, text: str) -> str:
        """A text with ids replaced by names of acts."""
        return ID.sub(lambda found: self._names.get(found[0], found[0]), text)


class SideBySide(Stage):
    """First the scenario's acts, then each agent plays its own in its `run`, concurrently with the others, reading
    everything that it may read. `lockstep`: see `Game.lockstep`."""

    def __init__(self, acts: Sequence[Act], reader: str, journal: Journal, lockstep: bool) -> None:
        super().__init__(acts, reader, journal)
        self._lockstep = lockstep

    async def play(self, game: Game) -> Scenario.Outcome:
        """Play the scenario's acts, then all agents."""
        first = [act for act in self._acts if act.kind in ("join", "announce", "streamed")]
        for act in first:
            await self._do(game, act)
        cast = [agent for agent in game.agents.values() if isinstance(agent, Player)]
        for agent in cast:
            agent.plays = partial(self._all, game, [a for a in self._acts if a.who == agent.name and a not in first])
        await (game.lockstep if self._lockstep else game.play_agents)(*cast)
        return self.Outcome()

    async def _all(self, game: Game, acts: Sequence[Act]) -> None:
        for act in acts:
            await self._do(game, act)


def _tool(act: Act) -> agentcho.Tool:
    """A tool that returns the words of an act to the audience of the act."""
    results = "everyone" if act.to is None else act.to

    @agentcho.tool(name=TOOL, audience="nobody", results=results)
    async def look() -> str:
        return act.words

    return look


def _audience(audience: Audience) -> object:
    return audience.to_json()


async def play(
    engine: Any,
    acts: tuple[Act, ...],
    reader: str,
    config: RunConfig,
    beside: tuple[Act, ...] = (),
    schedule: Schedule = "written",
) -> Seen:
    """Play one game and, if `beside` is given, another one concurrently on the same engine."""
    journal, encode = Journal(), engine.framing.content.encode
    words = {act.header: tuple(encode(act.words)) for act in acts}
    faulty = frozenset(act.header for act in acts if act.trouble == "faulty")
    port = Port(engine, reader, words, faulty, journal)
    stage = Stage(acts, reader, journal)
    if schedule != "written":
        stage = SideBySide(acts, reader, journal, schedule == "lockstep")
    choreographer = Choreographer(cast("EnginePort", port), config.policy)
    async with choreographer, anyio.create_task_group() as group:
        if beside:
            group.start_soon(_aside, choreographer, beside, config)
        try:
            await Game(choreographer, 0, 7, config, sink=stage.hear).play(stage)
        except Exception as error:
            stage.note("over", type(error).__name__)
        group.cancel_scope.cancel()
    return Seen(journal, stage.out)


async def _aside(choreographer: Choreographer, acts: tuple[Act, ...], config: RunConfig) -> None:
    """Play another game and ignore its errors."""
    with suppress(Exception):
        await Game(choreographer, 1, 7, config).play(Stage(acts, "nobody", Journal()))

"""One play: its cast, its scenario's and its agents' moves, its end.

Does not know: engines, records, how a scenario plays, how a turn is taken (`turn`), what a message is (`messages`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, TypeVar, overload

import anyio.lowlevel
from pydantic import BaseModel

from agentcho.agent import Agent, Names, Utterance, ViewLike, require_run, verb
from agentcho.choreography.choreographer import Choreographer
from agentcho.config import ReusePolicy, RunConfig
from agentcho.errors import ScenarioError, TaskError
from agentcho.events import Event, GameOver, Joined, Sink
from agentcho.games.play.endpoints import Endpoints
from agentcho.games.play.game_models import GameModel, GameModels, KnownTextMessage, RunModel, RunModels
from agentcho.games.play.journal import Journal, RecordedLines
from agentcho.games.play.limits import Meter, only_limit
from agentcho.games.play.messages import Messages
from agentcho.games.play.people import People, Seats
from agentcho.games.play.playable import Playable, called, no_outcome, scored
from agentcho.games.play.precedence import Precedence
from agentcho.games.play.roster import SCENARIO, Roster
from agentcho.games.play.rounds import Rounds
from agentcho.games.play.streamed_messages import Streamed
from agentcho.games.play.tool_calls import ToolCalls
from agentcho.games.play.tool_turn import ToolTurns
from agentcho.games.play.toolbox import Toolbox
from agentcho.games.play.turn import Forced, TurnParts, Turns
from agentcho.message import DEFAULT_PROMPT, EVERYONE, Audience, Message, Role, audience
from agentcho.protocol.value_checks import checked_bool
from agentcho.provenance.declassification import disclosure_rule
from agentcho.provenance.message_boundaries import check_markers, required_markers
from agentcho.provenance.taint import TaintTracker
from agentcho.provenance.views import History, ReadSet
from agentcho.tasks import Task

UNREAD = ReadSet(None, (), None, ())
"""What the scenario reads."""
A = TypeVar("A", bound=Agent)
T = TypeVar("T")


class Game:
    """One game. The runtime makes it, and a scenario gets it in `play`.

    For scenarios: `index` is the number of the game in its run, from 0; `seed` is what random choices of the scenario
    should be made from; `agents` has those that were cast, by name; `config` is the run's configuration.

    For who makes one: `sink` gets events as they happen. `find_agent` turns a name into an agent class, for `cast`.
    `tasks` are what the game may `draw`. `forced` gives the words of messages that are not to be sampled. `recorded` is
    what is known of the times that the game was begun before. `reuse` says through which encodings its agents read: as
    given, else as `config` says, else as the choreographer was opened. `flush` is called once a step, when the
    sink has heard all that was said in it, and nobody else has. `others` are the models beside the choreographer's.
    `confirmed`: see `ToolCalls`.
    `people` play the agents of these names.
    """

    def __init__(
        self,
        choreographer: Choreographer,
        index: int = 0,
        seed: int = 0,
        config: RunConfig | None = None,
        *,
        sink: Sink | None = None,
        find_agent: Callable[[str], type[Agent]] | None = None,
        tasks: Sequence[Task] = (),
        forced: Forced | None = None,
        recorded: RecordedLines | None = None,
        reuse: ReusePolicy | None = None,
        flush: Callable[[], None] | None = None,
        confirmed: Callable[[], Awaitable[None]] | None = None,
        others: Mapping[str, RunModel] = MappingProxyType({}),
        people: People = MappingProxyType({}),
    ) -> None:
        self._choreographer = choreographer
        self.index = index
        self.seed = seed
        self.config = config or RunConfig()
        self._sink, self._tasks = sink or _ignore, list(tasks)
        self._roster = Roster(find_agent)
        self.agents: Mapping[str, Agent] = MappingProxyType(self._roster.agents)
        self._meter = Meter(self.config.limits)
        self.reuse = reuse or (self.config.policy if self.config.says_reuse else choreographer.reuse)
        self._recorded, models = recorded or RecordedLines(index), RunModels(choreographer, others)
        self._journal = Journal(
            game=index,
            reuse=self.reuse,
            meter=self._meter,
            sink=self._sink,
            recorded=self._recorded,
            bos=choreographer.frames.bos,
            spelling=models.spelling,
            frames=choreographer.frames,
        )
        self._models = GameModels(models, self._journal)
        self._rounds = Rounds(choreographer.tasks, TaintTracker(), Precedence(lambda: models.steps))
        self._messages = Messages(
            journal=self._journal,
            recorded=self._recorded,
            roster=self._roster,
            rounds=self._rounds,
            reuse=self.reuse,
        )
        endpoints = Endpoints(models.ports, self._messages.drafts, self.config.allow_vendor)
        self._seats = self._seated(people) if people else None
        self._words = disclosure_rule(self.config, self.reuse, self._messages.drafts, self.agents)
        more = self._meter, self._sink, flush, self._seats, self._words
        parts = TurnParts(self._messages, self._models, endpoints, self._journal, *more)
        self._turns = Turns(index=index, seed=seed, config=self.config, parts=parts, forced=forced or {})
        calls, self._toolbox = (
            ToolCalls(index=index, recorded=self._recorded, meter=self._meter, sink=self._sink, confirmed=confirmed),
            Toolbox(),
        )
        self._tool_turns = ToolTurns(self._turns, self._messages, self._toolbox, calls)

    def _seated(self, people: People) -> Seats:
        """The people of this game, who hear of what comes out. While one is waited for, other games have its room."""
        words: Callable[[str], Message | None] = lambda id: self._messages.drafts[id].message  # noqa: E731
        seats = Seats(
            game=self.index, people=people, readable=self._messages.readable, words=words, waits=self.swap_out
        )
        self._rounds.told = seats.tell
        return seats

    @property
    def raced(self) -> bool:
        """Whether the order of its messages depended on which of several decodes ended first. Who asks has looked at
        all messages so far."""
        self._messages.raced()
        return self._rounds.raced

    def draw(self, count: int = 1) -> tuple[Any, ...]:
        """The game's next `count` tasks. Game i of a run with n tasks a game has those from i * n on, in every mode and
        for every seed of sampling. Raises `TaskError` for more tasks than the scenario's `draws` says."""
        if count > len(self._tasks):
            what = (
                f"the scenario draws {count} tasks, but only {len(self._tasks)} are left; return the number "
                "of tasks per game from its `draws`"
            )
            raise TaskError("of this game", None, what)
        drawn, self._tasks = self._tasks[:count], self._tasks[count:]
        return tuple(drawn)

    # -- the cast ----------------------------------------------------------------------------------------

    @overload
    def cast(self, agent: str, name: str | None = None, **attributes: Any) -> Any: ...
    @overload
    def cast(self, agent: type[A] | A, name: str | None = None, **attributes: Any) -> A: ...
    def cast(self, agent: str | type[Agent] | Agent, name: str | None = None, **attributes: Any) -> Any:
        """Let an agent join, and return it. `agent` is a class, an instance, or the name of an agent in the library, as
        `agentcho ls` has it. `name` is what it is called in this game; `attributes` are given to an agent that is made
        here, `model` among them: see `Agent`. Raises `AudienceError` for a name that was used before or cannot be one,
        `RequestError` for a model that the run has not, and `ContextOverflow` for a system prompt that does not fit the
        model's context: then nobody joins."""
        player, joined = self._roster.candidate(agent, name, attributes)
        model = self._models.own if player.model is None else self._models.at_first(joined, player.model)
        system, is_open = player.system, player.open_system
        if system is None:
            system, is_open = self._default_prompt(joined, model), True
        if system is not None:
            self._messages.known(
                KnownTextMessage(
                    author=SCENARIO, role="system", to=EVERYONE, text=system, reads=UNREAD, model=model, first=True
                )
            )
        self._roster.join(player, joined)
        player._game = self
        self._sink(Joined(self.index, joined, player.role))
        if self._seats is not None:
            self._seats.joined(joined)
        if system is not None:
            id = self._put_system_prompt(joined, system, is_open, model, given=player.system is not None)
            self._roster.set_system_prompt(joined, id)
        return player

    def _default_prompt(self, name: str, model: GameModel) -> str | None:
        """The system prompt that the chat template of an agent's model has for a conversation without one; None: it has
        none, or it is not to be read, or a person plays the agent."""
        played = self._seats is not None and name in self._seats
        default = model.frames.framing.default
        return None if default is None or played or self.config.default_prompt == "drop" else default.text

    def name_of(self, agent: Agent) -> str | None:
        """The name under which an agent was cast here, and by which it is known whatever it calls itself."""
        return self._roster.name_of(agent)

    def system_prompt(self, agent: Agent) -> str | None:
        """The message id of an agent's system prompt. None: it has none."""
        return self._roster.system_prompt(self.name_of(agent))

    def _put_system_prompt(self, agent: str, words: str, open_to_all: bool, model: GameModel, *, given: bool) -> str:
        """An agent's system prompt, private or the scenario's; its id. One that is not `given` is of the chat template;
        it is not counted with the scenario's messages, whose ids are the same on every model."""
        if not open_to_all:
            private = Audience(frozenset({agent}))
            return self._messages.put(
                KnownTextMessage(
                    author=agent,
                    role="system",
                    to=private,
                    text=words,
                    reads=ReadSet(agent, (), None, ()),
                    model=model,
                    first=True,
                )
            )
        there = self._roster.open_prompt(words, self._rounds.visible())
        if there is None:
            told = KnownTextMessage(
                author=SCENARIO,
                role="system",
                to=EVERYONE,
                text=words,
                reads=UNREAD,
                model=self._models.own,
                first=True,
            )
            if not given:
                told = told._replace(id=self._messages.unnumbered(SCENARIO, DEFAULT_PROMPT))
            there = self._messages.put(told)
            self._roster.add_open_prompt(there, words)
        return there

    # -- what has been said ------------------------------------------------------------------------------

    @property
    def said(self) -> History:
        """The metadata of all messages that are out, in order: a sequence. Whoever lists or counts messages of it has
        looked at them, as at words: see `View.open_to` for those that an audience may read."""
        return self._messages.taint.history(self._rounds.visible())

    def message(self, id: str) -> Message:
        """The message of that id, with its words, once it is out. Raises `KeyError` where there is none,
        or it has not ended. Who asks for an id that no verb has returned has looked at whether there is one."""
        return self._messages.looked_up(id)

    @verb
    async def announce(self, text: str, to: Names = "everyone", role: Role = "user", *, release: bool = False) -> str:
        """Put a message of the scenario itself into the talk, and return its id. It is encoded when it is first read.
        `release`: the rules of the game tell it, such as who was voted out, whatever the code had looked at; audits
        list it as a release, and do not warn of it. Raises `ContextOverflow` for a text that does not fit the model's
        context, and `AudienceError` for a name that nobody has."""
        told = KnownTextMessage(SCENARIO, role, audience(to, self.agents), text, UNREAD, self._models.own)
        told = told._replace(by_rules=checked_bool(release, "release"))
        id = self._messages.taint.give(self._messages.put(told))
        await anyio.lowlevel.checkpoint()
        return id

    @asynccontextmanager
    async def streamed(
        self, to: Names = "everyone", role: Role = "user", *, release: bool = False
    ) -> AsyncIterator[Streamed]:
        """A message of the scenario itself whose text comes in pieces::

            async with game.streamed(to="everyone") as page:
                async for piece in source:
                    await page.write(piece)
            await ann.say()

        It is encoded as it comes, and out for its readers at the end of the context, with the ids that the whole text
        has and nothing left to encode; in the deterministic profile all of it is encoded then, and in baseline mode and
        with repairs by each of its readers. An error in the context drops it: nobody reads any of it. At its end raises
        what `announce` raises. `release`: see `announce`."""
        own = self._models.own
        await anyio.lowlevel.checkpoint()
        told = KnownTextMessage(
            author=SCENARIO,
            role=role,
            to=audience(to, self.agents),
            text="",
            reads=UNREAD,
            model=own,
            by_rules=checked_bool(release, "release"),
        )
        ahead = own.encodes and own.resolver.begins
        stream = Streamed(self._messages, told, self.index, ahead)
        try:
            yield stream
            await stream.close()
        finally:
            stream.give_up()

    @verb
    async def tell(
        self,
        agent: Agent,
        text: str,
        to: Names,
        role: str,
        view: ViewLike = None,
        ids: tuple[int, ...] | None = None,
        *,
        release: bool = False,
    ) -> str:
        """An agent's message of known text, or known ids; see `Agent.tell`."""
        author = self._roster.member(agent)
        with self._noted(author):
            spoken_to, model = self._messages.audience(author, to), self._turns.model(author, agent)
            reads = self._messages.reads(author, agent, view, model)
            told = KnownTextMessage(
                author=author, role=role, to=spoken_to, text=text, reads=reads, model=model, ids=ids
            )
            told = told._replace(by_rules=checked_bool(release, "release"))
            id = self._messages.taint.give(self._messages.put(told))
        with self._meter.deadline(author):
            await anyio.lowlevel.checkpoint()
        return id

    def retokenized(self, text: str, id: str) -> str:
        """A text as the tokenizer of the model that said message `id` gives it back: one may write letters
        otherwise."""
        self._messages.probed(id)
        content = self._models.of(self._messages.drafts[id].engine).frames.framing.content
        return content.decode(content.encode(text))

    @verb
    async def release(self, agent: Agent, message: Message, to: Names, view: ViewLike) -> str:
        """The tokens of an agent's own message as a new one; see `Agent.release`. The words are the game's own, by
        the message's id, so that nobody has looked at any for it."""
        author = self._roster.member(agent)
        with self._noted(author):
            known = self._messages.own(author, message)
            assert known.message is not None
            role, model = known.message.role, self._models.of(known.engine)
            spoken_to, reads = self._messages.audience(author, to), self._messages.reads(author, agent, view, model)
            id, rule = known.metadata.id, self._words
            charge = None if rule is None else rule.release(author, spoken_to, id)
            told = KnownTextMessage(
                author=author,
                role=role,
                to=spoken_to,
                text=known.whole,
                reads=reads,
                model=model,
                ids=known.content,
                released=id,
                charge=charge,
            )
            released = self._messages.taint.give(self._messages.put(told))
        with self._meter.deadline(author):
            await anyio.lowlevel.checkpoint()
        return released

    def swap_out(self) -> None:
        """Make room for other games while this one waits, for a person, say. What its agents read next comes back by
        itself."""
        for model in self._models:
            model.choreographer.swap_out(self._journal.held)

    @verb
    async def play_agents(self, *agents: Agent) -> None:
        """Run agents side by side, each by its own `run`. Each can read what the others said as soon as it is out.

        So where one's message stands among those of others tells how long the messages were that it said before, the
        private ones too: an audit lists who could tell. `lockstep` tells nothing of that."""
        require_run(agents)
        await self._choreographer.tasks.together(*(agent.run() for agent in agents))

    @verb
    async def lockstep(self, *agents: Agent) -> None:
        """Run agents by their own `run` in lockstep: each says one message, whether or not others may read it, and goes
        on when each has said one. An agent that has ended, or that waits for something else than its own message, is
        not waited for. Each acts on what was out when it last went on, and on what it has said since; what was said
        comes out when all go on, agent by agent in the order of the arguments. A round (`together`, `first`) within
        counts as one message; what is told (`tell`, `release`) counts as none.

        So what an agent can see depends on how many messages others have said, and not on how long these were. What
        waits for a clock, a person or a tool may still depend on that.

        Raises what an agent raises, once the others have said what they were at, which comes out; of several errors
        the one of the agent that was given first."""
        require_run(agents)
        await self._rounds.lockstep(*(agent.run() for agent in agents))

    @verb
    async def together(self, *moves: Coroutine[Any, Any, T]) -> list[T]:
        """A simultaneous round of moves, such as `ann.say()`: all act on what was said before the round, and what they
        say comes out at its end, in the order of the arguments. Returns what the moves return, in the same order.
        Raises what a move raises; then the other moves are cancelled."""
        return await self._rounds.together(*moves)

    @verb
    async def first(self, *moves: Coroutine[Any, Any, Any]) -> Any:
        """A race of moves, such as `ann.say()`: all act on what was said before it, and it is over when the first of
        them has ended (of those that end in one engine step, the one that was given first). Returns what that move
        returns, or raises what it raises; the others are cancelled, and what they have said by then is on record as
        such. What is whole comes out, in the order of the arguments. The game is `raced`, and its code has looked at
        all that was said: who is first tells how long the others' words are. Raises `ScenarioError` for no moves."""
        return await self._rounds.first(*moves)

    @verb
    async def speak(self, agent: Agent, asked: Utterance) -> Message:
        """One message of an agent, from its view to the transcript; see `Agent`."""
        with self._noted(self._roster.name_of(agent)):
            return await (self._turns if asked.tools is None else self._tool_turns).speak(agent, asked)

    @contextmanager
    def _noted(self, author: str | None) -> Iterator[None]:
        """Around a verb of an agent: that it fails, or is cancelled, tells the code of what is behind that."""
        try:
            yield
        except anyio.get_cancelled_exc_class():
            if author is not None:
                self._messages.cancelled(author)
            raise
        except Exception as error:
            self._messages.failed(author, error)
            raise

    # -- the whole ---------------------------------------------------------------------------------------

    async def play(self, scenario: Playable) -> GameOver:
        """Play a scenario to its end, or to a limit, which is an outcome too. Gives up all encodings.
        `UnsupportedModel`, with nothing played: see `check_markers`."""
        check_markers(self._models.own.frames.framing.plain, required_markers(self.reuse, self.config.plain_markers))
        try:
            async with self._toolbox:
                return await self._choreographer.tasks.run(self._play(scenario))
        finally:
            self._journal.held += self._journal.begun()
            for choreographer, _ in self._models:
                choreographer.forget(self._journal)
                choreographer.release(choreographer.held(self._journal.held))
            self._journal.held.clear()
            self._journal.close()

    async def _play(self, scenario: Playable) -> GameOver:
        self._recorded.check_calls()
        self._rounds.precedence.begin()
        self._meter.start()
        outcome, ended = None, None
        try:
            with self._meter.deadline(None):
                playing = scenario.play(self)
                if not isawaitable(playing):
                    raise ScenarioError(
                        f"`play` of {called(scenario)} is not a coroutine; write `async def play(self, game)`"
                    )
                outcome = await playing
            self._recorded.end()
            if not isinstance(outcome, BaseModel):
                raise ScenarioError(f"`play` of {called(scenario)} {no_outcome(outcome)}")
        except Exception as error:
            limit = only_limit(error)
            if not isinstance(error, ExceptionGroup):  # a group has errors of other tasks, which no limit explains
                limit = self._meter.reached or limit
            if limit is None:
                raise
            outcome = None
            ended = f"limit: {limit.who} {limit.value:g} {limit.limit}"
        self._journal.close()
        score = {} if outcome is None else scored(scenario, outcome, self._behind)
        shown = None if outcome is None else outcome.model_dump(mode="json")
        over = GameOver(self.index, shown, score, ended, self._meter.elapsed(), raced=self.raced)
        self._sink(over)
        return over

    def _behind(self) -> dict[str, frozenset[str]]:
        """Of each message that was generated on an engine here, all that could have influenced it, by what was attended
        to."""
        drafts = self._messages.drafts.values()
        said = [each for each in drafts if each.metadata.kind == "decode" and each.message and each.message.tokens]
        cones = ((each.metadata.id, self._journal.cone(each)) for each in said)
        return {id: frozenset(cone) for id, cone in cones if cone is not None}


def _ignore(event: Event) -> None:
    """A sink that nobody reads."""

"""One game: its cast, the verbs of its scenario and its agents, and its end.

Everything that a scenario can do goes through here, so that every message is recorded and every read is checked. Turns
are in `turn`, messages in `messages`. Independent of engines and records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, TypeVar, overload

import anyio.lowlevel
from pydantic import BaseModel

from agentcho.agent import Agent, Names, Utterance, ViewLike, by_name, own_runs, verb
from agentcho.choreography.choreographer import Choreographer
from agentcho.config import ReusePolicy, RunConfig
from agentcho.errors import ScenarioError, TaskError, amount
from agentcho.events import Event, GameOver, Joined, Sink
from agentcho.games.play.endpoints import Endpoints
from agentcho.games.play.game_models import GameModel, GameModels, KnownTextMessage, RunModel, RunModels
from agentcho.games.play.journal import Journal, RecordedLines
from agentcho.games.play.limits import Meter, only_limit
from agentcho.games.play.messages import Messages
from agentcho.games.play.people import People, Seats
from agentcho.games.play.playable import Playable, as_json, called, no_outcome, scored, too_few
from agentcho.games.play.precedence import Precedence
from agentcho.games.play.roster import SCENARIO, Roster
from agentcho.games.play.rounds import Rounds
from agentcho.games.play.streamed_messages import Streamed
from agentcho.games.play.tool_calls import ToolCalls
from agentcho.games.play.tool_turn import ToolTurns
from agentcho.games.play.toolbox import Toolbox
from agentcho.games.play.turn import Forced, TurnParts, Turns
from agentcho.message import DEFAULT_PROMPT, EVERYONE, Audience, Message, Role, audience
from agentcho.protocol.call_site import UnawaitedCall, unawaited_calls, warn_at
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
    """One game. `agentcho.run` makes it, and a scenario receives it in `play`.

    Attributes:
        index: Number of the game in its run, from 0.
        seed: Seed for random choices of the scenario.
        agents: The agents that were cast, by name.
        config: Configuration of the run.

    Args:
        choreographer: The choreographer of the run's own model.
        index: Number of the game in its run, from 0.
        seed: Seed for random choices of the scenario.
        config: Configuration of the run. None means the defaults.
        sink: Called with each event as it happens. None ignores events.
        find_agent: Returns the agent class of a name, for `cast`. None means that no agent can be cast by name.
        tasks: Tasks that the game may draw.
        forced: Token ids of messages that are not sampled, by message id. None forces nothing.
        recorded: The recorded lines of earlier attempts at the game. None means that there were none.
        reuse: How agents read encodings. None means what `config` says, or else the choreographer.
        flush: Called once per step, after the sink has received everything that was said in it and before anybody else
            does. None for nothing.
        confirmed: See `ToolCalls`.
        others: Models beside the choreographer's, by name.
        people: A `Person` for each agent that a person plays, by the agent's name.
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
        self._drawn = 0
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
        self._rounds = Rounds(choreographer.tasks, TaintTracker(), Precedence(lambda: models.moment))
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
        self._over = False
        self._verbs = set[anyio.CancelScope]()
        self._ended = anyio.Event()

    def _seated(self, people: People) -> Seats:
        """Return the people of this game, who hear published messages. Other games may use its room in the store while
        it waits for a person."""
        words: Callable[[str], Message | None] = lambda id: self._messages.drafts[id].message  # noqa: E731
        seats = Seats(
            game=self.index, people=people, readable=self._messages.readable, words=words, waits=self.swap_out
        )
        self._rounds.told = seats.tell
        return seats

    @property
    def raced(self) -> bool:
        """Whether the order of the messages depended on which of several decodes ended first.

        Code that asks this counts as having looked at all messages so far.
        """
        self._messages.raced()
        return self._rounds.raced

    def draw(self, count: int = 1) -> tuple[Any, ...]:
        """Return the next tasks of the game.

        With n tasks per game, game i of a run has tasks i * n to i * n + n - 1, in every mode. Those that are made,
        not read from a file, depend on the seed of the run.

        Args:
            count: How many tasks.

        Returns:
            The tasks.

        Raises:
            TaskError: More tasks are drawn than the scenario's `draws` returns.
        """
        if count > len(self._tasks):
            raise TaskError("of this game", None, too_few(count, len(self._tasks), self._drawn))
        self._drawn += count
        drawn, self._tasks = self._tasks[:count], self._tasks[count:]
        return tuple(drawn)

    # -- the cast ----------------------------------------------------------------------------------------

    @overload
    def cast(self, agent: str, name: str | None = None, **attributes: Any) -> Any: ...
    @overload
    def cast(self, agent: type[A] | A, name: str | None = None, **attributes: Any) -> A: ...
    def cast(self, agent: str | type[Agent] | Agent, name: str | None = None, **attributes: Any) -> Any:
        """Add an agent to the game, and return it.

        Args:
            agent: A class, an instance, or the name of an agent that `agentcho ls` lists.
            name: The agent's name in this game. None means its own: an instance's `name`, or the `role` of its class.
            **attributes: Attributes of an agent that is made from a class or a name: see `Agent`.

        Returns:
            The agent.

        Raises:
            AudienceError: The name was used before or cannot name an agent, or the agent is in a game already.
            ScenarioNotFound: There is no agent of that name to find.
            RequestError: `agent` is not an agent, the run has no such model, or `attributes` are given for an instance.
            ArgumentError: The class declares no attribute of that name.
            ContextOverflow: The system prompt does not fit the model's context.

        Example::

            ann = game.cast("solver", "ann", audience="everyone")
        """
        self._check_running()
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
            self._roster.set_system_prompt(joined, self._messages.taint.give(id))
        return player

    def _default_prompt(self, name: str, model: GameModel) -> str | None:
        """Return the default system prompt of the chat template of an agent's model.

        None if there is none, if it is not to be read, or if a person plays the agent.
        """
        played = self._seats is not None and name in self._seats
        default = model.frames.framing.default
        return None if default is None or played or self.config.default_prompt == "drop" else default.text

    def name_of(self, agent: Agent) -> str | None:
        """Return the name under which an agent was cast, or None if it was not. Its own `name` does not count."""
        return self._roster.name_of(agent)

    def system_prompt(self, agent: Agent) -> str | None:
        """Return the message id of an agent's system prompt, or None if it has none."""
        return self._roster.system_prompt(self.name_of(agent))

    def _put_system_prompt(self, agent: str, words: str, open_to_all: bool, model: GameModel, *, given: bool) -> str:
        """Put an agent's system prompt into the game, private or public, and return its id.

        A prompt that is not `given` comes from the chat template. It does not count with the scenario's messages, whose
        ids are the same on every model.
        """
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

    # -- messages ----------------------------------------------------------------------------------------

    @property
    def said(self) -> History:
        """The metadata of all messages that are out, in order, as a sequence.

        Code that lists or counts its messages counts as having looked at them, as code that reads their text does.
        `View.open_to` selects the messages that an audience may read.
        """
        return self._messages.taint.history(self._rounds.visible())

    def message(self, id: str) -> Message:
        """Return a message with its text, once it is out.

        Code that asks for an id that no verb has returned counts as having looked at whether the message exists.

        Args:
            id: The id of the message.

        Returns:
            The message.

        Raises:
            KeyError: There is no such message, or it has not ended.
        """
        return self._messages.looked_up(id)

    @verb
    @by_name("to", "role")
    async def announce(self, text: str, *, to: Names = "everyone", role: Role = "user", release: bool = False) -> str:
        """Put a message of the scenario itself into the game. It is encoded when it is first read, or earlier.

        Args:
            text: The text.
            to: Who may read it: "everyone", a name, several names, or an `Audience`.
            role: Role of the message for models: "user", "system", "assistant" or "tool".
            release: Whether the rules of the game tell the message, such as who was voted out, whatever the code had
                looked at. Audits list it as a release, and do not warn of it.

        Returns:
            The id of the message.

        Raises:
            ContextOverflow: The text does not fit the model's context.
            AudienceError: `to` has a name that no agent has.
            RequestError: `text` is not text, or there is no such role.

        Example::

            await game.announce("Night falls. Everyone sleeps.")
        """
        self._check_running()
        told = KnownTextMessage(SCENARIO, role, audience(to, self.agents), text, UNREAD, self._models.own)
        told = told._replace(by_rules=checked_bool(release, "release"))
        id = self._messages.taint.give(self._messages.put(told))
        await anyio.lowlevel.checkpoint()
        return id

    @asynccontextmanager
    async def streamed(
        self, to: Names = "everyone", role: Role = "user", *, release: bool = False
    ) -> AsyncIterator[Streamed]:
        """Put a message of the scenario itself into the game piece by piece, such as text that somebody types.

        The text is encoded as it comes. At the end of the context the message is out, with the token ids of the whole
        text and nothing left to encode. In the deterministic profile all of it is encoded at the end. In baseline mode
        and with repairs each reader encodes it. An error in the context drops the message, and nobody reads any of it.

        Args:
            to: Who may read it: "everyone", a name, several names, or an `Audience`.
            role: Role of the message for models: "user", "system", "assistant" or "tool".
            release: See `announce`.

        Yields:
            The stream. `write` adds a piece, `text` is what was written, and `id` the message's id after the end.

        Raises:
            ContextOverflow: The text does not fit the model's context. Raised at the end of the context.
            AudienceError: `to` has a name that no agent has.

        Example::

            async with game.streamed(to="everyone") as page:
                async for piece in source:
                    await page.write(piece)
        """
        self._check_running()
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
            self._check_running()
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
        """Put an agent's message of known text, or of known token ids, into the game. `Agent.tell` calls it.

        Args:
            agent: The author.
            text: The text.
            to: Who may read it.
            role: Role of the message for models.
            view: What the message is encoded over. None means the agent's own view.
            ids: Token ids of the content. None encodes the text.
            release: See `announce`.

        Returns:
            The id of the message.
        """
        self._check_running()
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

    def refused(self, agent: Agent, error: Exception) -> None:
        """Note that the code gets this error about what an agent has said."""
        self._messages.failed(self._roster.name_of(agent), error)

    def retokenized(self, text: str, id: str) -> str:
        """Return a text as the tokenizer of the model that generated message `id` encodes and decodes it."""
        self._messages.probed(id)
        content = self._models.of(self._messages.drafts[id].engine).frames.framing.content
        return content.decode(content.encode(text))

    @verb
    async def release(self, agent: Agent, message: Message, to: Names, view: ViewLike) -> str:
        """Put the tokens of an agent's own message before another audience. `Agent.release` calls it.

        The game finds the text by the message's id, so that no code counts as having looked at it.
        """
        self._check_running()
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
                ids=None if known.framed is not None else known.content,
                released=id,
                charge=charge,
            )
            released = self._messages.taint.give(self._messages.put(told))
        with self._meter.deadline(author):
            await anyio.lowlevel.checkpoint()
        return released

    def swap_out(self) -> None:
        """Make room in the store for other games while this one waits, for a person for example.

        Whatever its agents read next comes back by itself. The results stay the same.
        """
        for model in self._models:
            model.choreographer.swap_out(self._journal.held)

    @verb
    async def play_agents(self, *agents: Agent) -> None:
        """Run agents side by side, each by its own `run`. An agent reads what the others say as soon as it is out.

        The place of a message among those of others therefore tells how long its author's earlier messages were,
        private ones included. An audit lists who could tell. `lockstep` tells nothing of that.

        Args:
            *agents: Agents of this game.

        Raises:
            ScenarioError: An argument is no agent, or an agent has no `run` of its own that is a coroutine function.
        """
        await self._rounds.side_by_side(*own_runs(agents, "game.play_agents"))

    @verb
    async def lockstep(self, *agents: Agent) -> None:
        """Run agents by their own `run` in lockstep: each says one message, and continues when every agent has said
        one.

        Private messages count too. An agent that has ended, or that waits for something other than its own message, is
        not waited for. An agent acts on what was out when it last continued, and on its own messages since. Messages
        come out when all continue, agent by agent in the order of the arguments. A round within (`together`, `first`)
        counts as one message, and `tell` and `release` count as none.

        What an agent can see therefore depends on how many messages others have said, and not on how long these were.
        Anything that waits for a clock, a person or a tool may still depend on that.

        Args:
            *agents: Agents of this game.

        Raises:
            ScenarioError: An argument is no agent, or an agent has no `run` of its own that is a coroutine function.
            Exception: What an agent raises, once the others have finished the message that they were at. Of several
                errors, that of the agent that was given first.
        """
        await self._rounds.lockstep(*own_runs(agents, "game.lockstep"))

    @verb
    async def together(self, *moves: Coroutine[Any, Any, T]) -> list[T]:
        """Run a simultaneous round of moves, such as `ann.say()`.

        All moves act on what was said before the round. Their messages come out at its end, in the order of the
        arguments. The transcript lists them in the order in which they ended.

        Args:
            *moves: Coroutines of verbs.

        Returns:
            The results of the moves, in the same order.

        Raises:
            Exception: What a move raises. The other moves are then cancelled.

        Example::

            bids = await game.together(ann.answer(Bid, to=()), ben.answer(Bid, to=()))
        """
        return await self._rounds.together(*moves)

    @verb
    async def first(self, *moves: Coroutine[Any, Any, Any]) -> Any:
        """Run a race of moves, such as `ann.say()`, that is over when the first of them ends.

        All moves act on what was said before the race. Of moves that end in one engine step, the one that was given
        first wins. The others are cancelled, and what they had said is recorded as cancelled. Complete messages come
        out, in the order of the arguments. The game is `raced` from then on, and its code counts as having looked at
        everything that was said, because the winner tells how long the others' messages are.

        Args:
            *moves: Coroutines of verbs.

        Returns:
            The result of the first move.

        Raises:
            ScenarioError: There are no moves.
            Exception: What the first move raises.
        """
        return await self._rounds.first(*moves)

    @verb
    async def speak(self, agent: Agent, asked: Utterance) -> Message:
        """Generate one message of an agent, from its view to the transcript. The verbs of `Agent` call it."""
        self._check_running()
        with self._noted(self._roster.name_of(agent)), self._until_over():
            return await (self._turns if asked.tools is None else self._tool_turns).speak(agent, asked)

    @contextmanager
    def _until_over(self) -> Iterator[None]:
        """A context around a verb, which is cancelled if the game ends before it. Raises `ScenarioError` then."""
        with anyio.CancelScope() as scope:
            self._verbs.add(scope)
            try:
                yield
            finally:
                self._verbs.discard(scope)
                if self._over and not self._verbs:
                    self._ended.set()
        if scope.cancelled_caught:
            self._check_running()

    async def _end_verbs(self) -> None:
        """Note that the game is over, and wait until verbs in tasks that the code has left running are cancelled."""
        self._over = True
        with anyio.CancelScope(shield=True):
            for verb in self._verbs:
                verb.cancel()
            if self._verbs:
                await self._ended.wait()

    def _check_running(self) -> None:
        """Raise `ScenarioError` if the game has its outcome: nothing that is said later would be part of it."""
        if self._over:
            raise ScenarioError(
                f"game {self.index} is over, and nothing more can be said in it; cast agents anew in the game that runs"
            )

    @contextmanager
    def _noted(self, author: str | None) -> Iterator[None]:
        """A context around a verb of an agent, which notes what the code learns if the verb fails or is cancelled."""
        try:
            yield
        except anyio.get_cancelled_exc_class():
            if author is not None:
                self._messages.cancelled(author)
            raise
        except Exception as error:
            self._messages.failed(author, error)
            raise

    # -- the whole game ----------------------------------------------------------------------------------

    async def play(self, scenario: Playable) -> GameOver:
        """Play a scenario to its end, or to a limit, which is an outcome too. Then release all encodings.

        Args:
            scenario: The scenario.

        Returns:
            How the game ended.

        Raises:
            UnsupportedModel: The model's role markers can be imitated by text: see `check_markers`. Nothing was played.
            Exception: What the scenario raises, unless a limit explains it.
        """
        check_markers(self._models.own.frames.framing.plain, required_markers(self.reuse, self.config.plain_markers))
        try:
            async with self._toolbox:
                try:
                    return await self._choreographer.tasks.run(self._play(scenario))
                finally:
                    await self._end_verbs()
        finally:
            await self._end_verbs()
            self._journal.held += self._journal.begun()
            for choreographer, _ in self._models:
                choreographer.forget(self._journal)
                choreographer.release(choreographer.held(self._journal.held))
            self._journal.held.clear()
            self._journal.close()

    async def _play(self, scenario: Playable) -> GameOver:
        self._recorded.check_calls()
        self._rounds.precedence.begin()
        self._messages.taint.begin()
        self._meter.start()
        outcome, ended = None, None
        unawaited: Callable[[], list[UnawaitedCall]] = list
        try:
            with self._meter.deadline(None), unawaited_calls() as unawaited:
                playing = scenario.play(self)
                if not isawaitable(playing):
                    raise ScenarioError(
                        f"`play` of {called(scenario)} is not a coroutine; write `async def play(self, game)`"
                    )
                outcome = await playing
            _warn_unawaited(unawaited())
            self._recorded.end()
            if not isinstance(outcome, BaseModel):
                raise ScenarioError(f"`play` of {called(scenario)} {no_outcome(outcome)}")
        except Exception as error:
            limit = only_limit(error)
            if not isinstance(error, ExceptionGroup):  # a group has errors of other tasks, which no limit explains
                limit = self._meter.reached or limit
            forgotten = unawaited()
            if limit is None:
                with suppress(Exception):  # the name of an agent may raise; the error that ended the game counts
                    for call in forgotten:
                        error.add_note(f"{call.site.where}: {call}")
                    _warn_unawaited(forgotten)
                raise
            if self._recorded.departure is not None:
                raise self._recorded.departure from error
            outcome = None
            ended = f"limit: {limit.who} reached {amount(limit.value, limit.limit)}"
        await self._end_verbs()
        self._journal.close()
        score = {} if outcome is None else scored(scenario, outcome, self._behind)
        shown = None if outcome is None else as_json(outcome, "outcome", scenario)
        over = GameOver(self.index, shown, score, ended, self._meter.elapsed(), raced=self.raced)
        self._sink(over)
        return over

    def _behind(self) -> dict[str, frozenset[str]]:
        """Return, for each message generated on an engine here, all messages that could have influenced it."""
        drafts = self._messages.drafts.values()
        said = [each for each in drafts if each.metadata.kind == "decode" and each.message and each.message.tokens]
        cones = ((each.metadata.id, self._journal.cone(each)) for each in said)
        return {id: frozenset(cone) for id, cone in cones if cone is not None}


def _warn_unawaited(calls: Iterable[UnawaitedCall]) -> None:
    """Warn, at the line of each of these calls of verbs, that it was never awaited."""
    for call in calls:
        as_move = "" if isinstance(call.of, Game) else ", or await the round that it is a move of"
        warn_at(call.site, f"{call}{as_move}", RuntimeWarning)


def _ignore(event: Event) -> None:
    """Ignore an event."""

"""One play: its cast, what has been said in it and who may read it, and the way of one turn to the choreographer.

Views and policies are asked for metadata, once a turn; the answer is a read set that nothing widens. Does not
know: engines, records, how a scenario plays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, TypeVar, overload

from pydantic import BaseModel

from agentcho.agent import Agent, Names, Utterance, ViewLike
from agentcho.calls import values
from agentcho.calls.call import Sampling, SamplingOptions, Turn
from agentcho.calls.call_site import call_site
from agentcho.calls.checks import checked_role
from agentcho.calls.texts import TextPort
from agentcho.choreography.choreographer import Choreographer
from agentcho.choreography.handle import Piece, Request, Result, Unfinished
from agentcho.config import ReusePolicy, RunConfig
from agentcho.errors import (
    AudienceError,
    ContextOverflow,
    LeakageError,
    LimitReached,
    RequestError,
    ScenarioError,
    TaskError,
)
from agentcho.events import Began, Event, FirstToken, Joined, Over, Sink, Token
from agentcho.flow.draft import Draft
from agentcho.flow.labels import LeakPaths
from agentcho.flow.markers import check_markers, required_markers
from agentcho.flow.taint import Listener, TaintTracker
from agentcho.flow.views import (
    Act,
    History,
    Policy,
    Read,
    ReadSet,
    View,
    audience_policy,
    granted,
    places_of,
    read_set,
    visible_metadata,
)
from agentcho.games.endpoints import Endpoints
from agentcho.games.journal import Journal, Making, Recorded
from agentcho.games.limits import Meter, only_limit
from agentcho.games.models import GameModel, GameModels, Models, Telling
from agentcho.games.playable import Playable, called, no_outcome, points
from agentcho.games.roster import SCENARIO, Roster
from agentcho.games.rounds import Rounds
from agentcho.games.text_turn import TextTurn
from agentcho.message import EVERYONE, Audience, Kind, Message, Metadata, Role, Words, audience, exact
from agentcho.tasks import Task

Forced = Mapping[str, tuple[int, ...]]
"""Ids of what is said after the header, by message: they take the place of sampled ones."""
UNREAD = ReadSet(None, (), None, ())
"""What the scenario reads."""
A = TypeVar("A", bound=Agent)


class Game:
    """One game. The runtime makes it, and a scenario gets it in `play`.

    For scenarios: `index` is the number of the game in its run, from 0; `seed` is what random choices of the scenario
    should be made from; `agents` has those that were cast, by name; `config` is the run's configuration.

    For who makes one: `sink` gets events as they happen. `find_agent` turns a name into an agent class, for `cast`.
    `tasks` are what the game may `draw`. `forced` gives the words of messages that are not to be sampled. `recorded` is
    what is known of the times that the game was begun before. `reuse` says through which encodings its agents read: as
    given, else as `config` says, else as the choreographer was opened. `flush` is called once a step, when the
    sink has heard all that was said in it, and nobody else has. `others` are the models beside the choreographer's.
    """

    def __init__(
        self,
        choreographer: Choreographer,
        index: int = 0,
        seed: int = 0,
        config: RunConfig | None = None,
        policy: Policy = audience_policy,
        sink: Sink | None = None,
        find_agent: Callable[[str], type[Agent]] | None = None,
        tasks: Sequence[Task] = (),
        forced: Forced | None = None,
        recorded: Recorded | None = None,
        reuse: ReusePolicy | None = None,
        flush: Callable[[], None] | None = None,
        others: Mapping[str, Choreographer] = MappingProxyType({}),
    ) -> None:
        self._choreographer, self.index, self.seed = choreographer, index, seed
        self.config = config or RunConfig()
        self._defaults = self.config.sampling.model_dump()
        self._policy, self._sink = policy, sink or _ignore
        self._roster = Roster(find_agent)
        self.agents: Mapping[str, Agent] = MappingProxyType(self._roster.agents)
        self._tasks, self._forced = list(tasks), forced or {}
        self._meter = Meter(self.config.limits)
        self._flush = flush
        self.reuse = reuse or (self.config.reuse if self.config.says_reuse else choreographer.reuse)
        self._recorded, models = recorded or Recorded(index), Models(choreographer, others)
        bos, spelling = choreographer.frames.bos, models.spelling
        self._journal = Journal(index, self.reuse, self._meter, self._sink, self._recorded, bos=bos, spelling=spelling)
        self._models = GameModels(models, self._journal)
        self._own, self._resolver = self._models.own, self._journal.resolver
        self._endpoints = Endpoints(models.ports, self._resolver.drafts, self.config.allow_vendor)
        self._leaks = LeakPaths(self.reuse, self._resolver.drafts)
        self._taint = TaintTracker()
        self._rounds = Rounds(choreographer.tasks, self._taint)
        self._numbers: dict[str, int] = {}
        self._turns: dict[str, int] = {}

    @property
    def raced(self) -> bool:
        """Whether the order of its messages depended on which of several decodes ended first."""
        return self._rounds.raced

    def draw(self, count: int = 1) -> tuple[Any, ...]:
        """The game's next `count` tasks. Game i of a run with n tasks a game has those from i * n on, in every mode and
        for every seed of sampling. Raises `TaskError` for more tasks than the scenario's `draws` says."""
        if count > len(self._tasks):
            what = f"{count} are drawn and {len(self._tasks)} are left; let `draws` of the scenario say how many"
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
        model = self._own if player.model is None else self._models.at_first(joined, player.model)
        if player.system is not None:
            self._known(Telling(SCENARIO, "system", EVERYONE, player.system, UNREAD, model))
        self._roster.join(player, joined)
        player._game = self
        self._sink(Joined(self.index, joined, player.role))
        if player.system is not None:
            id = self._put_system_prompt(joined, player.system, player.open_system, model)
            self._roster.set_system_prompt(joined, id)
        return player

    def name_of(self, agent: Agent) -> str | None:
        """The name under which an agent was cast here, and by which it is known whatever it calls itself."""
        return self._roster.name_of(agent)

    def system_prompt(self, agent: Agent) -> str | None:
        """The message id of an agent's system prompt. None: it has none."""
        return self._roster.system_prompt(self.name_of(agent))

    def _put_system_prompt(self, agent: str, words: str, open_to_all: bool, model: GameModel) -> str:
        """An agent's system prompt, private or the scenario's; its id."""
        if not open_to_all:
            private = Audience(frozenset({agent}))
            return self._put(Telling(agent, "system", private, words, ReadSet(agent, (), None, ()), model))
        there = self._roster.open_prompt(words, self.said)
        if there is None:
            there = self._put(Telling(SCENARIO, "system", EVERYONE, words, UNREAD, self._own))
            self._roster.add_open_prompt(there, words)
        return there

    # -- what has been said ------------------------------------------------------------------------------

    @property
    def said(self) -> History:
        """The metadata of all messages that are out, in order: a sequence."""
        return self._rounds.visible()

    def message(self, id: str) -> Message:
        """The message of that id, with its words, once it is out. Raises `KeyError` where there is none,
        or it has not ended."""
        message = self._resolver.drafts[id].message
        if message is None:
            raise KeyError(id)
        return self._taint.track(message)

    async def announce(self, text: str, to: Names = "everyone", role: Role = "user") -> str:
        """Put a message of the scenario itself into the talk, and return its id. It is encoded when it is first read.
        Raises `ContextOverflow` for a text that does not fit the model's context, and `AudienceError` for a name that
        nobody has."""
        return self._put(Telling(SCENARIO, role, audience(to, self.agents), text, UNREAD, self._own))

    async def tell(
        self, agent: Agent, text: str, to: Names, role: str, view: ViewLike = None, ids: tuple[int, ...] | None = None
    ) -> str:
        """An agent's message of known text, or known ids; see `Agent.tell`."""
        author = self._roster.member(agent)
        spoken_to, reads = self._audience(author, to), self._reads(author, agent, view)
        return self._put(Telling(author, role, spoken_to, text, reads, self._model(author, agent), ids))

    def retokenized(self, text: str, id: str) -> str:
        """A text as the tokenizer of the model that said message `id` gives it back: one may write letters
        otherwise."""
        content = self._models.of(self._resolver.drafts[id].engine).frames.framing.content
        return content.decode(content.encode(text))

    async def release(self, agent: Agent, message: Message, to: Names, view: ViewLike) -> str:
        """The tokens of an agent's own message as a new one; see `Agent.release`. The words are the game's own, by
        the message's id, so that nobody has looked at any for it."""
        if not isinstance(message, Message):
            raise RequestError(f"a release of what is {values.kind(message)}; give a Message of the agent's own")
        author, id = self._roster.member(agent), exact(message.id)
        known = self._resolver.drafts.get(id)
        if known is None or known.message is None or known.metadata.author != author:
            raise AudienceError(f"{author} cannot release {id!r}, which is no finished message of its own", self.agents)
        role, model = known.message.role, self._models.of(known.engine)
        spoken_to, reads = self._audience(author, to), self._reads(author, agent, view)
        return self._put(Telling(author, role, spoken_to, known.whole, reads, model, known.content))

    def _put(self, told: Telling) -> str:
        """Publish a message of known text; its encoding is made by the first call that reads it, or before. What could
        not be encoded, or not over what its author read, is refused here, to its author alone, with nothing said."""
        draft, words = self._known(told)
        draft.act = self._provenance(told.to, told.reads)
        self._add_draft(draft)
        self._recorded.check(draft)
        self._journal.enter_known(draft, words)
        self._rounds.publish(draft.metadata, self._rounds.branch)
        if not told.reads.reads:
            model, make = told.model, partial(self._journal.prefetch, draft.metadata.id, told.model.resolver)
            model.choreographer.offer(self._journal, make)
        return draft.metadata.id

    def _known(self, told: Telling) -> tuple[Draft, Words]:
        """A message of known text before it is said, and its words. Raises what is wrong with it."""
        author, to, reads, model = told.author, told.to, told.reads, told.model
        text, known = values.text(told.text, "the text"), checked_role(told.role)
        metadata = self._metadata(author, "prefill", known, to, reads)
        name = author if known == "assistant" else None
        words = model.frames.frame(known, name, text, told.ids)
        draft = model.draft(metadata, text, name, reads)
        end = model.resolver.end_position(draft, len(words.tokens))
        if end > model.frames.context:
            raise ContextOverflow(end, model.frames.context, model.choreographer.name)
        return draft, words

    def _metadata(self, author: str, kind: Kind, role: Any, to: Audience, reads: ReadSet) -> Metadata:
        """That of the author's next message."""
        who, parents = None if author == SCENARIO else author, tuple(read.id for read in reads.reads)
        return Metadata(f"{author}.{self._numbers.get(author, 0)}", kind, role, who, to, parents)

    def _add_draft(self, draft: Draft) -> None:
        """Let there be a message of that id."""
        author = draft.metadata.author or SCENARIO
        self._numbers[author] = self._numbers.get(author, 0) + 1
        self._resolver.drafts[draft.metadata.id] = draft

    def _provenance(self, to: Audience, reads: ReadSet) -> Act:
        """How a message comes about: which line asked for it, where it is placed, on what it may depend."""
        audiences = {id: self._resolver.drafts[id].metadata.audience for id in self._taint.sources}
        places = places_of(reads)
        asked = places if any(place is not None for place in places) else ()
        return Act(call_site(), asked, self._taint.tainted_by(to, audiences))

    def swap_out(self) -> None:
        """Make room for other games while this one waits, for a person, say. What its agents read next comes back by
        itself."""
        for model in self._models:
            model.choreographer.swap_out(self._journal.held)

    async def play_agents(self, *agents: Agent) -> None:
        """Run agents side by side, each by its own `run`. Each can read what the others said as soon as it is out."""
        await self._choreographer.tasks.together(*(agent.run() for agent in agents))

    async def together(self, *moves: Coroutine[Any, Any, Any]) -> list[Any]:
        """A simultaneous round of moves, such as `ann.say()`: all act on what was said before the round, and what they
        say comes out at its end, in the order of the arguments. Returns what the moves return, in the same order.
        Raises what a move raises; then the other moves are cancelled."""
        return await self._rounds.together(*moves)

    # -- one turn ----------------------------------------------------------------------------------------

    async def speak(self, agent: Agent, asked: Utterance) -> Message:
        """One message of an agent, from its view to the transcript; see `Agent`."""
        with self._rounds.act(self._rounds.branch):
            author, header = self._roster.member(agent), values.text(asked.header, "the header")
            prompt = None if asked.prompt is None else values.text(asked.prompt, "the prompt")
            self._meter.check(author)
            model = self._model(author, agent)
            spoken_to = self._audience(author, asked.to)
            reads = self._reads(author, agent, asked.view)
            port = self._endpoints.port(model.choreographer.name, author, reads)
            options = self._sampling(author, asked.sampling)
            if prompt is not None:
                private = Audience(frozenset({author}))
                question = self._put(Telling(author, "user", private, prompt, reads, model))
                reads = reads._replace(reads=(*reads.reads, Read(question, reads.new_at)), new_at=None)
            act = self._provenance(spoken_to, reads)._replace(choices=options.choices or ())
            metadata = self._metadata(author, "decode", "assistant", spoken_to, reads)
            draft = model.draft(metadata, header, author, reads, act)
            self._add_draft(draft)
            self._recorded.check(draft)
            self._sink(Began(self.index, draft.metadata.id, author, "decode", spoken_to, header))
            how = self._decode if port is None else partial(self._ask, port)
            await how(draft, options, self._taint.listener(metadata.id, asked.on_token), model)
            self._meter.check_after(author)
            assert draft.message is not None
            return self._taint.track(draft.message)

    def _model(self, author: str, agent: Agent) -> GameModel:
        """The model that an agent speaks through in its next turn, or at what it tells before that."""
        if agent.model is None:
            return self._own
        return self._models.chosen(author, agent.model, self._turns.get(author, -1) + 1)

    async def _decode(self, draft: Draft, sampling: Sampling, told: Listener, model: GameModel) -> None:
        id, on = draft.metadata.id, model.resolver
        forced = self._forced.get(id)
        forced = self._recorded.words(id) if forced is None else forced
        most = self._meter.all_left()  # not a part of what is checked: a refusal would tell it
        plan = on.decode_plan(draft, sampling=sampling, forced=forced, most=most)
        author, branch = draft.metadata.author or SCENARIO, self._rounds.branch
        making = Making(plan.missing, author, on)

        def piece(said: Piece) -> None:
            if said.opening is not None:
                self._sink(FirstToken(self._journal.first_token(making, draft, said.opening)))
            self._sink(Token(self.index, id, said.text, said.token))

        def done(result: Result) -> None:
            self._journal.enter(making, draft, result)
            self._rounds.publish(draft.metadata, branch)

        def dropped(said: Unfinished) -> None:
            self._journal.enter_dropped(making, draft, said)

        order, turn = (self.index, author, self._turns[author]), Turn(str(self.index), self.agents[author].priority)
        with self._meter.deadline(author):
            exact = self.reuse.deterministic
            request = Request(plan.calls, order, told, done, turn, exact, piece, self._flush, dropped)
            await model.choreographer.run(request)

    async def _ask(self, port: TextPort, draft: Draft, sampling: Sampling, told: Listener, model: GameModel) -> None:
        """The same of a model behind an API."""
        id, branch, sink = draft.metadata.id, self._rounds.branch, self._sink
        call = self._endpoints.call(draft, sampling, self._meter.all_left())
        known = self._recorded.text(id, self._forced.get(id), model.frames.framing.content)
        with self._meter.deadline(draft.metadata.author):
            turn = TextTurn(self.index, draft, self._journal, sink, self._flush, told)
            await (turn.ask(port, call) if known is None else turn.say(known))
            self._rounds.publish(draft.metadata, branch)

    def _reads(self, author: str, agent: Agent, wish: ViewLike) -> ReadSet:
        """Ask policy and view once, for metadata alone. Where audiences alone decide, and the view is there already,
        nobody is told of more than it names."""
        said = self.said
        if wish is not None and not isinstance(wish, View) and not callable(wish):
            raise RequestError(
                f"the view of a call is {values.kind(wish)}; give a View, or a function that returns one"
            )
        if isinstance(wish, View) and self._policy is audience_policy:
            by_audience = lambda m: m.audience.includes(author) and self._roster.sees(author, m.id)  # noqa: E731
            reads = granted(author, wish, by_audience, said)
        else:
            for_it = self._roster.visible(author, said)
            allowed = self._policy(author, for_it)
            view = wish if isinstance(wish, View) else (wish or agent.view)(visible_metadata(author, allowed, for_it))
            reads = read_set(author, view, allowed, said)
        if path := self._leaks.leak_path(reads):
            raise LeakageError(author, path)
        return reads

    def _audience(self, author: str, to: Names) -> Audience:
        given = audience(to, self.agents)
        return given if given.members is None else Audience(given.members | {author})

    def _sampling(self, author: str, options: SamplingOptions) -> Sampling:
        """The run's defaults, the call's own options, a coin seed of the author's own turn, its own tokens left."""
        turn = self._turns.get(author, -1) + 1
        base = self._defaults | {"seed": coin_seed(self.seed, self.index, author, turn)}
        try:
            sampling = Sampling(**{**base, **options})
        except RequestError as error:
            raise RequestError(f"{author}: {error}", error.field) from error
        self._turns[author] = turn
        left = self._meter.tokens_left(author)
        if left is None or sampling.choices or sampling.json_schema:
            return sampling
        return sampling.model_copy(update={"max_tokens": min(left, sampling.max_tokens)})

    # -- the whole ---------------------------------------------------------------------------------------

    async def play(self, scenario: Playable) -> Over:
        """Play a scenario to its end, or to a limit, which is an outcome too. Gives up all encodings.
        `UnsupportedModel`, with nothing played: see `check_markers`."""
        check_markers(self._own.frames.framing.plain, required_markers(self.reuse, self.config.plain_markers))
        try:
            return await self._choreographer.tasks.run(self._play(scenario))
        finally:
            for choreographer, _ in self._models:
                choreographer.forget(self._journal)
                choreographer.release(choreographer.held(self._journal.held))
            self._journal.held.clear()
            self._journal.close()

    async def _play(self, scenario: Playable) -> Over:
        self._meter.start()
        outcome, ended = None, None
        try:
            with self._meter.deadline(None):
                playing = scenario.play(self)
                if not isawaitable(playing):
                    raise ScenarioError(
                        f"play of {called(scenario)} is no coroutine; write `async def play(self, game)`"
                    )
                outcome = await playing
                self._recorded.end()
            if not isinstance(outcome, BaseModel):
                raise ScenarioError(f"play of {called(scenario)} {no_outcome(outcome)}")
        except (LimitReached, ExceptionGroup) as error:
            limit = only_limit(error)
            if limit is None:
                raise
            ended = f"limit: {limit.who} {limit.value:g} {limit.limit}"
        self._journal.close()
        score = {} if outcome is None else points(scenario.score(outcome))
        shown = None if outcome is None else outcome.model_dump(mode="json")
        over = Over(self.index, shown, score, ended, self._meter.elapsed(), raced=self.raced)
        self._sink(over)
        return over


def coin_seed(seed: int, game: int, author: str, turn: int) -> int:
    """The seed of one turn's coins, 63 bits: of the run's seed, the game's number, and who speaks for the how-manieth
    time, and of nobody else's turns."""
    framed = f"{seed}/{game}/{len(author)}/{author}/{turn}".encode()
    return int.from_bytes(hashlib.blake2b(framed, digest_size=8, person=b"agentcho.turn").digest()) >> 1


def _ignore(event: Event) -> None:
    """A sink that nobody reads."""

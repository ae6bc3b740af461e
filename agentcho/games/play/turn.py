"""One turn of an agent: from the request of a verb, over its read set, to the finished message.

All verbs that generate text end here, so that each is checked and counted in the same way. Independent of scenarios and
records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from agentcho.agent import Agent, Utterance
from agentcho.choreography.requests import RequestResult
from agentcho.config import RunConfig
from agentcho.errors import AnswerInvalid, LeakageError, RequestError
from agentcho.events import Began, Sink, Typed
from agentcho.games.play.decode_turn import DecodeTurn, TurnHooks
from agentcho.games.play.endpoints import Endpoints
from agentcho.games.play.game_models import GameModel, GameModels, KnownTextMessage
from agentcho.games.play.journal import Journal, KnownText
from agentcho.games.play.limits import Meter
from agentcho.games.play.messages import Messages, thought_of
from agentcho.games.play.people import Seats, question_of
from agentcho.games.play.remote_turn import TextTurn
from agentcho.games.play.rounds import Branch
from agentcho.message import SCENARIO, Audience, Message, sample_of, told_as
from agentcho.protocol import value_checks
from agentcho.protocol.call import Sampling, SamplingOptions, SchedulingPriority
from agentcho.protocol.text_calls import TextPort
from agentcho.protocol.tools import AnswerForm
from agentcho.provenance.declassification import DisclosureRule, PlannedDisclosure, canonical_json
from agentcho.provenance.drafts import Draft
from agentcho.provenance.returned_values import CodeText, ReturnedValue, known_words, of_json, words_of
from agentcho.provenance.taint import Listener
from agentcho.provenance.views import Charge, Read, ReadSet
from agentcho.records.transcript import MessageUsage

Forced = Mapping[str, tuple[int, ...]]
"""Token ids after the header, by message, that replace sampled ones. A private sample has the id it is told under."""


class TurnParts(NamedTuple):
    """The parts of a game that its turns use.

    `sink` receives events, `flush` is as in `Game`, `seats` are its people, and `words` is its rule for words, if any.
    """

    messages: Messages
    models: GameModels
    endpoints: Endpoints
    journal: Journal
    meter: Meter
    sink: Sink
    flush: Callable[[], None] | None
    seats: Seats | None = None
    words: DisclosureRule | None = None


class Speech(NamedTuple):
    """One message that is about to be sampled.

    `port` is None if the model is loaded here. `turn` is the number of its author's turn. `forms` is as in `Decode`.
    `shares` tells whether its readers may read the thought before it. `id` is None for the author's next number.
    """

    author: str
    asked: Utterance
    model: GameModel
    port: TextPort | None
    to: Audience
    reads: ReadSet
    options: Sampling
    turn: int
    forms: tuple[AnswerForm, ...] = ()
    peek: bool = False
    shares: bool = False
    id: str | None = None


class Turns:
    """The turns of the agents of game `index`. `seed` and `forced` are as in `Game`."""

    def __init__(self, index: int, seed: int, config: RunConfig, parts: TurnParts, forced: Forced) -> None:
        self._index = index
        self._seed = seed
        self._defaults = config.sampling.model_dump()
        self._forced = forced
        self._messages = parts.messages
        self._models = parts.models
        self._endpoints = parts.endpoints
        self._journal = parts.journal
        self._meter = parts.meter
        self._sink = parts.sink
        self._flush = parts.flush
        self._words = parts.words
        self._thoughts = config.thoughts
        self._taken: dict[str, int] = {}
        self._seats = parts.seats

    async def speak(self, agent: Agent, asked: Utterance) -> Message:
        """Generate one message of an agent, from its view to the transcript; see `Agent`."""
        async with self._messages.rounds.act():
            return self._messages.taint.given(await self.say(self.begin(agent, asked)))

    def begin(self, agent: Agent, asked: Utterance) -> Speech:
        """Return what an agent is about to say and what it reads. Its prompt is published here.

        The view is asked here.
        """
        messages = self._messages
        author, header = messages.roster.member(agent), value_checks.checked_text(asked.header, "the header")
        prompt = None if asked.prompt is None else value_checks.checked_text(asked.prompt, "the prompt")
        self._meter.check(author)
        model = self.model(author, agent)
        spoken_to = messages.audience(author, asked.to)
        reads = messages.reads(author, agent, asked.view, model)
        typed = self._seats is not None and author in self._seats
        port = self._endpoints.port(model.choreographer.name, author, reads, sent=not typed)
        turn = self._taken.get(author, -1) + 1
        options = self.sampling(author, asked.sampling, turn)
        self._taken[author] = turn
        speech = Speech(
            author=author,
            asked=asked._replace(header=header),
            model=model,
            port=port,
            to=spoken_to,
            reads=reads,
            options=options,
            turn=turn,
        )
        speech = speech._replace(shares=self._shares(author, agent))
        if self._words is not None:
            self.permit(speech, asked.prompt)
        if prompt is not None:
            private = Audience(frozenset({author}))
            question = messages.put(
                KnownTextMessage(author=author, role="user", to=private, text=prompt, reads=reads, model=model)
            )
            reads = reads._replace(reads=(*reads.reads, Read(question, reads.new_at)), new_at=None)
        return speech._replace(reads=reads)

    async def say(self, speech: Speech) -> Message:
        """Generate one message, from its read set to the transcript. The caller wraps it in `Rounds.act`.

        The thought before one of several charged choices stays private, because the charge does not cover its words.
        """
        messages, (author, asked, model, port, spoken_to, reads, options, *_) = self._messages, speech
        charge = None if self._words is None else self._words.charge(self._saying(speech))
        if charge is not None and charge.by == "choices":
            speech = speech._replace(shares=False)
        retold = charge is not None and charge.schema is not None
        heard = Audience(frozenset({author})) if retold else spoken_to
        shown = tuple(each for each in self._shown(author) if all(each != read.id for read in reads.reads))
        written = _written(asked, options)
        act = messages.provenance(heard, reads, written)
        act = act._replace(choices=options.choices or (), shown=shown, unaddressed=asked.unaddressed)
        act = act if charge is None or retold else act._replace(charge=charge)
        id = messages.reserve(author) if retold and speech.id is None else speech.id
        metadata = messages.metadata(author, "decode", "assistant", heard, reads, sample_of(id or "") if retold else id)
        draft = model.draft(metadata, asked.header, author, reads, act)
        messages.add(draft)
        self._sink(
            Began(
                game=self._index,
                id=draft.metadata.id,
                author=author,
                kind="decode",
                audience=heard,
                header=asked.header,
            )
        )
        if self._seats is not None and author in self._seats:
            await self._type(self._seats, speech, draft)
        how = partial(self._decode, speech) if port is None else partial(self._ask, port, speech.shares)
        if asked.on_begin is not None:
            asked.on_begin(partial(messages.taint.look, metadata.id))
        await how(draft, options, messages.taint.listener(metadata.id, asked.on_token), model)
        messages.rounds.precedence.said(metadata.id, act.after)
        said = draft.message
        if retold and charge is not None:
            said = self._retold(draft, charge, spoken_to, model, written=written, id=id)
        self._meter.check_after(author)
        assert said is not None
        thought = messages.drafts.get(draft.act.thought or "")
        if thought is not None and thought.message is not None:
            said = replace(said, thoughts=messages.taint.track(thought.message))
        probe = partial(messages.asked_for_thought, metadata.id) if self._may_think(speech, draft) else None
        value = _value(asked, options, said)
        return messages.taint.track(said, value=value, offered=written.offered, thought=probe)

    def _may_think(self, speech: Speech, draft: Draft) -> bool:
        """Whether it is private whether the model has thought before a message: not if its readers get the thought, if
        nothing was sampled, or if the model has never thought as far as is known."""
        if speech.shares or draft.typed is not None or draft.message is None or not draft.message.sampled:
            return False
        if speech.port is None:
            return speech.model.frames.framing.thinking is not None
        return any(other.act.thought is not None for other in self._messages.drafts.values())

    def permit(self, speech: Speech, prompt: str | None = None) -> None:
        """Ask the rule for words, if there is one, before anything is said, even a private `prompt`.

        Raises `LeakageError` if the message must not be said. It then does not count as a turn.
        """
        if self._words is None:
            return
        saying = self._saying(speech)
        if prompt is not None:
            next_message = self._messages.metadata(speech.author, "prefill", "user", speech.to, speech.reads)
            saying = saying._replace(prompt=next_message.id)
        try:
            self._words.check(saying)
        except LeakageError:
            self._taken[speech.author] -= 1
            raise

    def charge_result(self, speech: Speech) -> Charge | None:
        """Return the charge for the result of a call over these reads to `speech.to`.

        The result may contain anything that was read, because a tool can repeat its arguments. Raises `LeakageError` if
        the call must not be made.
        """
        return None if self._words is None else self._words.charge(self._saying(speech)._replace(result=True))

    def _saying(self, speech: Speech) -> PlannedDisclosure:
        """Return the disclosure that the rule is asked about. It includes all that a person has been shown."""
        author, release = speech.author, speech.asked.release
        return PlannedDisclosure(
            author=author,
            to=speech.to,
            reads=speech.reads,
            options=speech.options,
            prompt=None,
            release=release,
            shown=self._shown(author),
        )

    def _shown(self, author: str) -> tuple[str, ...]:
        """Return the messages that the person who plays an agent has been shown, as any of the agents that the person
        plays. Empty for a model."""
        if self._seats is None or author not in self._seats:
            return ()
        agents = self._seats.played_with(author)
        return tuple(dict.fromkeys(message.id for agent in agents for message in self._messages.readable(agent)))

    def _retold(
        self, draft: Draft, charge: Charge, to: Audience, model: GameModel, written: CodeText, id: str | None
    ) -> Message | None:
        """Publish JSON that was sampled in private, as a message of known text in canonical spelling, with that id.

        Its original spelling then reveals nothing. Raises `AnswerInvalid` if it is none of the charged values.
        """
        said, author = draft.message, draft.metadata.author
        assert said is not None
        assert author is not None
        text = None if charge.schema is None else canonical_json(said.text, charge.schema)
        if text is None:
            raise AnswerInvalid(
                f"{author} was forced to say something that its schema does not allow, so it was not "
                "delivered. Force words that fit the schema"
            )
        reads = draft.reads._replace(reads=(*draft.reads.reads, Read(said.id, draft.reads.new_at)), new_at=None)
        told = KnownTextMessage(
            author=author,
            role="assistant",
            to=to,
            text=said.header + text,
            reads=reads,
            model=model,
            released=said.id,
            charge=charge,
            written=written,
            id=id,
        )
        return self._messages.drafts[self._messages.put(told)].message

    def is_typed(self, agent: Agent) -> bool:
        """Return whether a person plays an agent."""
        return self._seats is not None and self._messages.roster.member(agent) in self._seats

    def model(self, author: str, agent: Agent) -> GameModel:
        """Return the model that an agent speaks through in its next turn, and for its `tell` before that."""
        if agent.model is None:
            return self._models.own
        return self._models.chosen(author, agent.model, self._taken.get(author, -1) + 1)

    async def _type(self, seats: Seats, speech: Speech, draft: Draft) -> None:
        """Let a person give the words of a message, unless they are known.

        They are recorded before anybody else sees them.
        """
        id, recorded = draft.metadata.id, self._messages.recorded
        said = recorded.human(id)
        draft.human = said is None or said
        if said is not None or told_as(id) in self._forced:
            return
        with self._meter.deadline(speech.author):
            question = question_of(
                game=self._index,
                draft=draft,
                sampling=speech.options,
                asked=speech.asked._replace(to=speech.to),
                model=speech.model,
            )
            question = replace(question, to=speech.to)
            words = recorded.typed.get(id)
            if words is None or question.fault(words):
                words = await seats.ask(question)
        self._sink(Typed(self._index, id, words))
        draft.typed = words

    async def _decode(self, speech: Speech, draft: Draft, sampling: Sampling, told: Listener, model: GameModel) -> None:
        forced, thinks = self._known(draft, model)
        thinks = thinks and model.frames.framing.thinking is not None and not speech.forms and not speech.peek
        most = self._left(draft)  # not a part of what is checked: a refusal would tell it
        on = model.resolver
        author = draft.metadata.author or SCENARIO
        branch = self._messages.rounds.branch

        def done(result: RequestResult) -> None:
            if self._journal.outdated:
                self._models.own.choreographer.release(self._journal.take_outdated())
            self._publish(turn.thought, draft, branch)

        turn = DecodeTurn(
            self._index,
            draft,
            on,
            journal=self._journal,
            sink=self._sink,
            begin_thought=partial(self._messages.thoughts.begin, shared=speech.shares),
            hooks=TurnHooks(flush=self._flush, text=told, begun=None if branch is None else branch.said.add, done=done),
            out=self._messages.rounds.visible(),
            sampling=sampling,
            forced=forced,
            most=most,
            forms=speech.forms,
            thinks=thinks,
        )
        order, priority = (self._index, author, speech.turn), self._messages.roster.agents[author].priority
        with self._meter.deadline(author):
            await turn.run(model.choreographer, order, SchedulingPriority(str(self._index), priority))

    def _left(self, draft: Draft) -> int | None:
        """Return how many tokens all agents together may still sample. Raises `LimitReached` if there are none: others
        may have used them up since the turn began."""
        left = self._meter.all_left()
        if left is not None and left < 1 and draft.typed is None:
            self._meter.check(draft.metadata.author or SCENARIO)
        return left

    def check_limits(self, author: str) -> None:
        """Raise `LimitReached` if an agent or the game has no tokens or messages left."""
        self._meter.check(author)

    def _known(self, draft: Draft, model: GameModel) -> tuple[tuple[int, ...] | None, bool]:
        """Return the token ids of a message if they are known, and whether it may contain a thought."""
        id, recorded = draft.metadata.id, self._messages.recorded
        if draft.typed is not None:
            return tuple(model.frames.framing.content.encode(draft.typed)), False
        thought = thought_of(id)
        whole = self._forced.get(told_as(thought))
        whole = recorded.words(thought) if whole is None and told_as(id) not in self._forced else whole
        if whole is not None:
            return whole, True
        forced = self._forced.get(told_as(id))
        forced = recorded.words(id) if forced is None else forced
        return forced, forced is None

    def _publish(self, thought: Draft | None, draft: Draft, branch: Branch | None) -> None:
        """Publish a message, after its thought."""
        rounds = self._messages.rounds
        if thought is not None:
            rounds.publish(thought.metadata, branch)
            rounds.precedence.said(thought.metadata.id, thought.act.after)
        rounds.publish(draft.metadata, branch)

    def _shares(self, author: str, agent: Agent) -> bool:
        """Return whether readers of an agent's messages may read its thoughts.

        Raises `RequestError` for an invalid value.
        """
        wish = agent.shares_thoughts
        return (
            self._thoughts == "audience"
            if wish is None
            else value_checks.checked_bool(wish, f"shares_thoughts of {author}")
        )

    async def _ask(
        self, port: TextPort, shares: bool, draft: Draft, sampling: Sampling, told: Listener, model: GameModel
    ) -> None:
        """Generate the message on a model behind an API."""
        id = draft.metadata.id
        branch = self._messages.rounds.branch
        sink = self._sink
        call = self._endpoints.call(draft, sampling, self._left(draft))
        known = self._messages.recorded.text(id, self._forced.get(told_as(id)), model.frames.framing.content)
        if draft.typed is not None:
            known = KnownText(draft.typed, "forced", MessageUsage(0, 0, 0.0, 0.0))
        with self._meter.deadline(draft.metadata.author):
            if branch is not None:
                branch.said.add(id)
            begin = partial(self._messages.thoughts.begin, shared=shares)
            turn = TextTurn(
                game=self._index,
                draft=draft,
                journal=self._journal,
                sink=sink,
                flush=self._flush,
                listen=told,
                begin_thought=begin,
            )
            thought = self._messages.recorded.text(thought_of(id), None, model.frames.framing.content)
            await (turn.ask(port, call) if known is None else turn.say(known, thought))
            self._publish(turn.thought, draft, branch)

    def sampling(self, author: str, options: SamplingOptions, turn: int, step: int = 0) -> Sampling:
        """Return the run's defaults with the call's options, the seed of that step of the author's turn, and its tokens
        left."""
        base = self._defaults | {"seed": coin_seed(self._seed, self._index, author, turn, step)}
        try:
            sampling = Sampling(**{**base, **options})
        except RequestError as error:
            raise RequestError(f"{author}: {error}", error.field) from error
        left = self._meter.tokens_left(author)
        if left is None or sampling.choices or sampling.json_schema:
            return sampling
        return sampling.limited(left)


def _written(asked: Utterance, options: Sampling) -> CodeText:
    """Return what the playing code wrote of a message: its header, what it offers, and what stands around a choice."""
    choices = options.choices or ()
    around = tuple(choice.replace(label, " ", 1) for choice, label in zip(choices[:1], asked.labels, strict=False))
    offered = asked.labels or choices
    if options.json_schema is not None:
        offered = words_of(options.json_schema)
    return CodeText((asked.header, *around), offered)


def _value(asked: Utterance, options: Sampling, said: Message) -> ReturnedValue | None:
    """Return the value that the verb returns for a message, or None if it returns the message itself."""
    if asked.labels:
        labels = dict(zip(options.choices or (), asked.labels, strict=False))
        return ReturnedValue((labels.get(said.text, said.text),))
    return (
        None if asked.form is None else of_json(said.text.removeprefix(asked.header), known_words(options.json_schema))
    )


def coin_seed(seed: int, game: int, author: str, turn: int, step: int = 0) -> int:
    """Return the seed of one turn, or of a later step of it, 63 bits.

    It depends on the run's seed, the game's number, the author, the number of the author's turn and of the step in it.
    It depends neither on turns of others nor on how many steps earlier turns had.
    """
    framed = f"{seed}/{game}/{len(author)}/{author}/{turn}{f'/{step}' if step else ''}".encode()
    return int.from_bytes(hashlib.blake2b(framed, digest_size=8, person=b"agentcho.turn").digest()) >> 1

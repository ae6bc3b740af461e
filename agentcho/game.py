"""One play: its cast, what has been said in it and who may read it, and the way of one turn to the choreographer.

Views and policies are asked for metadata, once a turn; the answer is a read set that nothing widens. Does not
know: engines, records, how a scenario plays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentcho.agent import Agent, Names
from agentcho.choreographer import Choreographer, Made, Request, Result
from agentcho.config import RunConfig
from agentcho.errors import AudienceError, BadSampling, LeakageError, LimitReached
from agentcho.events import Began, Ended, Event, Joined, Over, Sink, Token
from agentcho.limits import Meter
from agentcho.message import Audience, Kind, Message, Metadata, Role, audience
from agentcho.provenance import EncodingRecord, Ledger
from agentcho.request import Call, Decode, Sampling
from agentcho.resolver import Missing, Resolver, Utterance
from agentcho.transcript import Entry, Usage
from agentcho.visibility import Policy, Read, ReadSet, View, audience_policy, read_set

if TYPE_CHECKING:
    from agentcho.scenario import Scenario

SCENARIO = "scenario"
NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass
class _Seat:
    """A player's place in a simultaneous round: what was said before it, and its own moves so far."""

    before: list[Utterance]
    moves: list[Utterance] = field(default_factory=list)


class Game:
    """One game. Made by the runtime; scenarios get it in `play`.

    `random` choices of a scenario should come from `seed`. `sink` gets events as they happen. `find_agent`
    turns a name into an agent class, for `cast`.
    """

    def __init__(
        self, choreographer: Choreographer, index: int = 0, seed: int = 0, config: RunConfig | None = None,
        policy: Policy = audience_policy, sink: Sink | None = None,
        find_agent: Callable[[str], type[Agent]] | None = None,
    ) -> None:  # fmt: skip
        self._choreographer, self.index, self.seed = choreographer, index, seed
        self.config = config or RunConfig()
        self._policy, self._sink, self._find = policy, sink or _nobody, find_agent
        self.agents: dict[str, Agent] = {}
        self._resolver = Resolver(choreographer.mode)
        self._ledger = Ledger()
        self._said: list[Utterance] = []
        self._numbers: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._held: list[int] = []
        self._meter = Meter(self.config.limits)
        self._seat: ContextVar[_Seat | None] = ContextVar("seat", default=None)

    # -- the cast ----------------------------------------------------------------------------------------

    def cast(self, agent: str | type[Agent] | Agent, name: str | None = None, **attributes: Any) -> Agent:
        """Let an agent join: a class, the name of one in the library, or an instance. Names are never reused."""
        if isinstance(agent, str):
            if self._find is None:
                raise AudienceError(f"no library to find agent {agent!r} in", self.agents)
            agent = self._find(agent)
        player = agent if isinstance(agent, Agent) else agent(name or agent.role, **attributes)
        self._check_name(player.name)
        self.agents[player.name] = player
        player._game = self
        self._sink(Joined(self.index, player.name, player.role))
        if player.system is not None:
            private = Audience(frozenset({player.name}))
            self._put(player.name, "system", private, player.system, ReadSet(player.name, (), None, ()))
        return player

    def _check_name(self, name: str) -> None:
        if not NAME.fullmatch(name) or name in {SCENARIO, "everyone"}:
            raise AudienceError(f"{name!r} cannot name an agent (lower-case letters, digits, - and _)", self.agents)
        if name in self.agents:
            raise AudienceError(f"an agent named {name!r} has joined already", self.agents)

    # -- what has been said ------------------------------------------------------------------------------

    @property
    def said(self) -> tuple[Metadata, ...]:
        """Metadata of all messages that are out, in order."""
        return tuple(utterance.metadata for utterance in self._visible())

    def message(self, id: str) -> Message:
        """A finished message with its words. KeyError: no such message, or not encoded yet."""
        message = self._resolver.utterances[id].message
        if message is None:
            raise KeyError(id)
        return message

    async def announce(self, text: str, to: Names = "everyone", role: Role = "user") -> str:
        """A message of the scenario itself; returns its id. Encoded when first read."""
        return self._put(SCENARIO, role, audience(to, self.agents), text, ReadSet(SCENARIO, (), None, ()))

    def tell(self, agent: Agent, text: str, to: Names, role: str) -> str:
        """An agent's message of known text; see `Agent.tell`."""
        reads = self._reads(agent, None)
        return self._put(agent.name, role, self._audience(agent, to), text, reads)

    def _visible(self) -> list[Utterance]:
        seat = self._seat.get()
        return self._said if seat is None else seat.before + seat.moves

    def _publish(self, utterance: Utterance, seat: _Seat | None) -> None:
        (self._said if seat is None else seat.moves).append(utterance)

    def _put(self, author: str, role: str, to: Audience, text: str, reads: ReadSet) -> str:
        """Publish a message of known text; its encoding is made by the first call that reads it."""
        utterance = self._utterance(author, "prefill", role, to, text, reads)
        self._publish(utterance, self._seat.get())
        return utterance.metadata.id

    def _utterance(self, author: str, kind: Kind, role: Any, to: Audience, text: str, reads: ReadSet) -> Utterance:
        number = self._numbers.get(author, 0)
        self._numbers[author] = number + 1
        who = None if author == SCENARIO else author
        parents = tuple(read.id for read in reads.reads)
        metadata = Metadata(f"{author}.{number}", kind, role, who, to, parents)
        utterance = Utterance(metadata, text, author if role == "assistant" else None, reads)
        self._resolver.utterances[metadata.id] = utterance
        return utterance

    # -- acting together ---------------------------------------------------------------------------------

    async def together(self, *moves: Coroutine[Any, Any, Any]) -> list[Any]:
        """A simultaneous round: all act on what was said before it; their moves come out at its end, in order."""
        before = list(self._visible())
        seats = [_Seat(before) for _ in moves]
        outer = self._seat.get()
        try:
            return await self._choreographer.turns.together(
                *(self._seated(seat, move) for seat, move in zip(seats, moves, strict=True))
            )
        finally:
            for move in moves:
                move.close()
            for seat in seats:
                for utterance in seat.moves:
                    self._publish(utterance, outer)

    async def _seated(self, seat: _Seat, move: Coroutine[Any, Any, Any]) -> Any:
        self._seat.set(seat)
        return await move

    # -- one turn ----------------------------------------------------------------------------------------

    async def speak(
        self, agent: Agent, to: Names, prompt: str | None, header: str, view: View | None,
        sampling: dict[str, Any], on_token: Callable[[str], None] | None = None,
    ) -> Message:  # fmt: skip
        """One message of an agent, from its view to the transcript; see `Agent`."""
        self._meter.check(agent.name)
        options = self._sampling(agent.name, sampling)
        spoken_to = self._audience(agent, to)
        reads = self._reads(agent, view)
        await self._encode_first(self._resolver.placed_after(reads), agent.name)
        if prompt is not None:
            private = Audience(frozenset({agent.name}))
            asked = self._put(agent.name, "user", private, prompt, reads)
            reads = reads._replace(reads=(*reads.reads, Read(asked, reads.new_at)), new_at=None)
        utterance = self._utterance(agent.name, "decode", "assistant", spoken_to, header, reads)
        self._sink(Began(self.index, utterance.metadata.id, agent.name, "decode", spoken_to, header))
        await self._decode(utterance, options, on_token)
        self._meter.check_after(agent.name)
        assert utterance.message is not None
        return utterance.message

    async def _decode(self, utterance: Utterance, sampling: Sampling, on_token: Callable[[str], None] | None) -> None:
        resolved = self._resolver.resolve(utterance.reads)
        call = Decode(utterance.text, resolved.parents, resolved.offsets, resolved.new_offset, sampling, utterance.name)
        author, id, seat = utterance.metadata.author or SCENARIO, utterance.metadata.id, self._seat.get()

        def piece(text: str) -> None:
            self._sink(Token(self.index, id, text))
            if on_token is not None:
                on_token(text)

        def done(result: Result) -> None:
            self._enter(resolved.missing, utterance, result, author)
            self._publish(utterance, seat)

        calls: tuple[Call, ...] = (*(missing.call for missing in resolved.missing), call)
        order = (self.index, author, self._turns[author])
        with self._meter.deadline(author):
            await self._choreographer.run(Request(calls, order, piece, done))

    def _reads(self, agent: Agent, view: View | None) -> ReadSet:
        """Ask policy and view once, for metadata alone."""
        said = self.said
        allowed = self._policy(agent.name, said)
        reads = read_set(agent.name, view or agent.view(allowed), allowed, said)
        if reads.direct and self._choreographer.leakage != "audit":
            raise LeakageError(agent.name, reads.direct[0])
        return reads

    def _audience(self, agent: Agent, to: Names) -> Audience:
        given = audience(to, self.agents)
        return given if given.members is None else Audience(given.members | {agent.name})

    def _sampling(self, author: str, options: dict[str, Any]) -> Sampling:
        """The run's defaults, the call's own options, a coin seed of the author's own turn, tokens left."""
        turn = self._turns[author] = self._turns.get(author, -1) + 1
        base = self.config.sampling.model_dump() | {"seed": coin_seed(self.seed, self.index, author, turn)}
        try:
            sampling = Sampling(**(base | options))
        except ValueError as error:
            raise BadSampling(f"{author}: {error}", "see Sampling for the options and their ranges") from error
        left = self._meter.tokens_left(author)
        if left is None or sampling.choices or sampling.json_schema:
            return sampling
        return sampling.model_copy(update={"max_tokens": min(left, sampling.max_tokens)})

    # -- the books ---------------------------------------------------------------------------------------

    def _enter(self, missing: Sequence[Missing], utterance: Utterance | None, result: Result, caller: str) -> None:
        """Take the encodings of a finished request in, and write the messages that are whole with it."""
        again: list[EncodingRecord] = []
        for lack, made in zip(missing, result.made, strict=False):
            record = self._record(lack.message, lack.path, made, caller)
            lacked = self._resolver.utterances[lack.message]
            if lacked.message is None:
                lacked.message = self._message(lacked, made)
                self._write(lacked, (record,), result, (made,))
            else:
                again.append(record)
        if utterance is not None:
            made = result.made[-1]
            path = (*(read.id for read in utterance.reads.reads), utterance.metadata.id)
            utterance.message = self._message(utterance, made)
            record = self._record(utterance.metadata.id, path, made, caller)
            self._meter.count(utterance.message)
            self._write(utterance, (*again, record), result, result.made)

    def _record(self, message: str, path: tuple[str, ...], made: Made, caller: str) -> EncodingRecord:
        """`caller` is whose prompt a baseline encoding stands in; an author's encoding is its author's."""
        if self._resolver.mode == "baseline":
            record = self._ledger.record(made.id, message, caller, "baseline", made.receipt)
        else:
            author = self._resolver.utterances[message].metadata.author
            record = self._ledger.record(made.id, message, author, "author", made.receipt)
        self._resolver.enter(message, record.recipe, path, made.id)
        self._resolver.bos = made.receipt.bos
        self._held.append(made.id)
        return record

    def _message(self, utterance: Utterance, made: Made) -> Message:
        data, words, reads = utterance.metadata, made.words, utterance.reads
        places = [read.at if isinstance(read.at, int) else None for read in reads.reads]
        asked = any(place is not None for place in places)
        return Message(
            data.id, self.index, data.kind, data.role, data.author, data.audience, data.parents, words.header,
            words.text, words.tokens, words.content, words.sampled, words.name,
            tuple(places) if asked else None, reads.new_at if isinstance(reads.new_at, int) else None, words.stopped,
        )  # fmt: skip

    def _write(
        self, utterance: Utterance, made: tuple[EncodingRecord, ...], result: Result, calls: Iterable[Made]
    ) -> None:
        message = utterance.message
        assert message is not None
        fresh = {call.id for call in result.made}
        reused = sum(e.length for e in made[-1].receipt.context if e.id not in fresh)
        usage = Usage(sum(len(call.words.tokens) for call in calls), reused, result.ttft, result.seconds)
        self._sink(Ended(Entry(message, made[-1].id, made, utterance.reads.direct, usage)))

    async def _encode_first(self, ids: Iterable[str], author: str) -> None:
        """Encode messages now, because a position counts from their end or because the game is over."""
        for id in ids:
            utterance = self._resolver.utterances[id]
            if utterance.message is None:
                reads = utterance.reads._replace(reads=(*utterance.reads.reads, Read(id)))
                missing = self._resolver.resolve(reads).missing
                request = Request(tuple(lack.call for lack in missing), (self.index, author, -1))
                self._enter(missing, None, await self._choreographer.run(request), author)

    # -- the whole ---------------------------------------------------------------------------------------

    async def play(self, scenario: Scenario) -> Over:
        """Play a scenario to its end, or to a limit, which is an outcome too. Gives up all encodings."""
        return await self._choreographer.turns.run(self._play(scenario))

    async def _play(self, scenario: Scenario) -> Over:
        self._meter.start()
        outcome, ended = None, None
        try:
            with self._meter.deadline(None):
                outcome = await scenario.play(self)
        except LimitReached as limit:
            ended = f"limit: {limit.who} {limit.value:g} {limit.limit}"
        try:
            await self._encode_first(list(self._resolver.utterances), SCENARIO)
        finally:
            self._choreographer.release(self._held)
        score = {} if outcome is None else scenario.score(outcome)
        shown = None if outcome is None else outcome.model_dump(mode="json")
        over = Over(self.index, shown, score, ended, self._meter.elapsed())
        self._sink(over)
        return over


def coin_seed(seed: int, game: int, author: str, turn: int) -> int:
    """The seed of one turn's coins: of its author and that author's own turn, and of nobody else's."""
    framed = f"{seed}/{game}/{len(author)}/{author}/{turn}".encode()
    return int.from_bytes(hashlib.blake2b(framed, digest_size=8, person=b"agentcho.turn").digest()) >> 1


def _nobody(event: Event) -> None:
    """A sink that nobody reads."""

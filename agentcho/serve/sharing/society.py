"""A society: agents that share messages through one cache, each request one turn of one of them.

Every society is a run on record. When a game of it has become long another begins, so that a society of any length
keeps as much as a short one. Does not know: HTTP, keys.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple

import anyio

from agentcho.choreography.choreographer import Choreographer
from agentcho.config import ReusePolicy
from agentcho.errors import RecordError
from agentcho.events import Event, FirstToken, Sink, Token
from agentcho.message import EVERYONE, Audience, Words, agent_name
from agentcho.protocol.call import SchedulingPriority
from agentcho.records.record import Status
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Answers, Caller, ChatRequest, Hear, Sharing, TokenUsage
from agentcho.serve.sharing.answer_stream import AnswerStream, all_said
from agentcho.serve.sharing.conversation import AnswerContext, PromptSender, SocietyConversation, missed
from agentcho.serve.sharing.message_index import Reader
from agentcho.serve.sharing.request_prompt import FramedMessage, prompt_of, room_for, samplings, speaker, tokenised

LOG = logging.getLogger("agentcho.serve")
UNNAMED = "~"
"""The names of agents that gave none begin so, and none that is given may."""


class RetentionLimits(NamedTuple):
    """How much is kept. `tokens`: encoded in one society. `messages`: in one game of it, twice as many where it is
    never quiet. `most`: tokens of an answer
    where the request does not say. `capacity`: tokens that the engine's store has room for."""

    tokens: int = 1 << 18
    messages: int = 4096
    most: int = 2048
    capacity: int = 1 << 40


class SocietyRecording(NamedTuple):
    """Where a society's events go: `sink` hears them, `spoke_for` for whom a key spoke, `flush` puts on record what was
    said, `close` ends the record."""

    sink: Sink
    spoke_for: Callable[[str, str], None]
    flush: Callable[[], None]
    close: Callable[[Status], None]

    @classmethod
    def later(cls, create: Callable[[], SocietyRecording]) -> SocietyRecording:
        """One that `create` begins when the first token is sampled, with all that was heard until then. Nothing is
        recorded where that never comes."""
        made, waiting = list[SocietyRecording](), list[Callable[[SocietyRecording], None]]()

        def tell(what: Callable[[SocietyRecording], None], begins: bool = False) -> None:
            if begins and not made:
                made.append(create())
                for each in waiting:
                    each(made[0])
            if made:
                what(made[0])
            else:
                waiting.append(what)

        return cls(
            lambda event: tell(lambda into: into.sink(event), isinstance(event, FirstToken | Token)),
            lambda key, agent: tell(lambda into: into.spoke_for(key, agent)),
            lambda: tell(lambda into: into.flush()),
            lambda status: tell(lambda into: into.close(status)),
        )


class Society:
    """One society, on one choreographer. `salt` is secret: nothing is shared with whoever has another. `user_messages`:
    whether these are everyone's where a request does not say. `broken`: its record could not be written, so that it
    cannot go on; end it."""

    def __init__(
        self,
        choreographer: Choreographer,
        reuse: ReusePolicy,
        salt: str,
        keeping: RetentionLimits,
        recording: SocietyRecording,
        user_messages: Sharing = "shared",
    ) -> None:
        self._choreographer = choreographer
        self.reuse = reuse
        self._salt = salt
        self._keeping = keeping
        self._recording, self._frames = recording, choreographer.frames
        self._user_messages: Sharing = user_messages
        self._talk = self._game(0, None)
        self._requests, self._quiet = 0, anyio.Event()
        self.begun = False
        self.turns = 0
        self.used = monotonic()
        self.broken = False

    @property
    def agents(self) -> list[str]:
        """Who has asked for something in its present game."""
        return sorted(self._talk.agents)

    def missed(self, agent: str | None = None) -> dict[str, int]:
        """How many tokens of prompts were new in its present game, by the reasons of `Miss`; None: of all agents."""
        by_agent = self._talk.missed
        found = by_agent.values() if agent is None else [by_agent.get(agent, Counter[str]())]
        return dict(sorted(sum(found, Counter[str]()).items()))

    @property
    def messages(self) -> int:
        """How many there are in its present game."""
        return len(self._talk)

    @property
    def tokens(self) -> int:
        """Tokens that are encoded and held."""
        return self._talk.tokens

    async def answer(
        self, caller: Caller, request: ChatRequest, hear: Hear, turn: SchedulingPriority, exact: bool = False
    ) -> Answers:
        """Read a request, say what it asks for, and keep both. `exact`: in the deterministic profile, whatever the
        society's own is. Cancelled: what was said so far is on record, and its rows are freed at the next step."""
        try:
            await self._turn_page()
            return await self._counted(caller, request, hear, turn, exact)
        except RecordError:
            self.broken = True
            raise

    async def _counted(
        self, caller: Caller, request: ChatRequest, hear: Hear, turn: SchedulingPriority, exact: bool
    ) -> Answers:
        self._requests += 1
        try:
            return await self._answer(caller, request, hear, turn, exact)
        finally:
            self._requests -= 1
            self.turns, self.used = self.turns + 1, monotonic()
            self.forget(self._keeping.tokens)
            if not self._requests:
                self._quiet.set()

    async def _answer(
        self, caller: Caller, request: ChatRequest, hear: Hear, turn: SchedulingPriority, exact: bool
    ) -> Answers:
        reader, audience = self._reader(caller, request), self._audience(request)
        talk, frames = self._talk, self._frames
        prompt = await tokenised(request, lambda: prompt_of(request, frames))
        to = Audience(None) if audience is None else Audience(audience | {reader.agent})
        private = (request.user_messages or self._user_messages) == "private"
        brings = PromptSender(reader, to, private, request.history == "shared")
        words = await self._words(request, talk.unknown(prompt, reader)) if request.is_long else {}
        matched = talk.matched(prompt, brings, words)
        name = speaker(reader.agent, "assistant", frames)
        room = room_for(
            request=request, lengths=talk.lengths(matched), speaker=name, frames=frames, limit=self._keeping.capacity
        )
        options = samplings(request, room.most(request.max_tokens, self._keeping.most, request.least), frames)
        self._recording.spoke_for(caller.key or "no key", reader.agent)
        talk.join(reader.agent, "named" if reader.proven else "unnamed")
        reads = talk.reads(matched, reader)
        speeches = [AnswerStream(n, request, hear, frames) for n in range(request.choices)]
        hows = (
            AnswerContext(*each, turn, self._recording.flush, exact) for each in zip(options, speeches, strict=True)
        )
        said = await all_said([talk.say(reads, to, request, how) for how in hows])
        answers = tuple(s.answer(each.words) for s, each in zip(speeches, said, strict=True))
        reused = min((each.reused for each in said), key=sum)
        completion, pondered = (
            sum(counted) for counted in zip(*((a.sampled, a.pondered) for a in answers), strict=True)
        )
        lacked = tuple(sorted(missed(matched).items()))
        return Answers(
            answers,
            TokenUsage(
                prompt=room.prompt,
                completion=completion,
                exact=reused.exact,
                reused=reused.by_message,
                missed=lacked,
                pondered=pondered,
            ),
        )

    async def _words(self, request: ChatRequest, new: Sequence[FramedMessage]) -> dict[FramedMessage, Words]:
        """The words of messages that are new, before it is settled which are."""
        return await tokenised(request, lambda: {framed: framed.words(self._frames) for framed in new})

    def _reader(self, caller: Caller, request: ChatRequest) -> Reader:
        """The agent that asks. Without a name it is known by a keyed hash of its client and its leading system
        messages: two clients may well begin with the same ones, and are two."""
        if caller.agent is not None:
            if caller.agent.startswith(UNNAMED):
                raise ApiError(400, f"the name of an agent cannot begin with {UNNAMED}", "agentcho.agent")
            return Reader(agent_name(caller.agent), True)
        leading = list[str]()
        for message in request.messages:
            if message.role != "system":
                break
            leading.append(message.text)
        if not leading and not caller.key:
            return Reader(UNNAMED + "unknown", False)
        framed = "".join(f"{len(text)}:{text}" for text in (caller.key, *leading)).encode(errors="surrogatepass")
        return Reader(UNNAMED + hmac.new(self._salt.encode(), framed, hashlib.sha256).hexdigest()[:10], False)

    @staticmethod
    def _audience(request: ChatRequest) -> frozenset[str] | None:
        """The names that are given; None: everyone. `AudienceError`: one of them cannot be a name."""
        given = request.audience
        if given is None or given == (str(EVERYONE),):
            return None
        return frozenset(agent_name(name) for name in given)

    # -- what is kept ------------------------------------------------------------------------------------

    def forget(self, tokens: int) -> None:
        """Give up encodings that were not read for long, until so many tokens are held, or all others are in use."""
        self._talk.forget(tokens)

    async def _turn_page(self) -> None:
        """Begin another game where this one is long and no request is under way; wait for those that are where it is
        twice as long, so that an answer that takes long keeps nobody waiting."""
        while len(self._talk) >= self._keeping.messages:
            if not self._requests:
                self._talk.end()
                self._talk = self._game(self._talk.game + 1, self._talk)
                return
            if len(self._talk) < 2 * self._keeping.messages:
                return
            if self._quiet.is_set():
                self._quiet = anyio.Event()
            await self._quiet.wait()

    def _game(self, number: int, earlier: SocietyConversation | None) -> SocietyConversation:
        return SocietyConversation(
            game=number,
            choreographer=self._choreographer,
            reuse=self.reuse,
            sink=self._hear,
            salt=self._salt,
            earlier=earlier,
        )

    def _hear(self, event: Event) -> None:
        """Put an event on record. The first token of all says that a request is accepted."""
        self.begun = self.begun or isinstance(event, FirstToken | Token)
        self._recording.sink(event)

    def end(self) -> None:
        """Give everything up and end the record. One that cannot be written is left as it is: whoever asks for
        something while this society ends has nothing to do with it."""
        try:
            self._talk.end()
        except RecordError:
            self.broken = True
        try:
            self._recording.close("failed" if self.broken else "done")
        except RecordError as error:
            LOG.warning("the record of a society could not be ended: %s", type(error).__name__)

"""A society: agents that share messages through one cache. Each request is one turn of one of them.

Every society is a recorded run. When a game has become long, the society begins another, so that a society of any
length takes as much memory as a short one. Independent of HTTP and keys.
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
from agentcho.serve.request import Answer, Answers, Caller, ChatRequest, Hear, Sharing, TokenUsage
from agentcho.serve.sharing.answer_stream import AnswerStream, all_said
from agentcho.serve.sharing.conversation import AnswerContext, PromptSender, SocietyConversation, missed
from agentcho.serve.sharing.message_index import Reader
from agentcho.serve.sharing.request_prompt import FramedMessage, prompt_of, room_for, samplings, speaker, tokenised
from agentcho.serve.sharing.reuse_counts import ReuseCounts

LOG = logging.getLogger("agentcho.serve")
UNNAMED = "~"
"""The prefix of the names of agents that gave none. No given name may begin with it."""


class RetentionLimits(NamedTuple):
    """How much is kept. `tokens`: encoded tokens of one society. `messages` and `words`: messages in one of its games,
    and their tokens, encoded or not; twice as many if requests are running all the time. `most`: tokens of an answer if
    the request does not say. `capacity`: tokens that the engine's store has room for."""

    tokens: int = 1 << 18
    messages: int = 4096
    words: int = 1 << 22
    most: int = 2048
    capacity: int = 1 << 40


class SocietyRecording(NamedTuple):
    """Where a society's events go. `sink` receives them, `spoke_for` notes for whom a key spoke, `flush` writes what
    was said, `close` ends the record."""

    sink: Sink
    spoke_for: Callable[[str, str], None]
    flush: Callable[[], None]
    close: Callable[[Status], None]

    @classmethod
    def later(cls, create: Callable[[], SocietyRecording]) -> SocietyRecording:
        """A recording that `create` begins when the first token is sampled, with everything received until then. If no
        token is sampled, nothing is recorded."""
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
    """One society, on one choreographer. `salt` is secret: nothing is shared with holders of another salt.
    `user_messages`: whether user messages are for everyone if a request does not say. `turns`: the number of requests
    that were answered, or for which a token was sampled. `broken`: its record could not be written, so it cannot go on;
    end it."""

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
        """The agents that have sent requests in its current game."""
        return sorted(self._talk.agents)

    def missed(self, agent: str | None = None) -> dict[str, int]:
        """The number of prompt tokens that were new in its current game, by the reasons of `Miss`. None: those of all
        agents."""
        by_agent = self._talk.missed
        found = by_agent.values() if agent is None else [by_agent.get(agent, Counter[str]())]
        return dict(sorted(sum(found, Counter[str]()).items()))

    @property
    def messages(self) -> int:
        """The number of messages in its current game."""
        return len(self._talk)

    @property
    def tokens(self) -> int:
        """The number of tokens encoded and held."""
        return self._talk.tokens

    async def answer(
        self, caller: Caller, request: ChatRequest, hear: Hear, turn: SchedulingPriority, exact: bool = False
    ) -> Answers:
        """Read a request, generate its answers, and keep both. `exact`: in the deterministic profile, even if the
        society's own differs. If cancelled, what was said so far is on record, and its rows are freed at the next
        step."""
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
            self.used = monotonic()
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

        async def say(how: AnswerContext) -> tuple[Answer, ReuseCounts]:
            said = await talk.say(reads, to, request, how)
            return how.speech.end(said.words), said.reused

        try:
            said = await all_said(map(say, hows))
        except BaseException:  # a cancellation too
            self.turns += any(speech.begun for speech in speeches)
            raise
        self.turns += 1
        answers = tuple(answer for answer, _ in said)
        reused = min((reused for _, reused in said), key=sum)
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
        """The words of new messages, computed before they are matched."""
        return await tokenised(request, lambda: {framed: framed.words(self._frames) for framed in new})

    def _reader(self, caller: Caller, request: ChatRequest) -> Reader:
        """The agent that sends a request. An agent without a name is identified by a keyed hash of its client and its
        leading system messages: two clients may begin with the same ones and still are two."""
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
        """The given names, None for everyone. `AudienceError`: one of them is not a valid name."""
        given = request.audience
        if given is None or given == (str(EVERYONE),):
            return None
        return frozenset(agent_name(name) for name in given)

    # -- retention ---------------------------------------------------------------------------------------

    def forget(self, tokens: int) -> None:
        """Drop the least recently read encodings until at most `tokens` tokens are held, or all others are in use."""
        self._talk.forget(tokens)

    async def _turn_page(self) -> None:
        """Begin another game if this one is long and no request is running. If it is twice as long, wait for the
        running requests; until then a slow answer keeps nobody waiting."""
        while (full := max(len(self._talk) / self._keeping.messages, self._talk.words / self._keeping.words)) >= 1:
            if not self._requests:
                self._talk.end()
                self._talk = self._game(self._talk.game + 1, self._talk)
                return
            if full < 2:
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
        """Record an event. The first token shows that a request was accepted."""
        self.begun = self.begun or isinstance(event, FirstToken | Token)
        self._recording.sink(event)

    def end(self) -> None:
        """Release everything and end the record. A record that cannot be written is left as it is, without raising: the
        caller that happens to end this society did not cause it."""
        try:
            self._talk.end()
        except RecordError:
            self.broken = True
        try:
            self._recording.close("failed" if self.broken else "done")
        except RecordError as error:
            LOG.warning("the record of a society could not be ended: %s", type(error).__name__)

"""One game of a society: its messages, which of them can be quoted, and the handling of a request over its encodings.

Independent of keys, quotas and the location of records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, cast, get_args

from agentcho.choreography.choreographer import Choreographer
from agentcho.choreography.requests import FinishedCall, RequestResult
from agentcho.config import Limits, ReusePolicy
from agentcho.errors import RequestError
from agentcho.events import GameOver, Joined, Sink
from agentcho.games.play.decode_turn import DecodeTurn
from agentcho.games.play.journal import Journal
from agentcho.games.play.limits import Meter
from agentcho.games.play.messages import Thoughts
from agentcho.message import SCENARIO, Audience, Kind, Metadata, Part, Words
from agentcho.protocol.call import EncodingId, FramePort, Receipt, Sampling, SchedulingPriority
from agentcho.provenance.call_plans import DecodePlan
from agentcho.provenance.drafts import Draft
from agentcho.provenance.resolver import EXACT
from agentcho.provenance.views import Read, ReadSet
from agentcho.serve.request import ChatRequest
from agentcho.serve.sharing.answer_stream import AnswerStream, new_id
from agentcho.serve.sharing.message_index import (
    LEAST,
    MessageIndex,
    Miss,
    Owner,
    PromptPosition,
    QuotableMessage,
    QuotedAnswer,
    Reader,
    reads_as_others,
    strings,
)
from agentcho.serve.sharing.request_prompt import FramedMessage, calls_in, forms_of, speaker, thinks
from agentcho.serve.sharing.reuse_counts import EncodingPlaces, ReuseCounts

MOST_STRINGS = 64
"""Maximum number of strings of a JSON answer that are looked for in other messages."""
MOST_CUT = 1 << 18
"""Tokens of the latest split messages whose split is remembered. Others are split again."""
UNREAD = 64
"""Maximum number of answers encoded ahead for other readers that none of them has read. Beyond it, the first reader of
an answer has it encoded."""


class UnreadAnswer(NamedTuple):
    """An encoding for others of an answer by `author`, and what it was encoded over."""

    author: str | None
    receipt: Receipt


class PromptSender(NamedTuple):
    """The sender of a prompt, and who may read what is new in it. `audience`: the readers of what is for the society.
    `private`: user messages are for the sender alone. `shared`: quoted answers are for the society instead of the
    sender alone."""

    reader: Reader
    audience: Audience
    private: bool = False
    shared: bool = False

    def owner(self, role: str) -> Owner:
        """The owner of a new message. System messages, function results and answers that no model here gave are the
        sender's alone."""
        if (role == "user" and not self.private) or (role == "assistant" and self.shared):
            return None, self.audience
        return self.reader.agent, self.reader.own


class SplitMessage(NamedTuple):
    """A message that contains answers: the ids of its content, and the places of the answers."""

    ids: tuple[int, ...]
    inside: Sequence[QuotedAnswer]


class NewMessage(NamedTuple):
    """A message of a prompt, or a part of one, that the society does not have yet, and why. `carried`: the message of
    an earlier game of the society that it repeats. `said`: it counts as an answer."""

    framed: FramedMessage
    words: Words
    owner: Owner
    why: Miss
    carried: QuotableMessage | None = None
    said: bool = False


class AnswerContext(NamedTuple):
    """How an answer is generated: its options, its stream, its priority, and the function that writes records once a
    step. `exact`: in the deterministic profile, over encodings that were all made in it."""

    sampling: Sampling
    speech: AnswerStream
    turn: SchedulingPriority
    flush: Callable[[], None]
    exact: bool = False


class FinishedAnswer(NamedTuple):
    """The words of an answer, and how much of its prompt was encoded for others."""

    words: Words
    reused: ReuseCounts


class SocietyConversation:
    """Game number `game` of a society. `salt` is part of the names of its encodings, so that nothing is shared outside
    of it. `earlier` is the previous game: a message quoted from there is said again here, by its author, for its
    audience. `words` is the number of tokens of all its messages, `tokens` that of the encodings held."""

    def __init__(
        self,
        game: int,
        choreographer: Choreographer,
        reuse: ReusePolicy,
        sink: Sink,
        salt: str,
        earlier: SocietyConversation | None,
    ) -> None:
        self.game, self._choreographer, self._sink, self._reuse = game, choreographer, sink, reuse
        self._frames: FramePort = choreographer.frames
        self._meter = Meter(Limits())
        self._meter.start()
        self._journal = Journal(game, reuse, self._meter, sink, bos=self._frames.bos, salt=salt, frames=self._frames)
        self._resolver, self._places = self._journal.resolver, EncodingPlaces()
        self._thoughts = Thoughts(self._resolver.drafts)
        self._index = MessageIndex()
        self._earlier = None if earlier is None else earlier._index
        self._contents = {} if earlier is None else earlier._own_contents()
        self._cuts: dict[tuple[str, FramedMessage], SplitMessage] = {}
        self.agents: set[str] = set()
        self.missed: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._numbers = Counter[str]()
        self._in_use = Counter[str]()
        self._held: dict[str, int] = {}  # tokens by message, least recently read first
        self._unread: dict[EncodingId, UnreadAnswer] = {}  # encodings made for others
        self.tokens = self.words = self.turns = self._cut_tokens = 0

    def __len__(self) -> int:
        return len(self._resolver.drafts)

    def join(self, agent: str, how: str) -> None:
        """Note a request of an agent. At its first one the agent joins the cast."""
        if agent not in self.agents:
            self.agents.add(agent)
            self._sink(Joined(self.game, agent, how))

    # -- matching a prompt -------------------------------------------------------------------------------

    def matched(
        self, prompt: Sequence[FramedMessage], brings: PromptSender, words: Mapping[FramedMessage, Words]
    ) -> list[QuotableMessage | NewMessage]:
        """Match each message of a prompt: to a known message, a new one, or its parts. `words` are words that are
        already there. Changes nothing. `RequestError`: a text cannot be encoded."""
        before, found = PromptPosition(), list[QuotableMessage | NewMessage]()
        for framed in prompt:
            for each in self._meant(framed, brings, before, words):
                before.add(each.id if isinstance(each, QuotableMessage) else f"new {len(found)}")
                found.append(each)
        return found

    def unknown(self, prompt: Sequence[FramedMessage], reader: Reader) -> list[FramedMessage]:
        """The messages of a prompt that are new, as far as is known now."""
        before, found = PromptPosition(), list[FramedMessage]()
        for place, framed in enumerate(prompt):
            known = self._index.find(framed, reader, before)
            if known is None and _cut_by(framed, reader) not in self._cuts and self._carried(framed, reader) is None:
                found.append(framed)
            before.add(f"new {place}" if known is None else known.id)
        return found

    def _meant(
        self, framed: FramedMessage, brings: PromptSender, before: PromptPosition, words: Mapping[FramedMessage, Words]
    ) -> Sequence[QuotableMessage | NewMessage]:
        """Match one message of a prompt: known, new, or several parts."""
        reader = brings.reader
        known = self._index.find(framed, reader, before)
        if known is not None and not self._widened(known, brings):
            return [known]
        if known is None and (carried := self._carried(framed, reader)) is not None:
            return [self._again(carried)]
        if (cut := self._cuts.get(_cut_by(framed, reader))) is not None:
            return self._parts(framed, brings, cut)
        own = words.get(framed) or framed.words(self._frames)
        if self._reuse.mode != "baseline":
            if (like := self._restyled(framed, reader)) is not None:
                return [NewMessage(framed, own, (like.author, like.audience), "restyled")]
            if (cut := self._cut(framed, reader, own)) is not None:
                return self._parts(framed, brings, cut)
        why: Miss = "not_said_here" if known is not None else self._index.why(framed, reader, before)
        said = framed.role == "assistant" and brings.shared
        return [NewMessage(framed, own, brings.owner(framed.role), why, said=said)]

    @staticmethod
    def _widened(known: QuotableMessage, brings: PromptSender) -> bool:
        """Whether the sender now shares with the society what it had sent in private before."""
        own = known.role == "assistant" and not known.said and known.author == brings.reader.agent
        return brings.shared and own and not known.audience.covers(brings.audience)

    def _carried(self, framed: FramedMessage, reader: Reader) -> QuotableMessage | None:
        return None if self._earlier is None else self._earlier.find(framed, reader, PromptPosition())

    def _again(self, carried: QuotableMessage) -> NewMessage:
        tokens = self._contents[carried.public_id]
        framed = FramedMessage(
            carried.role, carried.text, carried.name, carried.public_id, tokens, carried.calls, carried.lead
        )
        owner = carried.author, carried.audience
        return NewMessage(framed, framed.words(self._frames), owner, "first_sent", carried, carried.said)

    @property
    def _indexes(self) -> list[MessageIndex]:
        return [self._index] if self._earlier is None else [self._index, self._earlier]

    def _restyled(self, framed: FramedMessage, reader: Reader) -> QuotableMessage | None:
        found = (index.restyled(framed, reader) for index in self._indexes)
        return next((known for known in found if known is not None), None)

    def _cut(self, framed: FramedMessage, reader: Reader, words: Words) -> SplitMessage | None:
        """Find the answers contained in a new message. The result stays in effect, whatever is said later. None: there
        are none."""
        ids = words.tokens[slice(*words.content)]
        found = next(filter(None, (index.inside(framed, ids, reader) for index in self._indexes)), None)
        if found is None:
            return None
        cut = self._cuts[_cut_by(framed, reader)] = SplitMessage(ids, found)
        self._cut_tokens += len(ids)
        while self._cut_tokens > MOST_CUT and len(self._cuts) > 1:
            self._cut_tokens -= len(self._cuts.pop(next(iter(self._cuts))).ids)
        return cut

    def _parts(
        self, framed: FramedMessage, brings: PromptSender, cut: SplitMessage
    ) -> list[QuotableMessage | NewMessage]:
        """Split a message into parts: what comes before, between and after the answers in it belongs to its sender, as
        the whole message would, and each answer is for all who may read it. Together they have the ids of the
        message."""
        owner, why = brings.owner(framed.role), self._index.why(framed, brings.reader, PromptPosition())
        pieces, at = list[tuple[str, tuple[int, ...], Owner, Miss]](), 0
        for known, start, stop in cut.inside:
            pieces.append(("part" if pieces else f"{framed.role}-begin", cut.ids[at:start], owner, why))
            pieces.append(("part", cut.ids[start:stop], (known.author, known.audience), "inside"))
            at = stop
        pieces.append((f"{framed.role}-end", cut.ids[at:], owner, why))
        parts = (self._part(*piece, framed.name, brings.reader) for piece in pieces)
        return [part for part in parts if isinstance(part, QuotableMessage) or part.words.tokens]

    def _part(
        self, role: str, ids: tuple[int, ...], owner: Owner, why: Miss, name: str | None, reader: Reader
    ) -> QuotableMessage | NewMessage:
        name = name if role.endswith("begin") else None
        if (known := self._index.part(role, name, ids, reader)) is not None:
            return known
        framed = FramedMessage(cast(Part, role), "", name, tokens=ids)
        words = framed.words(self._frames)
        return NewMessage(framed._replace(text=words.text), words, owner, why)

    def lengths(self, messages: Sequence[QuotableMessage | NewMessage]) -> int:
        """The number of tokens of all of them, framing included."""
        return sum(len(self._words(each).tokens) for each in messages)

    def _words(self, message: QuotableMessage | NewMessage) -> Words:
        if isinstance(message, NewMessage):
            return message.words
        known = self._resolver.drafts[message.id].message
        assert known is not None
        return known.words

    def reads(self, messages: Sequence[QuotableMessage | NewMessage], reader: Reader) -> ReadSet:
        """What a request reads, in order. New messages are entered first."""
        before, reads = PromptPosition(), list[Read]()
        self.missed[reader.agent].update(missed(messages))
        for message in messages:
            known = self._put(message, reader, before.key) if isinstance(message, NewMessage) else message
            reads.append(Read(known.id, None, reads_as_others(known, reader, before.key)))
            before.add(known.id)
        return ReadSet(reader.agent, tuple(reads), None, ())

    def _put(self, new: NewMessage, reader: Reader, before: bytes) -> QuotableMessage:
        """Enter a message of known text, or a part of one, that appears in a prompt for the first time."""
        framed, carried, (author, to) = new.framed, new.carried, new.owner
        part = framed.role in get_args(Part)
        if part and (known := self._index.part(framed.role, framed.name, framed.tokens or (), reader)) is not None:
            return known
        draft = self._draft(author, framed, to, ReadSet(author, (), None, ()))
        self._journal.enter_known(draft, new.words)
        self.words += len(new.words.tokens)
        public_id = new_id() if carried is None else carried.public_id
        known = self._known(draft, public_id, framed, before, new.said)
        if part:
            known = replace(known, tokens=framed.tokens or ())
        elif new.said:
            known = replace(known, quotable=self._quotable(framed, new.words))
        self._index.add(known)
        return known

    def _quotable(self, framed: FramedMessage, words: Words) -> tuple[tuple[int, ...], ...]:
        """The ids of the texts by which an answer is found in other messages: its words or, if these are JSON or
        function calls, also the strings in them. Texts that cannot be encoded are left out."""
        if self._reuse.mode == "baseline":
            return ()
        content = words.tokens[slice(*words.content)]
        whole = [] if framed.calls else [content if words.canonical else self._encoded(words.text)]
        documents = [call.arguments for call in framed.calls] or [words.text]
        inner = (text for document in documents for text in strings(document) if len(text) >= LEAST)
        return tuple(filter(None, [*whole, *(self._encoded(text) for text in islice(inner, MOST_STRINGS))]))

    def _encoded(self, text: str) -> tuple[int, ...]:
        try:
            text.encode()  # an escape in JSON may be half of a character
            return tuple(self._frames.framing.content.encode(text))
        except (RequestError, UnicodeEncodeError):
            return ()

    def _draft(
        self, author: str | None, framed: FramedMessage, to: Audience, reads: ReadSet, kind: Kind = "prefill"
    ) -> Draft:
        who, parents = author or SCENARIO, tuple(read.id for read in reads.reads)
        id = f"{who}.{self._numbers[who]}"
        self._numbers[who] += 1
        metadata = Metadata(id, kind, framed.role, author, to, parents)
        draft = Draft(metadata, framed.text, framed.name, reads)
        self._resolver.drafts[id] = draft
        return draft

    @staticmethod
    def _known(draft: Draft, public_id: str, framed: FramedMessage, before: bytes, said: bool) -> QuotableMessage:
        data = draft.metadata
        return QuotableMessage(
            data.id,
            public_id,
            data.role,
            framed.text,
            framed.name,
            data.author,
            data.audience,
            before,
            said,
            framed.calls,
            framed.lead,
        )

    def _own_contents(self) -> dict[str, tuple[int, ...]]:
        """The content ids of all messages, by public id."""
        contents = ((known.public_id, self._resolver.drafts[known.id].content) for known in self._index)
        return {id: content for id, content in contents if content is not None}

    # -- generating an answer ----------------------------------------------------------------------------

    async def say(self, reads: ReadSet, audience: Audience, request: ChatRequest, how: AnswerContext) -> FinishedAnswer:
        """Let the reader of `reads` say one message to an audience. If cancelled, what was said so far is on record."""
        author = reads.caller
        assert author is not None
        framed = FramedMessage("assistant", "", speaker(author, "assistant", self._frames))
        draft = self._draft(author, framed, audience, reads, "decode")
        on = self._journal.exactly() if how.exact else self._resolver
        said = list[FinishedAnswer]()

        def done(result: RequestResult) -> None:
            said.append(self._entered(turn, result, how.speech, request))

        turn = DecodeTurn(
            self.game,
            draft,
            on,
            journal=self._journal,
            sink=self._sink,
            begin_thought=self._thoughts.begin,
            hooks=how.speech.hooks(done, how.flush),
            shadow=len(self._unread) < UNREAD,
            sampling=how.sampling,
            logprobs=request.logprobs,
            forms=forms_of(request, self._frames),
            cut=True,
            thinks=thinks(request, self._frames, self._frames.framing.thinking),
        )
        self.turns += 1
        with self._using(reads, turn.plan):
            await turn.run(self._choreographer, (self.game, author, self.turns), how.turn)
        return said[0]

    def _entered(
        self, turn: DecodeTurn, result: RequestResult, speech: AnswerStream, request: ChatRequest
    ) -> FinishedAnswer:
        """Enter a complete answer: it can be quoted from now on. Its encodings are counted, except for those that
        another request made at the same time. What was encoded together with a thought is entered under the thought."""
        draft, encoded = turn.draft, (turn.thought or turn.draft).metadata.id
        missing, profile = turn.making.missing, EXACT if turn.making.on.reuse.deterministic else ""
        for needed, call in zip(missing, result.made, strict=False):
            self._made(needed.message, profile + needed.recipe, call)
        own = result.made[len(missing) :]
        for recipe, call in zip((turn.plan.recipe, "audience"), own, strict=False):
            self._made(encoded, profile + recipe, call)
        author = draft.metadata.author
        for needed, call in zip(missing, result.made, strict=False):
            self._read(call.receipt, author if needed.recipe == "author" else None)
        self._read(own[0].receipt, author)
        if len(own) > 1 or turn.plan.recipe == "audience":
            self._unread[own[-1].id] = UnreadAnswer(author, own[-1].receipt)
        generated, context = own[0].words, own[0].receipt.context
        words = generated.said or generated
        self.words += len(generated.tokens)
        lead, calls = calls_in(words.text, request, self._frames)
        framed = FramedMessage("assistant", words.text, draft.name, calls=calls, lead=lead if calls else "")
        before = PromptPosition(read.id for read in draft.reads.reads)
        known = self._known(draft, speech.id, framed, before.key, said=True)
        self._index.add(replace(known, quotable=self._quotable(framed, words)))
        fresh = {call.id for call in result.made if not self._journal.is_twin(call.id)}
        return FinishedAnswer(generated, self._places.reused(context, fresh))

    def _read(self, receipt: Receipt, reader: str | None) -> None:
        """Mark the answers in the context of a receipt as read, including those that unread answers were encoded over.
        An author reading its own answer does not count, whether the answer is encoded once or twice: the difference
        would reveal what the author had read."""
        left = [UnreadAnswer(reader, receipt)]
        while left:
            author, over = left.pop()
            answers = {read.id: self._unread[read.id] for read in over.context if read.id in self._unread}
            unread = [id for id, answer in answers.items() if author is None or answer.author != author]
            left += [self._unread.pop(id)._replace(author=None) for id in unread]

    # -- retention ---------------------------------------------------------------------------------------

    @contextmanager
    def _using(self, reads: ReadSet, plan: DecodePlan) -> Iterator[None]:
        """Keep the encodings that a request attends to, and those over which it makes others, while it runs. What it
        reads counts as read now."""
        parents = (parent for call in plan.calls for parent in call.parents if isinstance(parent, int))
        attended = {self._journal.message_of(id) for id in parents} | {needed.message for needed in plan.missing}
        self._in_use.update(attended)
        try:
            yield
        finally:
            self._in_use -= Counter(attended)
            for id in (read.id for read in reads.reads):
                if id in self._held:
                    self._held[id] = self._held.pop(id)

    def forget(self, tokens: int) -> None:
        """Drop encodings of messages that no request is using, least recently read first, until at most `tokens` tokens
        are held. If such a message is quoted later, it is encoded again from its ids, over nothing."""
        gone = list[str]()
        for id, held in self._held.items():
            if self.tokens <= tokens:
                break
            if not self._in_use[id]:
                gone.append(id)
                self.tokens -= held
        for id in gone:
            del self._held[id]
            draft = self._resolver.drafts[id]
            draft.reads = draft.reads._replace(reads=())
        ids = self._journal.forget(gone)
        self._places.forget(ids)
        for encoding in ids:
            self._unread.pop(encoding, None)
        self._release(ids)

    def end(self) -> None:
        """End the game; no request may be running. All encodings are released. `CannotWrite`: the record lacks its
        end."""
        self._release(self._journal.held)
        self._journal.held.clear()
        self._journal.close()
        self._sink(GameOver(self.game, {"turns": self.turns}, {}, None, self._meter.elapsed()))

    def _release(self, ids: Iterable[EncodingId]) -> None:
        self._choreographer.release(self._choreographer.held(ids))

    def _made(self, message: str, recipe: str, call: FinishedCall) -> None:
        """Hold an encoding of a message, and count it unless it is already there."""
        self._places.enter(call.id, f"{recipe} {message}", call.receipt)
        length = 0 if self._journal.is_twin(call.id) else len(call.words.tokens)
        self.tokens += length
        self._held[message] = self._held.pop(message, 0) + length


def _cut_by(framed: FramedMessage, reader: Reader) -> tuple[str, FramedMessage]:
    """The key of a split message: the agent and the words, whatever its id."""
    return reader.agent, framed._replace(id=None)


def missed(messages: Iterable[QuotableMessage | NewMessage]) -> dict[str, int]:
    """The number of new tokens of a prompt, by the reasons of `Miss`."""
    found = Counter[str]()
    for each in messages:
        if isinstance(each, NewMessage):
            found[each.why] += len(each.words.tokens)
    return dict(found)

"""One decode turn: from the calls that generate a message to the finished message on record.

Games, served societies and replays all generate messages here, so that rules about thoughts, stop tokens, recording and
cancellation are the same in all of them. `TurnHooks` holds the differences. Served conversations without a society keep
no record and use `run_decode` alone.

Does not know: who may read what, scenarios, HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypedDict, TypeVar, Unpack

from agentcho.choreography.choreographer import Choreographer
from agentcho.choreography.requests import DecodePiece, Request, RequestResult, UnfinishedDecode
from agentcho.events import Began, FirstToken, Sink, Token
from agentcho.games.play.journal import EncodingsToMake, Journal
from agentcho.message import Words
from agentcho.protocol.call import DEFAULT_PRIORITY, Call, Sampling, SchedulingPriority
from agentcho.protocol.tools import AnswerForm
from agentcho.provenance.drafts import Draft
from agentcho.provenance.resolver import Resolver
from agentcho.provenance.views import History
from agentcho.records.line_models import Ending
from agentcho.records.transcript import MessageUsage

Heard = TypeVar("Heard", DecodePiece, RequestResult)

NOTHING = MessageUsage(0, 0, 0.0, 0.0)


class DecodeOptions(TypedDict, total=False):
    """The options of the decode that says a message, as in `Decode`."""

    sampling: Sampling
    forced: tuple[int, ...] | None
    logits: bool
    stride: int
    most: int | None
    logprobs: int | None
    forms: tuple[AnswerForm, ...]
    cut: bool
    peek: bool
    thinks: bool


@dataclass(frozen=True, kw_only=True)
class TurnHooks:
    """What a caller does with a message while it is said. Hooks run on the event loop; an error in one fails this turn
    and no other.

    Attributes:
        piece: Gets each token and each text of the decode, right after the record.
        flush: Writes what was put on record. Called once a step for all turns that share it.
        text: Gets the visible text, after `flush`.
        thought: Gets the text of a thought, after `flush`.
        begun: Gets the id of each message, thoughts included, at its first token.
        done: Gets the result once the message is on record, before the caller of the turn goes on.
    """

    piece: Callable[[DecodePiece], None] | None = None
    flush: Callable[[], None] | None = None
    text: Callable[[str], None] | None = None
    thought: Callable[[str], None] | None = None
    begun: Callable[[str], None] | None = None
    done: Callable[[RequestResult], None] | None = None


NO_HOOKS = TurnHooks()


class Place(NamedTuple):
    """When a request runs among others; see the fields of `Request`."""

    order: tuple[int | str, ...]
    turn: SchedulingPriority = DEFAULT_PRIORITY
    exact: bool | None = None


class TurnRecord(Protocol):
    """Where a message is recorded while it is said."""

    def piece(self, said: DecodePiece) -> None:
        """Record a piece, before anybody hears it."""

    def done(self, result: RequestResult) -> None:
        """Record the finished message."""

    def dropped(self, said: UnfinishedDecode) -> None:
        """Record what was said of a message that failed or was cancelled."""


async def run_decode(
    choreographer: Choreographer,
    calls: tuple[Call, ...],
    place: Place,
    hooks: TurnHooks,
    record: TurnRecord | None = None,
) -> RequestResult:
    """Run the calls that say one message. The record gets everything before a hook does.

    Args:
        choreographer: That of the engine the calls are for.
        calls: What the message lacks, the decode, and its shadow, if it has one.
        place: When they run among others.
        hooks: What the caller does with the message while it is said.
        record: Where the message is recorded; None: nowhere.

    Returns:
        The finished calls. Their encodings stay held.

    Raises:
        AgentchoError: Whatever `Choreographer.run` raises.
    """
    return await choreographer.run(
        Request(
            calls,
            place.order,
            on_token=hooks.text,
            on_done=_both(None if record is None else record.done, hooks.done),
            turn=place.turn,
            exact=place.exact,
            on_piece=_both(None if record is None else record.piece, hooks.piece),
            flush=hooks.flush,
            on_dropped=None if record is None else record.dropped,
            on_thought=hooks.thought,
        )
    )


class DecodeTurn:
    """One message of a game, a society or a replay: its calls are planned at once, and made by `run`.

    Args:
        game: The number of the game.
        draft: The message.
        on: Plans the calls, on the engine that says them.
        journal: That of the game.
        sink: Hears events.
        begin_thought: Makes the message of the thought, as soon as there is one.
        hooks: What the caller does with the message while it is said.
        shadow: Whether what others read of the message may be encoded while it is said. It never is where the model
            may think first: what others read has no thought in it.
        out: The messages that are out, which tokens may be guessed from; None: those that are read.
        options: Those of the decode.
    """

    def __init__(
        self,
        game: int,
        draft: Draft,
        on: Resolver,
        *,
        journal: Journal,
        sink: Sink,
        begin_thought: Callable[[Draft], Draft],
        hooks: TurnHooks = NO_HOOKS,
        shadow: bool = True,
        out: History | None = None,
        **options: Unpack[DecodeOptions],
    ) -> None:
        shadow = shadow and not options.get("thinks", False)
        self.draft = draft
        self.plan = on.decode_plan(draft, shadow, out, **options)
        self.making = EncodingsToMake.of(self.plan, draft.metadata.author, on)
        self._hooks = hooks
        self._record = TurnRecorder(
            game=game,
            draft=draft,
            making=self.making,
            journal=journal,
            sink=sink,
            begin_thought=begin_thought,
            begun=hooks.begun,
        )

    @property
    def thought(self) -> Draft | None:
        """The message of what the model thought before this one; None: it has thought nothing so far."""
        return self._record.thought

    async def run(
        self, choreographer: Choreographer, order: tuple[int | str, ...], turn: SchedulingPriority = DEFAULT_PRIORITY
    ) -> RequestResult:
        """Say the message. A turn that fails or is cancelled leaves a line of what was said, if anything was.

        Args:
            choreographer: That of the engine the calls were planned for.
            order: See `Request`.
            turn: See `Request`.

        Returns:
            The finished calls. Their encodings are in the journal.

        Raises:
            AgentchoError: Whatever `Choreographer.run` raises.
        """
        place = Place(order, turn, exact=self.making.on.reuse.deterministic)
        return await run_decode(choreographer, self.plan.calls, place, self._hooks, self._record)


class TextRecorder:
    """Records a message that has text and no tokens: what follows a thought, and what a model behind an API says.

    Args:
        game: The number of the game.
        draft: The message.
        journal: That of the game.
        sink: Hears events.
    """

    def __init__(self, game: int, draft: Draft, journal: Journal, sink: Sink) -> None:
        self._game = game
        self._draft = draft
        self._journal = journal
        self._sink = sink
        self.text = ""

    def begin(self, usage: MessageUsage) -> None:
        """Record what the message is made over, before any of its text."""
        self._sink(FirstToken(self._journal.text_begun(self._draft, self.words(), usage)))

    def add(self, text: str) -> None:
        """Record a piece of its text."""
        self.text += text
        self._sink(Token(self._game, self._draft.metadata.id, text))

    def drop(self, usage: MessageUsage, ended: Ending) -> None:
        """Record that the message was given up. Its text so far is all there is."""
        self._journal.enter_text(self._draft, self.words(), usage, ended)

    def words(self, stopped: str | None = None) -> Words:
        """Its words so far. `stopped`: what ended them."""
        return Words(
            header=self._draft.text, text=self.text, tokens=(), content=(0, 0), sampled=(0, 0), stopped=stopped
        )


class TurnRecorder:
    """Records a message while it is said, and the thought before it, each under its own id.

    The thought is recorded as what the model generated, with the answer in it. What is said is a message of those words
    without the thought, framed as if there had been none.

    Args:
        game: The number of the game.
        draft: The message.
        making: What its request makes.
        journal: That of the game.
        sink: Hears events.
        begin_thought: Makes the message of the thought.
        begun: Gets the id of each message at its first token.
    """

    def __init__(
        self,
        game: int,
        draft: Draft,
        making: EncodingsToMake,
        *,
        journal: Journal,
        sink: Sink,
        begin_thought: Callable[[Draft], Draft],
        begun: Callable[[str], None] | None,
    ) -> None:
        self._game = game
        self._draft = draft
        self._making = making
        self._journal = journal
        self._sink = sink
        self._begin_thought = begin_thought
        self._begun = begun
        self._waiting: list[DecodePiece] = []
        self.thought: Draft | None = None
        self._answer: TextRecorder | None = None

    def piece(self, said: DecodePiece) -> None:
        """Take in a piece. What may be the mark before a thought waits until that is known."""
        self._waiting.append(said)
        if said.thought is None:
            return
        if said.thought and self.thought is None:
            self.thought = self._begin_thought(self._draft)
            metadata = self.thought.metadata
            author, audience = metadata.author or "", metadata.audience
            self._sink(
                Began(
                    game=self._game,
                    id=metadata.id,
                    author=author,
                    kind="decode",
                    audience=audience,
                    header="",
                    thought=True,
                )
            )
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._tell(each)

    def _tell(self, said: DecodePiece) -> None:
        own = self.thought or self._draft
        if said.opening is not None:
            self._begin(own)
            opening = said.opening if self.thought is None else _bare(said.opening, said.opening.own.words.text)
            self._sink(FirstToken(self._journal.first_token(self._making, own, opening)))
        behind = self.thought is not None and not said.thought
        self._sink(Token(self._game, own.metadata.id, "" if behind else said.text, said.token))
        if behind and said.text:
            self._speak(said.text)

    def _begin(self, draft: Draft) -> None:
        if self._begun is not None:
            self._begun(draft.metadata.id)

    def _speak(self, text: str) -> None:
        """Record words after a thought. They are a message of their own, and their tokens are part of the thought's."""
        if self._answer is None:
            self._answer = self._text_recorder()
            self._begin(self._draft)
            self._answer.begin(NOTHING)
        self._answer.add(text)

    def _text_recorder(self) -> TextRecorder:
        return TextRecorder(self._game, self._draft, self._journal, self._sink)

    def done(self, result: RequestResult) -> None:
        """Record that the message is complete."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._tell(each)
        if self.thought is None:
            self._journal.enter(self._making, self._draft, result)
            return
        words = result.made[len(self._making.missing)].words.said
        assert words is not None
        self._making.on.enter_thought(result.made[len(self._making.missing)].id, self.thought.metadata.id)
        self._journal.enter(self._making, self.thought, result)
        self._journal.enter_answer(self._draft, words)

    def dropped(self, said: UnfinishedDecode) -> None:
        """Record that the message was given up. What was said of it is all there is."""
        if self.thought is None:
            self._journal.enter_dropped(self._making, self._draft, said)
            return
        self._journal.enter_dropped(self._making, self.thought, _bare(said, said.own.words.text))
        answer = self._answer or self._text_recorder()
        answer.drop(NOTHING, said.ended or "failed")


def _bare(said: UnfinishedDecode, text: str) -> UnfinishedDecode:
    """Return what was generated so far as a thought, without the header, which comes after it.

    Whether it has ended does not matter, because nobody reads it.
    """
    words = said.own.words
    words = words._replace(header="", text=text, thought=words.content)
    return said._replace(own=said.own._replace(words=words))


def _both(
    first: Callable[[Heard], None] | None, second: Callable[[Heard], None] | None
) -> Callable[[Heard], None] | None:
    """Return a function that calls both functions in order, if there are two."""
    if first is None or second is None:
        return first or second

    def call(heard: Heard) -> None:
        first(heard)
        second(heard)

    return call

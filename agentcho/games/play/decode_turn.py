"""One decode turn: from the calls that generate a message to the finished message on record.

Games, served societies and replays all generate messages here, so that rules about thoughts, stop tokens, recording and
cancellation are the same in all of them. `TurnHooks` holds the differences. Served conversations without a society keep
no record and use `run_decode` alone.

Independent of audiences, scenarios and HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypedDict, TypeVar, Unpack

from agentcho.choreography.choreographer import Choreographer
from agentcho.choreography.requests import DecodePiece, Request, RequestResult, UnfinishedDecode
from agentcho.errors import AgentchoError, CallbackFailed
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
    """The options of the decode that generates a message, as in `Decode`."""

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
    """What a caller does with a message while it is generated. Hooks run on the event loop; an error in one fails this
    turn and no other.

    Attributes:
        piece: Gets each token and each text of the decode, right after the record.
        flush: Writes what was recorded. Called once per step for all turns that share it.
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
    """The place of a request in the order of all requests; see the fields of `Request`."""

    order: tuple[int | str, ...]
    turn: SchedulingPriority = DEFAULT_PRIORITY
    exact: bool | None = None


class TurnRecord(Protocol):
    """Where a message is recorded while it is generated."""

    def piece(self, said: DecodePiece) -> None:
        """Record a piece, before any listener gets it."""

    def done(self, result: RequestResult) -> None:
        """Record the finished message."""

    def dropped(self, said: UnfinishedDecode) -> None:
        """Record the part that was generated of a message that failed or was cancelled."""


async def run_decode(
    choreographer: Choreographer,
    calls: tuple[Call, ...],
    place: Place,
    hooks: TurnHooks,
    record: TurnRecord | None = None,
) -> RequestResult:
    """Run the calls that generate one message. The record gets everything before a hook does.

    Args:
        choreographer: The choreographer of the engine that the calls are for.
        calls: The prefills of missing encodings, the decode, and its shadow, if it has one.
        place: Their place in the order of all requests.
        hooks: What the caller does with the message while it is generated.
        record: Where the message is recorded. None for nowhere.

    Returns:
        The finished calls. Their encodings stay held.

    Raises:
        AgentchoError: Whatever `Choreographer.run` raises, or the hook `done` did. What was made stays held even then:
            it was entered by then, and may have been read.
    """
    failed = list[Exception]()

    def done(result: RequestResult) -> None:
        if record is not None:
            record.done(result)
        try:
            if hooks.done is not None:
                hooks.done(result)
        except Exception as error:
            failed.append(error)

    result = await choreographer.run(
        Request(
            calls,
            place.order,
            on_token=hooks.text,
            on_done=None if record is None and hooks.done is None else done,
            turn=place.turn,
            exact=place.exact,
            on_piece=_both(None if record is None else record.piece, hooks.piece),
            flush=hooks.flush,
            on_dropped=None if record is None else record.dropped,
            on_thought=hooks.thought,
        )
    )
    if failed:
        error = failed[0]
        raise error if isinstance(error, AgentchoError) else CallbackFailed("done", error) from error
    return result


class DecodeTurn:
    """One message of a game, a society or a replay. Its calls are planned by the constructor, and made by `run`.

    Args:
        game: The number of the game.
        draft: The message.
        on: The resolver that plans the calls for its engine.
        journal: The journal of the game.
        sink: Receives events.
        begin_thought: Makes the message of the thought, as soon as there is one.
        hooks: What the caller does with the message while it is generated.
        shadow: Whether the audience's encoding may be made while the message is generated. It is not if the model may
            think first, because what others read contains no thought.
        out: The messages that are out, from which tokens may be guessed. None means those that are read.
        options: The options of the decode.
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
        """The message with the model's thought before this one. None if it has thought nothing so far."""
        return self._record.thought

    async def run(
        self, choreographer: Choreographer, order: tuple[int | str, ...], turn: SchedulingPriority = DEFAULT_PRIORITY
    ) -> RequestResult:
        """Generate the message. A turn that fails or is cancelled leaves a line with the part generated, if any.

        Args:
            choreographer: The choreographer of the engine that the calls were planned for.
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
    """Records a message that has text and no tokens: an answer after a thought, or one of a model behind an API.

    Args:
        game: The number of the game.
        draft: The message.
        journal: The journal of the game.
        sink: Receives events.
    """

    def __init__(self, game: int, draft: Draft, journal: Journal, sink: Sink) -> None:
        self._game = game
        self._draft = draft
        self._journal = journal
        self._sink = sink
        self.text = ""

    def begin(self, usage: MessageUsage) -> None:
        """Record what the message reads, before any of its text."""
        self._sink(FirstToken(self._journal.text_begun(self._draft, self.words(), usage)))

    def add(self, text: str) -> None:
        """Record a piece of its text."""
        self.text += text
        self._sink(Token(self._game, self._draft.metadata.id, text))

    def drop(self, usage: MessageUsage, ended: Ending) -> None:
        """Record that the message was given up, with its text so far."""
        self._journal.enter_text(self._draft, self.words(), usage, ended)

    def words(self, stopped: str | None = None) -> Words:
        """Return its words so far. `stopped` is what ended them."""
        return Words(
            header=self._draft.text, text=self.text, tokens=(), content=(0, 0), sampled=(0, 0), stopped=stopped
        )


class TurnRecorder:
    """Records a message while it is generated, and the thought before it, each under its own id.

    The thought is recorded as everything that the model generated, including the answer. The message itself has the
    words without the thought, framed as if there had been none.

    Args:
        game: The number of the game.
        draft: The message.
        making: What its request makes.
        journal: The journal of the game.
        sink: Receives events.
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
        """Take in a piece. A piece that may belong to the mark before a thought waits until that is known."""
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
        """Record words after a thought. They form a separate message; their tokens belong to the thought."""
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
        """Record that the message was given up, with the part generated so far."""
        if self.thought is None:
            self._journal.enter_dropped(self._making, self._draft, said)
            return
        self._journal.enter_dropped(self._making, self.thought, _bare(said, said.own.words.text))
        answer = self._answer or self._text_recorder()
        answer.drop(NOTHING, said.ended or "failed")


def _bare(said: UnfinishedDecode, text: str) -> UnfinishedDecode:
    """Return what was generated so far as a thought, without the header, which comes after it.

    It may still be unfinished, because nobody reads it.
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

"""The journal of a game: its encodings, their cones, one line per finished message, and the lines of earlier attempts.

A game that is played again continues from these lines. Independent of how requests are made and of audiences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from time import perf_counter
from types import MappingProxyType
from typing import NamedTuple

from agentcho.choreography.requests import FinishedCall, Request, RequestResult, UnfinishedDecode
from agentcho.config import ReusePolicy
from agentcho.engine.call_layout import in_common
from agentcho.errors import ResumeMismatch
from agentcho.events import Encoded, Ended, Sink
from agentcho.games.play.limits import Meter
from agentcho.message import Message, Words
from agentcho.protocol.call import ContentPort, EncodingId, FramePort, SchedulingPriority
from agentcho.provenance.call_plans import DecodePlan, MissingEncoding
from agentcho.provenance.drafts import Draft, ModelTokenization
from agentcho.provenance.labels import EncodingRecord, Ledger, Recipe
from agentcho.provenance.resolver import Resolver
from agentcho.provenance.tool_sinks import is_step_id
from agentcho.records.line_models import Ending, Origin
from agentcho.records.transcript import EncodingsEntry, MessageUsage, TranscriptEntry, has_earlier_ids


class KnownText(NamedTuple):
    """The known words of a message, so that its model is not asked, what ended them, and their original cost."""

    text: str
    stopped: str | None
    usage: MessageUsage


class BegunCalls(NamedTuple):
    """Tool calls that were `begun` in a game, by message id, except calls that are idempotent.

    `redone` are the ones to repeat, and `skipped` the ones not to repeat.
    """

    begun: frozenset[str] = frozenset()
    redone: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()

    def with_begun(self, call: str) -> BegunCalls:
        """Return these and one more call that begins now. An earlier decision to repeat it is used up."""
        return self._replace(begun=self.begun | {call}, redone=self.redone - {call})


class RecordedLines:
    """The recorded lines of one game. If a message has several lines, the complete one of the latest attempt counts.

    `attempt` counts how often the game has begun, this time included; `begun` counts attempts of which no line is left.
    An attempt that departed from the record has `departure`.
    `typed` are words of people by message, complete or not. An incomplete message is not forced: the same seed
    generates it again, and the code handles it as before.
    """

    def __init__(
        self,
        game: int = 0,
        entries: Iterable[TranscriptEntry] = (),
        typed: Mapping[str, str] = MappingProxyType({}),
        calls: BegunCalls | None = None,
        begun: int = 0,
    ) -> None:
        self._game, self.typed, self._calls = game, typed, calls or BegunCalls()
        entries = list(entries)
        self.attempt = max((entry.attempt for entry in entries), default=0)
        self.attempt = max(self.attempt, begun) + 1
        ordered = sorted(entries, key=lambda entry: (entry.ended is None, entry.attempt))
        self._said = {entry.message.id: entry for entry in ordered}
        self._met = set[str]()
        self.departure: ResumeMismatch | None = None

    def words(self, id: str) -> tuple[int, ...] | None:
        """Return the token ids that a message must have after its header, or None if it is free."""
        entry = self._said.get(id)
        if entry is None or entry.ended is not None or entry.message.sampled is None:
            return None
        start, stop = entry.message.sampled
        return entry.message.tokens[start : min(stop, entry.message.content[1])]

    def human(self, id: str) -> bool | None:
        """Return whether a person wrote a message, or None if no complete message is recorded."""
        entry = self._said.get(id)
        return None if entry is None or entry.ended is not None else entry.origin == "human"

    def text(self, id: str, forced: tuple[int, ...] | None, content: ContentPort) -> KnownText | None:
        """Return the text that a message of a model behind an API must have, or None if it is free.

        It is the text of the `forced` ids, or the recorded text.
        """
        if forced is not None:
            return KnownText(content.decode(forced), "forced", MessageUsage(0, 0, 0.0, 0.0))
        entry = self._said.get(id)
        if entry is None or entry.ended is not None or entry.message.kind == "prefill":
            return None
        return KnownText(entry.message.text, entry.message.stopped, entry.usage)

    def result(self, id: str) -> tuple[str, tuple[int, ...] | None] | None:
        """Return the recorded result of a tool, by the id of its message.

        It has text and content ids. None if there is none.
        """
        entry = self._said.get(id)
        if entry is None:
            return None
        words = entry.message.words
        return words.text, words.tokens[slice(*words.content)] or None

    def skips(self, call: str) -> bool:
        """Return whether a tool call is not to be repeated. All other calls are made."""
        return call in self._calls.skipped

    @property
    def open_calls(self) -> list[str]:
        """The calls that were begun, have no result, and are neither to be repeated nor skipped."""
        settled = self._calls.redone | self._calls.skipped
        return sorted(self._calls.begun - settled - {entry.act.call for entry in self._said.values()})

    def check_calls(self) -> None:
        """Check the calls before the game begins.

        Raises `ResumeMismatch` if there are `open_calls`, or if an earlier version recorded the game with other ids
        (`has_earlier_ids`): its calls would not be found again, and all be repeated.
        """
        if has_earlier_ids(self._said.values()) or not all(map(is_step_id, self._calls.begun)):
            raise ResumeMismatch(
                f"game {self._game} cannot continue: an earlier version recorded its calls of tools, or its charged "
                "answers in JSON, which have other ids now; continue it with that version, or start a new run",
                1,
            )
        if left := self.open_calls:
            one, calls = f"{self._game}:{left[0]}", ", ".join(left)
            why = (
                f"{calls} called a tool, but no result is recorded, so it is not known whether the call was carried out"
            )
            remedy = (
                f"check whether it was; --redo {one} repeats the call, --skip {one} does not (`all` in place of {one} "
                "answers for every such call)"
            )
            raise ResumeMismatch(f"game {self._game} cannot continue: {why}; {remedy}", 1)

    def check(self, draft: Draft) -> None:
        """Check a message before it is generated. Raises `ResumeMismatch` if a different one is recorded under its
        id."""
        entry = self._said.get(draft.metadata.id)
        if entry is not None and (changed := [name for name, same in _compared(draft, entry) if not same]):
            self._depart(draft.metadata.id, f"differs in {', '.join(changed)}")
        self._met.add(draft.metadata.id)

    def end(self) -> None:
        """Check the record at the end of the code.

        Raises `ResumeMismatch` if a recorded message was not said again, or a departure from the record was ignored.
        """
        if self.departure is not None:
            raise self.departure
        if missing := [id for id in self._said if id not in self._met]:
            self._depart(missing[0], "was not said again")

    def restored(self, message: Message) -> Message:
        """Return a message that was said again, with its recorded text and end, which forced tokens do not give."""
        entry = self._said.get(message.id)
        if entry is None or entry.ended is not None or entry.message.tokens != message.tokens:
            return message
        first = entry.message
        return message.saying(
            text=first.text,
            sampled=first.sampled,
            stopped=first.stopped,
            canonical=first.canonical,
            stop_reason=first.words.stop_reason,
        )

    def _depart(self, id: str, how: str) -> None:
        self.departure = self.departure or ResumeMismatch.departs(self._game, id, how)
        raise self.departure


def _compared(draft: Draft, entry: TranscriptEntry) -> Iterable[tuple[str, bool]]:
    """Return the properties by which a message is compared with its line, and whether each is equal.

    What it reads is not compared, because it may differ if others raced.
    """
    data, said = draft.metadata, entry.message
    words = said.header + said.text if said.kind == "prefill" else said.header
    return (
        ("kind", data.kind == said.kind),
        ("role", data.role == said.role),
        ("author", data.author == said.author),
        ("audience", data.audience == said.audience),
        ("header" if said.kind == "decode" else "text", draft.text == words),
        ("choices", draft.act.choices == entry.act.choices),
        ("reuse of its view", draft.act.reuse == entry.act.reuse),
        ("model", draft.engine == entry.engine),
    )


class EncodingsToMake(NamedTuple):
    """What a request makes in addition to its own message: the missing encodings of its context, on the engine of `on`.
    `caller` is the agent in whose prompt baseline encodings stand, `recipe` that of the message. For `apart` and
    `opened` see `EncodingRecord`."""

    missing: Sequence[MissingEncoding]
    caller: str | None
    on: Resolver
    recipe: Recipe = "author"
    apart: bool = False
    opened: bool = False

    @classmethod
    def of(cls, plan: DecodePlan, caller: str | None, on: Resolver) -> EncodingsToMake:
        """Return what the calls that generate one message make."""
        return cls(plan.missing, caller, on, recipe=plan.recipe, apart=plan.apart, opened=plan.opened)


class MadeEncoding(NamedTuple):
    """The message of an encoding that was made while the message was generated.

    `spoken` tells whether the author generated the message in it; otherwise it is a shadow. For `apart` and `opened`
    see `EncodingRecord`.
    """

    message: str
    recipe: Recipe
    path: tuple[str, ...] = ()
    spoken: bool = False
    apart: bool = False
    opened: bool = False


class Journal:
    """The journal of one game.

    `held` are the ids of all its encodings, to be released with it. For `salt`, `spelling` and `frames` see `Resolver`.
    `resolver` is that of the run's own engine; `beside` returns those of other engines.
    """

    def __init__(
        self,
        game: int,
        reuse: ReusePolicy,
        meter: Meter,
        sink: Sink,
        recorded: RecordedLines | None = None,
        *,
        bos: int = 0,
        salt: str = "",
        spelling: ModelTokenization | None = None,
        frames: FramePort | None = None,
    ) -> None:
        self._recorded = recorded or RecordedLines(game)
        self._game = game
        self._meter = meter
        self._sink = sink
        self._attempt = self._recorded.attempt
        self.resolver = Resolver(reuse, bos, salt=salt, spelling=spelling, frames=frames)
        self._resolvers, self._salt = [self.resolver], salt
        self._exact = self.resolver if reuse.deterministic else None
        self._ledger = Ledger()
        self.held: list[int] = []
        self.outdated: list[EncodingId] = []
        self._began = perf_counter()
        self._twins: set[int] = set()
        self._unwritten: list[tuple[EncodingRecord, int]] = []

    def beside(self, spelling: ModelTokenization, kin: Resolver | None = None) -> Resolver:
        """Return a resolver of another engine, or of another adapter on the engine of its `kin`, over the same
        messages."""
        reuse = self.resolver.reuse
        bos = spelling.frames.bos
        drafts = self.resolver.drafts
        self._resolvers.append(Resolver(reuse, bos, salt=self._salt, spelling=spelling, drafts=drafts, kin=kin))
        return self._resolvers[-1]

    def exactly(self) -> Resolver:
        """Return the resolver of the run's own engine for calls in the deterministic profile, over the same messages.

        It reads only encodings made in that profile, and makes those of other profiles again.
        """
        if self._exact is None:
            own = self.resolver
            reuse = own.reuse._replace(deterministic=True, speculate=False)
            self._exact = Resolver(
                reuse, own.bos, salt=self._salt, spelling=own.spelling, drafts=own.drafts, frames=own.frames
            )
            self._resolvers.append(self._exact)
        return self._exact

    def enter_known(self, draft: Draft, words: Words) -> None:
        """Enter a message of known text. Its line is written now; its encodings are entered when they are made."""
        draft.message = self._message(draft, words)
        self._write(draft, None, self._now(MessageUsage(0, 0, 0.0, 0.0)))

    def enter(self, making: EncodingsToMake, draft: Draft | None, result: RequestResult) -> None:
        """Enter the encodings of a finished request: those it needed, that of its own message, and its shadow.

        The line of a message has all encodings made since the line before, of any message.
        """
        for lack, call in zip(making.missing, result.made, strict=False):
            self._record(lack, call, making)
        if draft is not None:
            self._enter_said(draft, result, making)

    def prefetch(self, message: str, on: Resolver | None = None, exact: bool = False) -> Request | None:
        """Return the request that encodes a message of known text before anybody reads it.

        None if it is encoded or already requested. `exact` uses the deterministic profile.
        """
        on = on or self.resolver
        missing, metadata = on.prefetch(message, exact), on.drafts[message].metadata
        if not missing:
            return None

        def done(result: RequestResult) -> None:
            self.enter(EncodingsToMake(missing, metadata.author, on), None, result)

        order, turn = (self._game, message, -1), SchedulingPriority(str(self._game))
        return Request(tuple(lack.call for lack in missing), order, on_done=done, turn=turn, exact=exact)

    def first_token(self, making: EncodingsToMake, draft: Draft, unfinished: UnfinishedDecode) -> TranscriptEntry:
        """Return the entry of a message at its first token, with all encodings that are in no line yet."""
        over = self._over(making, draft, unfinished)
        made = (*(record for record, _ in self._unwritten), *over)
        return self._unfinished(draft, unfinished, made, "died")

    def enter_dropped(self, making: EncodingsToMake, draft: Draft, unfinished: UnfinishedDecode) -> None:
        """Enter a message whose call was given up. It has a line, but no encoding that anybody could read.

        The ledger keeps the encodings that are held. That is the case if a message was complete and entered, but its
        line could not be written.
        """
        over = tuple(self._over(making, draft, unfinished))
        made, encoded = self._take_unwritten()
        entry = self._unfinished(draft, unfinished, (*made, *over), unfinished.ended)
        self._meter.spend(entry.message)
        self._sink(Ended(entry._replace(usage=entry.usage._replace(encoded=entry.usage.encoded + encoded))))
        held = set(self.held)
        self._ledger.forget(record.id for record in over if record.id not in held)

    def is_twin(self, id: EncodingId) -> bool:
        """Return whether a concurrent request had made the same encoding first."""
        return id in self._twins

    def text_begun(self, draft: Draft, words: Words, usage: MessageUsage) -> TranscriptEntry:
        """Return the entry of a message that a model behind an API is about to be asked for.

        It has all encodings that are in no line yet. The message itself has none.
        """
        made = tuple(record for record, _ in self._unwritten)
        return self._entry(self._message(draft, words), None, made, self._now(usage), draft, "died")

    def enter_text(self, draft: Draft, words: Words, usage: MessageUsage, ended: Ending | None = None) -> None:
        """Enter a message of a model behind an API. `ended` tells how it ended if it was given up.

        Its line has all encodings that are in no line yet, of any message.
        """
        message = self._message(draft, words)
        if words.thought is not None:  # counted with the answer after it
            draft.message = message
        elif ended is None:
            draft.message = message
            self._meter.count(message, sampled_tokens(words, usage))
        else:  # the tokens of an answer after a local model's thought were counted with the thought
            self._meter.spend(message, 0 if draft.act.thought is not None else sampled_tokens(words, usage))
        made, encoded = self._take_unwritten()
        self._sink(Ended(self._entry(message, None, made, self._now(usage)._replace(encoded=encoded), draft, ended)))

    def enter_answer(self, draft: Draft, words: Words) -> None:
        """Enter the answer after a thought that is entered already.

        Its tokens were counted with the thought's, and its encodings are made when they are read.
        """
        draft.message = self._recorded.restored(self._message(draft, words))
        self._meter.count(draft.message, 0)
        self._write(draft, None, self._now(MessageUsage(0, 0, 0.0, 0.0)))

    def message_of(self, id: EncodingId) -> str:
        """Return the message that an encoding belongs to."""
        return self._ledger[id].message

    def cone(self, draft: Draft) -> Set[str] | None:
        """Return all messages that could have influenced a message, by what was attended to.

        For a model behind an API, which does not show that, it is the prompt. None if it is unknown.
        """
        metadata, said = draft.metadata, draft.message
        if said is not None and not said.tokens:
            return {metadata.id, *metadata.parents, *filter(None, [draft.act.thought])}
        if draft.act.thought is not None:
            thought = self._ledger.cone(draft.act.thought)
            return None if thought is None else {metadata.id, *thought}
        return self._ledger.cone(metadata.id)

    def forget(self, messages: Iterable[str]) -> list[EncodingId]:
        """Give up all encodings of these messages and their entries in the ledger and the resolvers.

        Returns their ids, for the caller to release. A later reader encodes such a message again, from its token ids.
        No running or planned call may attend to any of them.
        """
        names = set(messages)
        for resolver in self._resolvers:
            for message in names:
                resolver.forget(message)
        gone = [id for id in self.held if self._ledger[id].message in names]
        self._ledger.forget(gone)
        self._twins.difference_update(gone)
        left = set(self.held).difference(gone)
        self.held[:] = [id for id in self.held if id in left]
        for resolver in self._resolvers:
            resolver.forget_labels(left)
        return gone

    def _over(self, making: EncodingsToMake, draft: Draft, unfinished: UnfinishedDecode) -> Iterator[EncodingRecord]:
        """Yield the records of the encodings that a call needed, as far as they were made, and its own so far."""
        for lack, call in zip(making.missing, unfinished.made, strict=False):
            if call is not None:
                yield self._noted(lack, call, making)
        yield self._noted(self._own(draft, making), unfinished.own, making)

    def _unfinished(
        self, draft: Draft, unfinished: UnfinishedDecode, made: tuple[EncodingRecord, ...], ended: Ending | None
    ) -> TranscriptEntry:
        made_for_it = [call for call in unfinished.made if call is not None]
        fresh = {call.id for call in made_for_it}
        encoded = len(unfinished.own.words.tokens) + sum(len(call.words.tokens) for call in made_for_it)
        reused = sum(entry.length for entry in unfinished.own.receipt.context if entry.id not in fresh)
        usage = self._usage(encoded, reused, unfinished)
        return self._entry(self._message(draft, unfinished.own.words), None, made, usage, draft, ended)

    def close(self) -> None:
        """End the game: write the encodings that are in no message's line."""
        if self._unwritten:
            made, encoded = self._take_unwritten()
            self._sink(Encoded(EncodingsEntry(self._game, made, self._attempt, encoded)))

    def _take_unwritten(self) -> tuple[tuple[EncodingRecord, ...], int]:
        """Take the encodings that are in no line yet, and the tokens that were fed for them."""
        made, encoded = tuple(record for record, _ in self._unwritten), sum(tokens for _, tokens in self._unwritten)
        self._unwritten.clear()
        return made, encoded

    def _enter_said(self, draft: Draft, result: RequestResult, making: EncodingsToMake) -> None:
        id, said = draft.metadata.id, result.made[len(making.missing) :]
        path = making.on.said_path(draft) if making.recipe == "baseline" else ()
        draft.message = self._recorded.restored(self._message(draft, said[0].words))
        self._record(self._own(draft, making, path), said[0], making)
        for shadow in said[1:]:
            self._record(MadeEncoding(id, "audience"), shadow, making)
        count = self._meter.count if draft.message.words.thought is None else self._meter.spend
        count(draft.message)
        fresh, context = {call.id for call in result.made}, said[0].receipt.context
        reused = sum(read.length for read in context if read.id not in fresh or read.id in self._twins)
        self._write(draft, said[0].id, self._usage(0, reused, result))

    def _own(self, draft: Draft, making: EncodingsToMake, path: tuple[str, ...] = ()) -> MadeEncoding:
        return MadeEncoding(
            message=draft.metadata.id,
            recipe=making.recipe,
            path=path,
            spoken=True,
            apart=making.apart,
            opened=making.opened,
        )

    def _record(self, of: MissingEncoding | MadeEncoding, made: FinishedCall, making: EncodingsToMake) -> None:
        """Record an encoding, and the tokens that were fed for it.

        A baseline encoding belongs to the caller, in whose prompt it is, a repaired one to the first agent of its path,
        and an author encoding to the author. An audience encoding belongs to nobody, unless the author spoke in it. The
        engine encodes equal concurrent requests once, and the tokens count for the first one.
        """
        record = self._noted(of, made, making)
        first = making.on.enter(of.message, of.recipe, of.path, made.id, made.receipt)
        draft = making.on.drafts[of.message]
        fed = len(made.words.tokens) if first and not made.receipt.anchors else 0
        if draft.begun is not None and making.on is self.resolver:
            fed += draft.begun.fed - in_common(made.words.tokens, draft.begun.tokens)
            self.outdated.append(draft.begun.id)
            draft.begun = None
        self._twins.update(() if first else {made.id})
        self._unwritten.append((record, fed))
        self.held.append(made.id)

    def take_outdated(self) -> list[EncodingId]:
        """Take the encodings of earlier states of messages that were encoded again, for the caller to release."""
        outdated, self.outdated = self.outdated, []
        return outdated

    def begun(self) -> list[EncodingId]:
        """Return the encodings of begun messages that nobody has read."""
        drafts = self.resolver.drafts.values()
        return [*self.take_outdated(), *(draft.begun.id for draft in drafts if draft.begun is not None)]

    def _noted(self, of: MissingEncoding | MadeEncoding, made: FinishedCall, making: EncodingsToMake) -> EncodingRecord:
        on = making.on
        caller = making.caller
        recipe = of.recipe
        draft = on.drafts[of.message]
        of_prompt = of if isinstance(of, MissingEncoding) else None
        own = of if isinstance(of, MadeEncoding) else MadeEncoding(of.message, recipe)
        author = draft.metadata.author
        known = {"baseline": caller, "author": author, "audience": author if own.spoken else None}
        whose = of.path[0] if recipe == "repaired" else known[recipe]
        return self._ledger.record(
            made.id,
            of.message,
            whose,
            recipe,
            made.receipt,
            on.model_of(recipe),
            not on.spells(draft),
            also=() if of_prompt is None else of_prompt.also,
            tokens=None if of_prompt is None else of_prompt.tokens,
            apart=own.apart,
            opened=own.opened,
            said=own.spoken or recipe == "author",
        )

    def _message(self, draft: Draft, words: Words) -> Message:
        data, reads = draft.metadata, draft.reads
        places = tuple(read.at if isinstance(read.at, int) else None for read in reads.reads)
        return Message(
            id=data.id,
            game=self._game,
            kind=data.kind,
            role=data.role,
            author=data.author,
            audience=data.audience,
            parents=data.parents,
            words=words if words.said is None else words._replace(said=None),
            name=draft.name,
            offsets=places if any(place is not None for place in places) else None,
            new_offset=reads.new_at if isinstance(reads.new_at, int) else None,
        )

    def _usage(self, encoded: int, reused: int, asked: RequestResult | UnfinishedDecode) -> MessageUsage:
        """Return what a request cost, by the clock of this game."""
        return MessageUsage(encoded, reused, asked.ttft, asked.seconds, at=asked.at - self._began, steps=asked.steps)

    def _now(self, usage: MessageUsage) -> MessageUsage:
        """Return the usage of a message without an engine step, with its start on the game's clock.

        Usage from an earlier attempt is unchanged.
        """
        return usage if usage.at is not None else usage._replace(at=perf_counter() - self._began - usage.seconds)

    def _write(self, draft: Draft, own: EncodingId | None, usage: MessageUsage) -> None:
        """Write the line of a complete message, with all encodings made since the line before."""
        assert draft.message is not None
        made, encoded = self._take_unwritten()
        self._sink(Ended(self._entry(draft.message, own, made, usage._replace(encoded=encoded), draft)))

    def _entry(
        self,
        message: Message,
        own: EncodingId | None,
        made: tuple[EncodingRecord, ...],
        usage: MessageUsage,
        draft: Draft,
        ended: Ending | None = None,
    ) -> TranscriptEntry:
        origin, direct = _origin(message, draft), draft.reads.direct
        return TranscriptEntry(
            message=message,
            encoding=own,
            made=made,
            direct=direct,
            usage=usage,
            act=draft.act,
            ended=ended,
            attempt=self._attempt,
            engine=draft.engine,
            origin=origin,
        )


def sampled_tokens(words: Words, usage: MessageUsage) -> int:
    """Return the number of tokens that a message of a model behind an API counts for.

    It is the number that its server reports, or else the length of its text in UTF-8 bytes, which is at least as large.
    """
    said = None if usage.spent is None else usage.spent.completion
    return said or len(words.text.encode())


def _origin(message: Message, draft: Draft) -> Origin | None:
    if message.kind == "prefill":
        return None if draft.act.call is None else "tool"
    if draft.human:
        return "human"
    return "forced" if message.words.stopped == "forced" else "sampled"

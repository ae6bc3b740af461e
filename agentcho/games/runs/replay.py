"""Replays a trace on an engine with every text forced, and returns the logits of its tokens and the costs.

Each message is submitted when its parents are done, through the choreographer and the resolver that games use. Must not
depend on agents' code or on torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Protocol, Unpack, cast

import anyio

from agentcho.choreography.choreographer import Choreographer
from agentcho.choreography.quiescence import TrackedTask
from agentcho.choreography.requests import RequestResult
from agentcho.config import DEFAULT_POLICY, Limits, Mode, ReuseOptions, ReusePolicy, by_position
from agentcho.engine.call_layout import frame
from agentcho.errors import TRACE, LeakageError, RecordBroken
from agentcho.events import Encoded, Ended, Event
from agentcho.games.play.decode_turn import DecodeTurn, TurnHooks
from agentcho.games.play.journal import Journal
from agentcho.games.play.limits import Meter
from agentcho.games.play.messages import Thoughts
from agentcho.games.runs.runtime import blocking
from agentcho.message import Metadata, Words
from agentcho.protocol.call import EncodingId, EnginePort, Receipt, Sampling
from agentcho.provenance.drafts import Draft
from agentcho.provenance.labels import LeakPaths
from agentcho.provenance.views import Act, History, MessageLog, Read, ReadSet, places_of
from agentcho.records.trace import TraceMessage, Workflow, workflow
from agentcho.records.transcript import TranscriptEntry, carry


class LogitsPort(Protocol):
    """The logits that a decode with `logits=True` chose from."""

    def logits(self, id: EncodingId) -> Any: ...


@dataclass(frozen=True)
class ReplayedMessage:
    """One replayed decode.

    Attributes:
        entry: The message with its encodings, as a transcript has it.
        receipt: What it attended to.
        ttft: Seconds from when it could be submitted to its first row of logits, waiting included.
        seconds: Seconds from when it could be submitted to its end, waiting included.
        logits: Logits `[tokens + 1, vocab]`, float32, from which each of the text's tokens, and then the first closing
            token, was chosen. None if they were not requested.
    """

    entry: TranscriptEntry
    receipt: Receipt
    ttft: float
    seconds: float
    logits: Any


class Replayed(Mapping[str, ReplayedMessage]):
    """The decodes of a workflow by message id.

    Attributes:
        entries: All messages, as a transcript has them.
        steps: Number of forward passes.
        encoded: Number of tokens that these fed.
        seconds: Duration of the replay, in seconds.
    """

    def __init__(
        self,
        decodes: dict[str, ReplayedMessage],
        entries: list[TranscriptEntry],
        steps: int,
        encoded: int,
        seconds: float,
    ) -> None:
        self._decodes, self.entries = decodes, entries
        self.steps, self.encoded, self.seconds = steps, encoded, seconds

    def __getitem__(self, id: str) -> ReplayedMessage:
        return self._decodes[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decodes)

    def __len__(self) -> int:
        return len(self._decodes)


def replay(
    workflow_: Mapping[str, Any] | Workflow,
    engine: EnginePort,
    reuse: ReusePolicy | Mode = DEFAULT_POLICY,
    *fields: Any,
    logits: bool = True,
    stride: int = 1,
    **changes: Unpack[ReuseOptions],
) -> Replayed:
    """Play one workflow of a trace again, with every text forced. Blocks until it is over.

    Token ids of the trace are used instead of its text if they are of the engine's tokenizer. Offsets of the trace are
    ignored with `in_place`. With `speculate`, tokens are guessed from what must have been out by the trace alone.

    Args:
        workflow_: A workflow of the format `agentcho-trace/1`.
        engine: The engine.
        reuse: How messages are read: a `ReusePolicy`, or its mode.
        *fields: Further fields by position. Deprecated; they go in 0.6.
        logits: Whether to keep what each token was chosen from.
        stride: Number of tokens of a text per step after its first. Above 1 is quick if only `ttft` matters.
        **changes: Fields of `reuse` to change, by name, such as `mode="baseline"` or `leakage="audit"`.

    Returns:
        The decodes by message id. `entries` are all messages, `steps` and `encoded` count forward passes and tokens,
        and `seconds` is the duration.

    Raises:
        RecordBroken: The workflow is not such a trace, or its tokens do not fit the engine's framing.
        LeakageError: An author may not read a message under that policy. Nothing was computed. Under `leakage="audit"`
            such reads are recorded instead.
        RequestError: The engine refuses a call.
        ContextOverflow: A message does not fit the model's context.
    """
    given = by_position(reuse, fields, ("mode", "leakage", "deterministic", "logits"))
    logits = given.pop("logits", logits)
    policy = reuse if isinstance(reuse, ReusePolicy) else ReusePolicy(**given)
    policy = policy._replace(**changes)
    if policy.speculate:
        engine.speculate()
    return blocking(_Replay(workflow(workflow_), engine, policy, logits, stride).play)


def awaited(trace: Workflow) -> dict[str, frozenset[str]]:
    """Return for each message the decodes that must have ended before it can be submitted: the nearest ones only."""
    kinds = {message.id: message.kind for message in trace.messages}
    needs: dict[str, frozenset[str]] = {}
    for message in trace.messages:
        parents = ({id} if kinds[id] == "decode" else needs[id] for id in message.parents)
        needs[message.id] = frozenset[str]().union(*parents)
    return needs


@dataclass
class _Gate:
    """Opens after a number of events. A waiting task counts as awake from then."""

    left: int
    opened: float = field(default_factory=perf_counter)
    event: anyio.Event = field(default_factory=anyio.Event)
    waiting: list[TrackedTask] = field(default_factory=list)

    def open_one(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.opened = perf_counter()
            for task in self.waiting:
                task.wake()
            self.event.set()

    async def wait(self, task: TrackedTask | None) -> None:
        if self.left > 0:
            if task is not None:
                self.waiting.append(task)
            await self.event.wait()


class _Replay:
    """One running replay."""

    def __init__(self, trace: Workflow, engine: EnginePort, reuse: ReusePolicy, logits: bool, stride: int) -> None:
        self._engine, self._reuse, self._logits, self._stride = engine, reuse, logits, stride
        self._drafts = _Drafts({message.id: message for message in trace.messages}, engine, reuse)
        self._journal = Journal(0, reuse, Meter(Limits()), self._collect, bos=engine.bos, frames=engine)
        self._journal.resolver.drafts.update(self._drafts.all())
        self._thoughts = Thoughts(self._journal.resolver.drafts)
        self._needs = awaited(trace)
        self._decodes = [message for message in trace.messages if message.kind == "decode"]
        self._rootless = [m.id for m in trace.messages if m.kind == "prefill" and not m.parents]
        self._known = {m.id: self._drafts.framed(m) for m in trace.messages if m.kind == "prefill"}
        self._entries: list[TranscriptEntry] = []
        self._done: dict[str, tuple[RequestResult, float]] = {}
        self._logs: dict[frozenset[str], MessageLog] = {}

    async def play(self) -> Replayed:
        """Play all decodes side by side, each when its parents are done. Logits are read when the engine is idle."""
        began = perf_counter()
        self._gates = {d.id: _Gate(len(self._needs[d.id])) for d in self._decodes}
        async with Choreographer(self._engine, self._reuse) as self._choreographer:
            self._publish_known()
            for known in self._rootless:
                self._choreographer.offer(self, partial(self._journal.prefetch, known))
            speaking = (self._speak(place, decode) for place, decode in enumerate(self._decodes))
            await self._choreographer.tasks.run(self._choreographer.tasks.together(*speaking))
            seconds = perf_counter() - began
            self._journal.close()
            decodes = {id: self._replayed(id, *self._done[id]) for id in self._gates}
            return Replayed(decodes, self._entries, self._choreographer.steps, self._choreographer.encoded, seconds)

    def _collect(self, event: Event) -> None:
        if isinstance(event, Ended):
            self._entries.append(event.entry)
        if isinstance(event, Encoded):
            carry(self._entries, event.encodings)

    def _publish_known(self) -> None:
        """Publish the messages of known text whose parents have all ended."""
        for id in [id for id in self._known if self._needs[id] <= self._done.keys()]:
            self._journal.enter_known(self._journal.resolver.drafts[id], self._known.pop(id))

    def _replayed(self, id: str, result: RequestResult, waited: float) -> ReplayedMessage:
        entry = next(e for e in reversed(self._entries) if e.message.id == id)
        assert entry.own is not None
        logits = cast(LogitsPort, self._engine).logits(entry.own.id) if self._logits else None
        return ReplayedMessage(entry, entry.own.receipt, waited + result.ttft, waited + result.seconds, logits)

    # -- one message -------------------------------------------------------------------------------------

    async def _speak(self, place: int, decode: TraceMessage) -> None:
        gate, task = self._gates[decode.id], self._choreographer.tasks.current()
        await gate.wait(task)
        draft = self._journal.resolver.drafts[decode.id]
        forced = self._drafts.forced(decode)

        def done(result: RequestResult) -> None:
            self._done[decode.id] = result, waited
            self._publish_known()
            for other in self._decodes:
                if decode.id in self._needs[other.id]:
                    self._gates[other.id].open_one()

        turn = DecodeTurn(
            0,
            draft,
            self._journal.resolver,
            journal=self._journal,
            sink=self._collect,
            begin_thought=self._thoughts.begin,
            hooks=TurnHooks(done=done),
            out=self._out(draft),
            forced=forced,
            sampling=self._drafts.cut(decode, forced),
            logits=self._logits,
            stride=self._stride,
        )
        waited = perf_counter() - gate.opened
        await turn.run(self._choreographer, (place,))

    def _out(self, draft: Draft) -> History:
        """Return the messages that must be out when this one is said: all that it reads, directly or transitively.

        Messages with the same reads share a log.
        """
        drafts, before, wanted = self._journal.resolver.drafts, set[str](), [*draft.metadata.parents]
        while wanted:
            if (id := wanted.pop()) not in before:
                before.add(id)
                wanted += drafts[id].metadata.parents
        messages = (each.metadata for id, each in drafts.items() if id in before)
        return History(self._logs.setdefault(frozenset(before), MessageLog(messages)))


class _Drafts:
    """Turns the messages of one workflow into drafts, and their words into ids of one engine."""

    def __init__(self, messages: Mapping[str, TraceMessage], engine: EnginePort, reuse: ReusePolicy) -> None:
        self._messages, self._engine, self._reuse = messages, engine, reuse

    def all(self) -> dict[str, Draft]:
        """Return all messages as a game keeps them.

        Raises `LeakageError` if an author may not read a parent under that policy.
        """
        said: dict[str, Draft] = {}
        leaks = LeakPaths(self._reuse, said)
        for message in self._messages.values():
            draft = said[message.id] = self._draft(message)
            if path := leaks.leak_path(draft.reads):
                raise LeakageError(message.author or "", path)
        return said

    def _draft(self, message: TraceMessage) -> Draft:
        offsets = message.offsets or (None,) * len(message.parents)
        reads = tuple(Read(id, at) for id, at in zip(message.parents, offsets, strict=True))
        readers = {id: self._messages[id].readers for id in message.parents}
        direct = tuple(id for id in message.parents if message.author and not readers[id].includes(message.author))
        metadata = Metadata(message.id, message.kind, message.role, message.author, message.readers, message.parents)
        words = message.text if message.kind == "prefill" else message.header or ""
        read_set = ReadSet(message.author, reads, message.new_offset, direct, message.reuse)
        asked = places_of(read_set)
        act = Act(places=asked if any(place is not None for place in asked) else (), reuse=message.reuse)
        return Draft(metadata, words, message.name, read_set, act=act)

    def framed(self, message: TraceMessage) -> Words:
        """Return the words of a message of known text.

        They have the trace's token ids if these are of this engine's tokenizer, or else those of the text.
        """
        return self._engine.frame(message.role, message.name, message.text, self._content(message))

    def _content(self, message: TraceMessage) -> tuple[int, ...] | None:
        """Return the ids between framing, if the trace has them for this engine's tokenizer."""
        if message.tokens is None or message.tokenizer != self._engine.fingerprint.get("tokenizer"):
            return None
        framed = frame(self._engine.framing, message.role, message.name, answer=message.kind == "decode")
        content = framed.inside(message.tokens, closed=message.ended is None)
        if message.content is not None:
            content = message.tokens[slice(*message.content)]
        if content is None and message.role == "system":  # the frame may contain a date
            return None
        if content is None:
            raise RecordBroken(f"message {message.id}", "its tokens do not match this engine's framing", TRACE)
        return content

    def forced(self, decode: TraceMessage) -> tuple[int, ...]:
        """Return the token ids to force: those of the text, without the header."""
        encode = self._engine.framing.content.encode
        content = self._content(decode)
        if content is None:
            return tuple(encode(decode.text))
        header = tuple(encode(decode.header or ""))
        if content[: len(header)] != header:
            raise RecordBroken(f"message {decode.id}", "its tokens do not begin with the tokens of its header", TRACE)
        return content[len(header) :]

    def cut(self, decode: TraceMessage, forced: tuple[int, ...]) -> Sampling:
        """Return options under which the last forced token ends the text where the trace's text ends.

        That text was ended by a token that is not part of it, or by a stop string.
        """
        spelled, begins = self._engine.framing.content.token_bytes, not decode.header
        pieces = [spelled(token, begins and not place) for place, token in enumerate(forced)]
        shown = b"".join(pieces).decode(errors="replace")
        if shown == decode.text or not shown.startswith(decode.text):
            return Sampling()
        if b"".join(pieces[:-1]).decode(errors="replace") == decode.text:
            return Sampling(min_tokens=len(forced) - 1, stop_token_ids=forced[-1:])
        return Sampling(min_tokens=len(forced) - 1, stop=(shown[len(decode.text) :],))

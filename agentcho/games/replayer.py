"""Plays a trace again on an engine, every text forced: what its tokens were chosen from, and what it cost.

Each message is submitted when its parents are done, through the choreographer and the resolver that games use.
Does not know: agents' code, policies, torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Protocol, cast

import anyio

from agentcho.calls.call import EncodingId, EnginePort, Receipt
from agentcho.choreography.choreographer import Choreographer
from agentcho.choreography.quiescence import Turn
from agentcho.choreography.ticket import Request, Result
from agentcho.config import Leakage, Limits, Mode, RepairBy, Shadowing, Way
from agentcho.events import Encoded, Ended, Event
from agentcho.games.graph import Graph
from agentcho.games.journal import Books
from agentcho.games.known import Words
from agentcho.games.limits import Meter
from agentcho.games.runtime import blocking
from agentcho.records.trace import TraceMessage, Workflow, workflow
from agentcho.records.transcript import Entry, carry


class LogitsPort(Protocol):
    """The rows that a decode with `logits=True` chose from."""

    def logits(self, id: EncodingId) -> Any: ...


@dataclass(frozen=True)
class ReplayedMessage:
    """One decode. `logits` `[tokens + 1, vocab]`, float32: what each of the text's tokens, and then the first
    closing token, was chosen from; None where they were not asked for. `receipt`: what it attended to. Seconds
    from when it could be submitted to its first row (`ttft`) and to its end, waiting included."""

    entry: Entry
    receipt: Receipt
    ttft: float
    seconds: float
    logits: Any


class Replayed(Mapping[str, ReplayedMessage]):
    """The decodes of a workflow by message id. `entries` are all messages as a transcript has them, `steps` the
    engine's forwards, `encoded` the tokens they fed, `seconds` the whole."""

    def __init__(
        self, decodes: dict[str, ReplayedMessage], entries: list[Entry], steps: int, encoded: int, seconds: float
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
    workflow_: Mapping[str, Any] | Workflow, engine: EnginePort, mode: Mode = "choreographed",
    leakage: Leakage = "enforce", deterministic: bool = False, logits: bool = True, *, shadow: Shadowing = "auto",
    stride: int = 1, in_place: bool = False, repair: RepairBy | None = None,
) -> Replayed:  # fmt: skip
    """Play one workflow of `agentcho-trace/1` with every text forced. Blocks until it is over.

    Tokens of the trace win over its text where they are of the engine's tokenizer. `stride` above 1 feeds so many
    tokens of a text a step after its first: quick, where only `ttft` is asked for. `in_place` leaves what is reused
    where it was made, and passes over the trace's offsets; `repair` encodes some tokens of it anew. `leakage` says
    nothing in baseline mode but that "audit" records direct leaks; otherwise they are refused before anything is
    computed.
    Raises `RecordBroken`, `LeakageError`, and what the engine says of a call.
    """
    way = Way(mode, leakage, shadow, deterministic, in_place, repair)
    return blocking(_Replay(workflow(workflow_), engine, way, logits, stride).play)


@dataclass
class _Gate:
    """Opens when as many things have happened as it waits for; who waits counts as awake from then."""

    left: int
    opened: float = field(default_factory=perf_counter)
    event: anyio.Event = field(default_factory=anyio.Event)
    turns: list[Turn] = field(default_factory=list)

    def open_one(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.opened = perf_counter()
            for turn in self.turns:
                turn.wake()
            self.event.set()

    async def wait(self, turn: Turn | None) -> None:
        if self.left > 0:
            if turn is not None:
                self.turns.append(turn)
            await self.event.wait()


class _Replay:
    """One replay under way."""

    def __init__(self, trace: Workflow, engine: EnginePort, way: Way, logits: bool, stride: int) -> None:
        self._engine, self._way, self._logits, self._stride = engine, way, logits, stride
        self._words = Words({message.id: message for message in trace.messages}, engine, way)
        self._books = Books(0, way, Meter(Limits()), self._hear, bos=engine.bos)
        self._books.resolver.utterances.update(self._words.utterances())
        self._graph = Graph(trace)
        self._known = {m.id: self._words.framed(m) for m in trace.messages if m.kind == "prefill"}
        self._entries: list[Entry] = []
        self._done: dict[str, tuple[Result, float]] = {}

    async def play(self) -> Replayed:
        """All decodes side by side, each when its parents are done; logits are read when the engine rests."""
        began = perf_counter()
        self._gates = {d.id: _Gate(len(self._graph.needs(d.id))) for d in self._graph.decodes}
        async with Choreographer(self._engine, *self._way) as self._choreographer:
            self._know()
            for known in self._graph.known:
                self._choreographer.offer(self, partial(self._books.ahead, known))
            speaking = (self._speak(place, decode) for place, decode in enumerate(self._graph.decodes))
            await self._choreographer.turns.run(self._choreographer.turns.together(*speaking))
            seconds = perf_counter() - began
            self._books.close()
            decodes = {id: self._replayed(id, *self._done[id]) for id in self._gates}
            return Replayed(decodes, self._entries, self._choreographer.steps, self._choreographer.encoded, seconds)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Ended):
            self._entries.append(event.entry)
        if isinstance(event, Encoded):
            carry(self._entries, event.encodings)

    def _know(self) -> None:
        """Let those messages of known text come out that waited for nothing but what is said by now."""
        for id in [id for id in self._known if self._graph.needs(id) <= self._done.keys()]:
            self._books.know(self._books.resolver.utterances[id], self._known.pop(id))

    def _replayed(self, id: str, result: Result, waited: float) -> ReplayedMessage:
        entry = next(e for e in reversed(self._entries) if e.message.id == id)
        assert entry.own is not None
        logits = cast(LogitsPort, self._engine).logits(entry.own.id) if self._logits else None
        return ReplayedMessage(entry, entry.own.receipt, waited + result.ttft, waited + result.seconds, logits)

    # -- one message -------------------------------------------------------------------------------------

    async def _speak(self, place: int, decode: TraceMessage) -> None:
        gate, turn = self._gates[decode.id], self._choreographer.turns.current()
        await gate.wait(turn)
        utterance = self._books.resolver.utterances[decode.id]
        speaking = self._books.resolver.speak(
            utterance, forced=self._words.forced(decode), logits=self._logits, stride=self._stride
        )
        waited = perf_counter() - gate.opened

        def done(result: Result) -> None:
            self._done[decode.id] = result, waited
            self._books.enter(speaking.missing, utterance, result, decode.author)
            self._know()
            for other in self._graph.decodes:
                if decode.id in self._graph.needs(other.id):
                    self._gates[other.id].open_one()

        await self._choreographer.run(Request(speaking.calls, (place,), on_done=done, exact=self._way.deterministic))

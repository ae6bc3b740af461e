"""Audits traces without receipts by running the real resolver on an engine that computes sets instead of numbers.
The value of an encoding is the set of messages that influenced it.

The result is what a run with the same options would do, so it is called planned. Must not depend on models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from agentcho.audit import notes
from agentcho.audit.audit import PlannedGames, RefusedGame, audit_entries, new_key
from agentcho.audit.notes import Seal
from agentcho.audit.report import AuditReport, Edge, Place
from agentcho.audit.subject import of_traces
from agentcho.audit.verdict import Reading, RevealedSecrets
from agentcho.config import Leakage, Mode, RepairBy, ReusePolicy, RunConfig
from agentcho.engine.cache import Encoding
from agentcho.engine.call_layout import ContextPiece, KVEntry, Segment
from agentcho.engine.core import EngineCore
from agentcho.engine.fake.toy_tokenizer import FakeFraming
from agentcho.engine.virtual_runner import VirtualRunner, VirtualSlot, virtual
from agentcho.errors import ConfigError, LeakageError
from agentcho.games.runs.replay import replay
from agentcho.games.runs.trace_framing import traced
from agentcho.message import SCENARIO
from agentcho.protocol.call import EncodingId
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.trace import Workflow, read_traces
from agentcho.records.transcript import TranscriptEntry
from agentcho.reuse.method import ByAnchors
from agentcho.reuse.registry import DEFAULT

Influence = frozenset[tuple[int, ...]]
"""The token ids of all messages that influenced an encoding, one tuple per message."""


class SetRunner(VirtualRunner):
    """Unites the influences of the gathered entries. `values` has the influence of every entry ever made."""

    origin = "sets"

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[KVEntry, Influence] = {}

    def feed(self, segment: Segment) -> None:
        """Store the influences gathered for a segment, with its own tokens if it is a whole message."""
        base = () if segment.base is None else (segment.base,)
        value = self._gathered((*segment.pieces, *base))
        if (slot := virtual(segment)) is not None:
            slot.value = value | (slot.value or frozenset())
        if segment.entry is not None:
            self.values[segment.entry] = value | _words(segment.entry)

    def keep_fed(self, slot: VirtualSlot, entry: KVEntry) -> None:
        """Store the influences that a slot has gathered, with the tokens of the entry."""
        self.values[entry] = slot.value | _words(entry)

    def of(self, entry: KVEntry) -> Influence:
        """The influence on an entry, which may not be made yet."""
        if entry in self.values:
            return self.values[entry]
        assert entry.recipe is not None
        return self._gathered(entry.recipe.context.pieces) | _words(entry)

    def _gathered(self, pieces: Iterable[ContextPiece]) -> Influence:
        """The union of the influences on these pieces; the BOS has none."""
        return frozenset[tuple[int, ...]]().union(*(self.of(piece.entry) for piece in pieces if piece.id is not None))


def _words(entry: KVEntry) -> Influence:
    assert entry.recipe is not None
    return frozenset({entry.recipe.tokens})


class SymbolicEngine(EngineCore):
    """An engine core over sets, with a BOS and a practically unlimited context.

    Influences are kept after `release`, to be compared with the recorded cones.
    """

    _runner: SetRunner

    def __init__(self) -> None:
        self._made: dict[EncodingId, KVEntry] = {}
        super().__init__(SetRunner(), FakeFraming(), 1 << 60, 0)

    @property
    def fingerprint(self) -> dict[str, str]:
        """The engine's entry in a run record."""
        return {"model": "symbolic", "model_type": "symbolic", "tokenizer": "words", "dtype": "none", "device": "none"}

    def influence(self, id: EncodingId) -> Influence:
        """The influence on a finished encoding, released or not. Raises KeyError if it was never finished."""
        return self._runner.of(self._made[id])

    def _finished(self, encoding: Encoding) -> None:
        self._made[encoding.id] = encoding.entry
        super()._finished(encoding)


class PlannedGame(NamedTuple):
    """One planned workflow: its messages with receipts, or the refusal that ended it."""

    entries: tuple[TranscriptEntry, ...]
    refusal: LeakageError | None


def audit_traces(
    path: Path,
    mode: Mode = "choreographed",
    leakage: Leakage = "audit",
    reveal: bool = False,
    deterministic: bool = False,
    key: bytes | None = None,
    repair: str | None = None,
    reuse: str = DEFAULT,
) -> AuditReport:
    """Audit every workflow of an `agentcho-trace/1` file as `mode`, `leakage`, `repair` (such as "first-k:4") and
    `reuse` (such as "in-place") would play it; each line is a game, numbered from 0. Raises `RecordBroken` or
    `RecordNotFound` for a bad or missing file, `ConfigError` if options conflict or the repair needs a model."""
    traces = read_traces(path)
    seal = Seal(key or new_key(), reveal)
    config = RunConfig(mode=mode, leakage=leakage, deterministic=deterministic, repair=repair, reuse=reuse)
    if isinstance(config.policy.repairs, ByAnchors):
        raise ConfigError(
            f"repair {repair} selects messages by a model's embeddings, and a trace is audited without a "
            "model; give another repair, or audit the record of a run"
        )
    plans = [planned(trace, config.policy) for trace in traces]
    places = dict(enumerate(_lines(path)))
    ended = {game: one.refusal for game, one in enumerate(plans) if one.refusal is not None}
    refused = {game: _refused(game, traces[game], why, place=places[game], seal=seal) for game, why in ended.items()}
    games = {game: one.entries for game, one in enumerate(plans) if one.refusal is None}
    return audit_entries(of_traces(path, traces, config, seal), games, seal, PlannedGames(places, refused))


def plan(
    trace: Workflow, mode: Mode, leakage: Leakage, deterministic: bool = False, repair: RepairBy | None = None
) -> PlannedGame:
    """Play one workflow on sets. The entries are in trace order. In baseline mode too, direct leaks are recorded if
    `leakage` is audit."""
    return planned(trace, ReusePolicy(mode, leakage, deterministic=deterministic, repair=repair))


def planned(trace: Workflow, reuse: ReusePolicy) -> PlannedGame:
    """Like `plan`, with a given policy. The positions and weights used for reading change no influence, but may change
    which encodings are made and shared."""
    engine = SymbolicEngine()
    try:
        played = replay(trace, engine, reuse, logits=False)
    except (LeakageError, ExceptionGroup) as error:
        return PlannedGame((), _refusal(error))
    order = {message.id: place for place, message in enumerate(trace.messages)}
    entries = sorted(played.entries, key=lambda entry: order[entry.message.id])
    tokens = {entry.message.id: entry.message.tokens for entry in entries}
    return PlannedGame(tuple(_believed(entry, engine, tokens) for entry in entries), None)


def _refusal(error: Exception) -> LeakageError:
    """The refusal that ended a game, the first of a group if there are several."""
    if isinstance(error, LeakageError):
        return error
    assert isinstance(error, ExceptionGroup)
    refusals, others = error.split(LeakageError)
    if refusals is None or others is not None:
        raise error
    return _refusal(refusals.exceptions[0])


def _believed(entry: TranscriptEntry, engine: SymbolicEngine, tokens: Mapping[str, tuple[int, ...]]) -> TranscriptEntry:
    """The entry with the cone emptied in each record whose cone differs from the computed influence, so that the
    verdict finds it unlabelled."""
    made = tuple(
        record if _holds(record, engine, tokens) else record._replace(cone=frozenset()) for record in entry.made
    )
    return entry._replace(made=made)


def _holds(record: EncodingRecord, engine: SymbolicEngine, tokens: Mapping[str, tuple[int, ...]]) -> bool:
    return frozenset(tokens[message] for message in record.cone) == engine.influence(record.id)


def _lines(path: Path) -> Iterator[Place]:
    """The line of each workflow of a file."""
    for number, raw in enumerate(path.read_bytes().splitlines(), start=1):
        if raw.strip():
            yield Place(file=str(path), line=number)


def _refused(game: int, trace: Workflow, refusal: LeakageError, place: Place, seal: Seal) -> RefusedGame:
    """The refused reading as if it had happened. Its encoding was never made."""
    messages = {message.id: message for message in trace.messages}
    path = refusal.path
    reader = refusal.reader
    framing = SymbolicEngine().framing
    said = tuple(notes.said(traced(message, framing), seal) for message in trace.messages)
    if not path:
        edge = _edge(game, reader, "", ()).model_copy(update={"verdict": "unlabelled"})
        return RefusedGame(Reading(edge, SCENARIO, place=place, fault=str(refusal), refused=True), said)
    call = next((m.id for m in trace.messages if m.author == reader and path[0] in m.parents), "")
    share = RevealedSecrets(messages[path[-1]].author or SCENARIO, path[-1:], path)
    author = messages[path[0]].author or SCENARIO
    return RefusedGame(Reading(_edge(game, reader, call, path), author, (share,), place, refused=True), said)


def _edge(game: int, reader: str, call: str, path: tuple[str, ...]) -> Edge:
    return Edge(
        game=game,
        reader=reader,
        call=call,
        encoding=0,
        message=path[0] if path else "",
        recipe="author",
        verdict="direct" if len(path) == 1 else "transitive",
        secrets=path[-1:],
        path=path,
        hops=max(len(path) - 1, 0),
    )

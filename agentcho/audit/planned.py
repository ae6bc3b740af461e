"""The verdict on traces without receipts: the real resolver, run on an engine that computes sets.

It finds what a run with that mode and leakage would do, so it is called planned. Does not
know: models, what a leak does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from agentcho.audit import notes
from agentcho.audit.audit import Planned, Refused, audit_entries, new_key
from agentcho.audit.notes import Seal
from agentcho.audit.report import AuditReport, Edge, Place
from agentcho.audit.subject import of_traces
from agentcho.audit.symbolic import SymbolicEngine
from agentcho.audit.verdict import Reading, Share
from agentcho.config import Leakage, Mode, RepairBy, RunConfig
from agentcho.errors import LeakageError
from agentcho.flow.labels import EncodingRecord
from agentcho.games.replay import replay
from agentcho.games.traced import traced
from agentcho.message import SCENARIO
from agentcho.records.trace import Workflow, read_traces
from agentcho.records.transcript import Entry


class Plan(NamedTuple):
    """One planned workflow: its messages with receipts, or the refusal that ended it."""

    entries: tuple[Entry, ...]
    refusal: LeakageError | None


def audit_traces(
    path: Path,
    mode: Mode = "choreographed",
    leakage: Leakage = "audit",
    reveal: bool = False,
    deterministic: bool = False,
    key: bytes | None = None,
    repair: str | None = None,
) -> AuditReport:
    """Audit every workflow of a file of `agentcho-trace/1`, as `mode`, `leakage` and `repair` (such as "first-k:4")
    would play it; a game is a line, numbered from 0. `RecordBroken`, `RecordNotFound`: the file is none."""
    traces, seal = read_traces(path), Seal(key or new_key(), reveal)
    config = RunConfig(mode=mode, leakage=leakage, deterministic=deterministic, repair=repair)
    plans = [plan(trace, mode, leakage, deterministic, config.reuse.repair) for trace in traces]
    places = dict(enumerate(_lines(path)))
    ended = {game: one.refusal for game, one in enumerate(plans) if one.refusal is not None}
    refused = {game: _refused(game, traces[game], why, places[game], seal) for game, why in ended.items()}
    games = {game: one.entries for game, one in enumerate(plans) if one.refusal is None}
    return audit_entries(of_traces(path, traces, config, seal), games, seal, Planned(places, refused))


def plan(
    trace: Workflow, mode: Mode, leakage: Leakage, deterministic: bool = False, repair: RepairBy | None = None
) -> Plan:
    """Play one workflow on sets; its entries in the order of the trace. In baseline mode direct leaks are recorded
    where `leakage` is audit, as ever."""
    engine = SymbolicEngine()
    try:
        replayed = replay(trace, engine, mode, leakage, deterministic, logits=False, repair=repair)
    except (LeakageError, ExceptionGroup) as error:
        return Plan((), _refusal(error))
    order = {message.id: place for place, message in enumerate(trace.messages)}
    entries = sorted(replayed.entries, key=lambda entry: order[entry.message.id])
    tokens = {entry.message.id: entry.message.tokens for entry in entries}
    return Plan(tuple(_believed(entry, engine, tokens) for entry in entries), None)


def _refusal(error: Exception) -> LeakageError:
    """The refusal that ended a game, taken out of a group of refusals where there are several."""
    if isinstance(error, LeakageError):
        return error
    assert isinstance(error, ExceptionGroup)
    refusals, others = error.split(LeakageError)
    if refusals is None or others is not None:
        raise error
    return _refusal(refusals.exceptions[0])


def _believed(entry: Entry, engine: SymbolicEngine, tokens: Mapping[str, tuple[int, ...]]) -> Entry:
    """The entry with the cone removed from each record whose cone is not what reached the encoding, so that the verdict
    finds it unlabelled."""
    made = tuple(
        record if _holds(record, engine, tokens) else record._replace(cone=frozenset()) for record in entry.made
    )
    return entry._replace(made=made)


def _holds(record: EncodingRecord, engine: SymbolicEngine, tokens: Mapping[str, tuple[int, ...]]) -> bool:
    return frozenset(tokens[message] for message in record.cone) == engine.influence(record.id)


def _lines(path: Path) -> Iterator[Place]:
    """The place of each workflow of a file."""
    for number, raw in enumerate(path.read_bytes().splitlines(), start=1):
        if raw.strip():
            yield Place(file=str(path), line=number)


def _refused(game: int, trace: Workflow, refusal: LeakageError, place: Place, seal: Seal) -> Refused:
    """The reading that was refused, as if it had happened. Its encoding was never made."""
    messages = {message.id: message for message in trace.messages}
    path, reader = refusal.path, refusal.reader
    framing = SymbolicEngine().framing
    said = tuple(notes.said(traced(message, framing), seal) for message in trace.messages)
    if not path:
        edge = _edge(game, reader, "", ()).model_copy(update={"verdict": "unlabelled"})
        return Refused(Reading(edge, SCENARIO, place=place, fault=str(refusal), refused=True), said)
    call = next((m.id for m in trace.messages if m.author == reader and path[0] in m.parents), "")
    share = Share(messages[path[-1]].author or SCENARIO, path[-1:], path)
    author = messages[path[0]].author or SCENARIO
    return Refused(Reading(_edge(game, reader, call, path), author, (share,), place, refused=True), said)


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

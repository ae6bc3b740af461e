"""Canonical transcripts: what two records of the same games have in common, however their games were scheduled.

Tests and users compare runs with it. Independent of how games are played.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentcho.provenance.labels import EncodingRecord
from agentcho.records.record import SavedRun
from agentcho.records.transcript import TranscriptEntry, begun, by_attempt, encoding_line

ORDER = frozenset({"after", "named", "moves"})
"""Fields of an act that depend on the order in which its game was played."""


def canonical_transcript(said: Path | SavedRun | Iterable[TranscriptEntry]) -> dict[int, dict[str, Any]]:
    """Return a transcript in canonical form, by game. Two transcripts are the same if their canonical forms are equal.

    The messages of a game are sorted by id, and its encodings by identity: message, recipe, caller, context, position.
    Ids of encodings are numbers in that order, so those of one game never depend on another. Whatever depends on
    the schedule or the machine is left out: usage, times, which line carried an encoding, what was awaited, and all
    attempts at a game but the last.

    Args:
        said: A record, its folder, or entries of a transcript.

    Returns:
        For each game its messages and encodings, as values that JSON can hold.

    Raises:
        RecordBroken: The record is damaged.

    Example::

        assert canonical_transcript(Path("runs/one")) == canonical_transcript(Path("runs/two"))
    """
    if isinstance(said, Path):
        said = SavedRun(said)
    games: dict[int, list[TranscriptEntry]] = {}
    for entry in said.entries() if isinstance(said, SavedRun) else said:
        games.setdefault(entry.message.game, []).append(entry)
    return {game: _game(by_attempt(games[game])[-1]) for game in sorted(games)}


def _game(entries: list[TranscriptEntry]) -> dict[str, Any]:
    records = [record for entry in entries for record in entry.made]
    numbers = _numbers({record.id: record for record in records})
    encodings = sorted((_encoding(record, numbers) for record in records), key=lambda line: line["id"])
    messages = sorted((_message(entry, numbers) for entry in entries), key=lambda line: line["id"])
    return {"messages": messages, "encodings": encodings}


def _message(entry: TranscriptEntry, numbers: Mapping[int, int]) -> dict[str, Any]:
    left_out = ("usage", "encodings", "attempt")
    read = json.loads(json.dumps(entry.to_json()))  # tuples become lists, as in a file
    line = {name: value for name, value in read.items() if name not in left_out}
    line["act"] = {name: value for name, value in line["act"].items() if name not in ORDER}
    own = entry.own
    return line | {"encoding": None if own is None else numbers[own.id]}


def _encoding(record: EncodingRecord, numbers: Mapping[int, int]) -> dict[str, Any]:
    context = [[numbers.get(id, 0), offset, length] for id, offset, length in record.receipt.context]
    base = None if record.receipt.base is None else numbers.get(record.receipt.base, 0)
    anchors = [numbers.get(id, 0) for id in record.receipt.anchors]
    line = encoding_line(record) | {"id": numbers[record.id], "context": context, "base": base}
    return line | ({"anchors": anchors} if anchors else {})


def _numbers(records: Mapping[int, EncodingRecord]) -> dict[int, int]:
    """A number from 1 for each encoding, by its identity; equal encodings have the same number. 0 stands for encodings
    without a record."""
    known: dict[int, tuple[str, ...]] = {}
    for id in sorted(records):  # an encoding comes after those that it attends to
        known[id] = _identity(records[id], known)
    order = {identity: number for number, identity in enumerate(sorted(set(known.values())), start=1)}
    return {id: order[identity] for id, identity in known.items()}


def _identity(record: EncodingRecord, known: Mapping[int, tuple[str, ...]]) -> tuple[str, ...]:
    """What distinguishes an encoding from others of its game: its message and caller, and a digest of what it was made
    over."""
    receipt = record.receipt
    context = [(known.get(id), offset, length) for id, offset, length in receipt.context]
    base = None if receipt.base is None else known.get(receipt.base)
    anchors = ([known.get(id) for id in receipt.anchors],) if receipt.anchors else ()
    whole = repr((context, receipt.start, begun(receipt), base, *anchors)).encode()
    return record.message, record.recipe, record.caller or "", hashlib.blake2b(whole, digest_size=16).hexdigest()

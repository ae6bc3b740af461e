"""Reconstructs the messages that were in progress when a process died, from their pieces on disk.

Independent of how a run is played.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from agentcho.errors import RecordBroken
from agentcho.records.files import read_lines
from agentcho.records.line_models import PieceLine, read
from agentcho.records.transcript import AllSeals, TranscriptEntry

PIECE = TypeAdapter(PieceLine)
Key = tuple[int, str, int]
"""(game, message, attempt)."""


def died(path: Path, entries: Sequence[TranscriptEntry], seals: AllSeals) -> list[TranscriptEntry]:
    """The messages of `heard.jsonl` that have no entry in the transcript, in the order in which they began, as far as
    they were generated. Their `ended` is "died"; if a process still writes the record, they are in progress. `seals`:
    those with which the transcript was read."""
    there = {_key(entry) for entry in entries}
    begun: dict[Key, TranscriptEntry] = {}
    pieces: dict[Key, list[PieceLine]] = {}
    for number, line in read_lines(path):
        try:
            key = (line["game"], line["id"], line.get("attempt", 1))
            if key in there:
                continue
            if "kind" in line:
                begun[key] = TranscriptEntry.from_json(line, seals[line["game"], line.get("attempt", 1)])
            else:
                _ = begun[key]
                pieces.setdefault(key, []).append(read(PIECE, line))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RecordBroken(
                f"{path}:{number}", f"not a valid piece of a message ({type(error).__name__}: {error})"
            ) from None
    return _without_doubles([_so_far(entry, pieces.get(key, [])) for key, entry in begun.items()], entries)


def _key(entry: TranscriptEntry) -> Key:
    return entry.message.game, entry.message.id, entry.attempt


def _so_far(entry: TranscriptEntry, pieces: Sequence[PieceLine]) -> TranscriptEntry:
    """A message that had begun, with the tokens and text of its later pieces."""
    said = entry.message
    tokens = (*said.tokens, *(token for piece in pieces for token in piece.tokens))
    start, text = len(said.tokens), "".join(piece.text for piece in pieces)
    content = (said.content[0], len(tokens))
    sampled = start, len(tokens)
    thought = None if said.words.thought is None else content
    whole = said.saying(
        thought=thought, tokens=tokens, text=text, content=content, sampled=sampled, canonical=len(tokens) == start
    )
    return entry._replace(message=whole, ended="died")


def _without_doubles(found: Sequence[TranscriptEntry], entries: Sequence[TranscriptEntry]) -> list[TranscriptEntry]:
    """The entries, each encoding only in the first of them that has it, and none that the transcript has."""
    there = {(entry.message.game, entry.attempt, record.id) for entry in entries for record in entry.made}
    kept = []
    for entry in found:
        fresh = [r for r in entry.made if (entry.message.game, entry.attempt, r.id) not in there]
        there.update((entry.message.game, entry.attempt, record.id) for record in fresh)
        kept.append(entry._replace(made=tuple(fresh)))
    return kept

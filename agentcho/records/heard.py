"""What was heard while it was said: every piece of every message, on disk before any code hears it.

    {"game": 0, "id": "alice.3", "kind": "decode", …}     its first token has come: an entry, as in the transcript
    {"game": 0, "id": "alice.3", "tokens": [17], "text": "so"}    and what each step brought

A message whose line in the transcript there is ended in some way; of any other this file knows what was heard by the
time the process died. Does not know: how a run is played, who listens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from agentcho.errors import RecordBroken
from agentcho.records.files import Lines, read_lines
from agentcho.records.lines import PieceLine, read
from agentcho.records.sealed import Seals
from agentcho.records.transcript import AllSeals, Entry

NAME = "heard.jsonl"
PIECE = TypeAdapter(PieceLine)
Key = tuple[int, str, int]
"""Game, message, attempt."""


class HeardLines:
    """The file being written: what is noted goes there with the next `flush`, in one write."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self._noted: list[dict[str, Any]] = []
        self._attempts: dict[int, int] = {}

    def begun(self, entry: Entry, seals: Seals | None = None) -> None:
        """Note a message of which the first token has come; `seals` are those of its game."""
        self._attempts[entry.message.game] = entry.attempt
        self._noted.append(entry.to_json(seals))

    def said(self, game: int, id: str, token: int | None, text: str) -> None:
        """Note what a step brought of it."""
        attempt = self._attempts.get(game, 1)
        again = {"attempt": attempt} if attempt > 1 else {}
        self._noted.append({"game": game, "id": id, "tokens": [] if token is None else [token], "text": text, **again})

    def flush(self) -> None:
        """Write down what was noted. It is with the kernel when this returns."""
        noted, self._noted = self._noted, []
        if noted:
            self._lines.extend(noted)

    def close(self) -> None:
        """Flush to the disk and close."""
        try:
            self.flush()
        finally:
            self._lines.close()


def died(path: Path, entries: Sequence[Entry]) -> list[Entry]:
    """The messages of a file of pieces that no entry is of, in the order in which they began, as far as they were
    heard; `ended` says "died". While somebody writes the record, they are under way."""
    there = {_key(entry) for entry in entries}
    begun: dict[Key, Entry] = {}
    pieces: dict[Key, list[PieceLine]] = {}
    seals = AllSeals(entries)
    for number, line in read_lines(path):
        try:
            key = (line["game"], line["id"], line.get("attempt", 1))
            if key in there:
                continue
            if "kind" in line:
                begun[key] = Entry.from_json(line, seals[line["game"], line.get("attempt", 1)])
            else:
                _ = begun[key]
                pieces.setdefault(key, []).append(read(PIECE, line))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RecordBroken(
                f"{path}:{number}", f"not a piece of a message ({type(error).__name__}: {error})"
            ) from None
    return _without_doubles([_so_far(entry, pieces.get(key, [])) for key, entry in begun.items()], entries)


def _key(entry: Entry) -> Key:
    return entry.message.game, entry.message.id, entry.attempt


def _so_far(entry: Entry, pieces: Sequence[PieceLine]) -> Entry:
    """The message with what it said after it had begun."""
    said = entry.message
    tokens = (*said.tokens, *(token for piece in pieces for token in piece.tokens))
    start, text = len(said.tokens), "".join(piece.text for piece in pieces)
    content = (said.content[0], len(tokens))
    sampled = start, len(tokens)
    whole = said.saying(tokens=tokens, text=text, content=content, sampled=sampled, canonical=len(tokens) == start)
    return entry._replace(message=whole, ended="died")


def _without_doubles(found: Sequence[Entry], entries: Sequence[Entry]) -> list[Entry]:
    """Each with those of its encodings that stand nowhere else."""
    there = {(entry.message.game, entry.attempt, record.id) for entry in entries for record in entry.made}
    kept = []
    for entry in found:
        fresh = [r for r in entry.made if (entry.message.game, entry.attempt, r.id) not in there]
        there.update((entry.message.game, entry.attempt, record.id) for record in fresh)
        kept.append(entry._replace(made=tuple(fresh)))
    return kept

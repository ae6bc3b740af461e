"""One attempt at a game as one agent may know it: only the words that it may read.

Everything that depends on what the agent may not read is left out: others' messages, roles and names that it never met,
receipts, times, counts, places in the code, outcomes. What an agent knows of its own messages is not shown to others.
Independent of files and HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agentcho.records.readable_record import readable_by
from agentcho.records.transcript import TranscriptEntry
from agentcho.viewer.compact_lists import Json
from agentcho.viewer.talk import agents_of, said


def readable(entries: Iterable[TranscriptEntry], reader: str) -> list[TranscriptEntry]:
    """The messages that an agent may read: complete ones, and its own."""
    return [each for each in readable_by(entries, reader) if each.ended is None or each.message.author == reader]


def reader_view(entries: Sequence[TranscriptEntry], reader: str, cast: Mapping[str, str]) -> Json:
    """The data of an attempt at a game as `reader` may know it."""
    seen = readable(entries, reader)
    names = list(dict.fromkeys([reader, *agents_of(seen)]))
    seat = {name: number for number, name in enumerate(names)}
    agents = [{"name": name, "role": cast.get(name, "") if name == reader else ""} for name in names]
    return {"agents": agents, "messages": [_message(entry, reader, seat) for entry in seen], "encodings": []}


def _message(entry: TranscriptEntry, reader: str, seat: Mapping[str, int]) -> Json:
    message = entry.message
    line = said(message, seat) | ({"header": message.header} if message.header else {})
    own = message.author == reader
    if not own:
        return line
    under_way = {"ended": entry.ended} if entry.ended == "died" else {}
    return line | under_way | ({"tokens": len(message.tokens)} if message.tokens else {})

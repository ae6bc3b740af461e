"""Which messages influenced which agent, computed from a game's records alone, to check the audit independently."""

from __future__ import annotations

from collections.abc import Iterable

from agentcho.records.transcript import TranscriptEntry


def reached(entries: Iterable[TranscriptEntry]) -> dict[str, set[str]]:
    """For each agent, the messages behind everything that it attended to as it spoke, including its own encodings:
    receipts are followed from one encoding to the next."""
    entries = list(entries)
    records = {record.id: record for entry in entries for record in entry.made}
    own = {entry.encoding: entry.message.author for entry in entries if entry.encoding is not None}
    found: dict[str, set[str]] = {}
    for id, author in own.items():
        if author is None:
            continue
        left, seen = [id], set[int]()
        while left:
            one = left.pop()
            if one not in seen:
                seen.add(one)
                left += [read.id for read in records[one].receipt.context]
        found.setdefault(author, set()).update(records[one].message for one in seen)
    return found

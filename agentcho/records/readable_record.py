"""The part of a record that an agent may read, judging only by the audiences of messages.

Independent of encodings; audits find what reached an agent through them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agentcho.message import Audience, is_default_prompt
from agentcho.records.transcript import TranscriptEntry


def readable_by(entries: Iterable[TranscriptEntry], agent: str) -> list[TranscriptEntry]:
    """The messages that an agent may read, by their audiences; messages of others are without the parents that not all
    of their readers may read, and without a default prompt, as every reader sees them: see `is_default_prompt`."""
    found = [entry for entry in entries if entry.message.audience.includes(agent)]
    audiences = {(each.message.game, each.message.id): each.message.audience for each in found}
    return [each if each.message.author == agent else _without_hidden_parents(each, audiences) for each in found]


def _without_hidden_parents(entry: TranscriptEntry, audiences: Mapping[tuple[int, str], Audience]) -> TranscriptEntry:
    said = entry.message
    shown = (parent for parent in said.parents if not is_default_prompt(parent))
    known = ((parent, audiences.get((said.game, parent))) for parent in shown)
    parents = tuple(id for id, readers in known if readers is not None and readers.covers(said.audience))
    return entry._replace(message=replace(said, parents=parents, offsets=None, new_offset=None))

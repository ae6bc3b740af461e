"""From what a transcript holds to `agentcho-trace/1`: the same messages, at the positions they were read at.

Does not know: runs, files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentcho.flow.labels import EncodingRecord
from agentcho.flow.placing import count
from agentcho.flow.views import Read, ReadSet
from agentcho.message import Message
from agentcho.records.trace import Workflow, trace_message, workflow
from agentcho.records.transcript import Entry, own_records


def exported(
    scenario: str, id: str, meta: dict[str, Any], cast: Iterable[str], entries: Sequence[Entry], tokenizer: str | None
) -> Workflow:
    """One game as a workflow. `tokenizer` is the digest of the tokenizer that its tokens are of."""
    lengths, own = {entry.message.id: len(entry.message.tokens) for entry in entries}, own_records(entries)
    line = {
        "format": "agentcho-trace/1", "workflow": scenario, "id": id, "meta": meta,
        "agents": sorted({*cast, *_named(entries)}),
        "messages": [
            trace_message(_placed(entry, own.get(entry.message.id), lengths), tokenizer, entry.ended).to_json()
            for entry in entries
        ],
    }  # fmt: skip
    return workflow(line, id)


def _placed(entry: Entry, made: EncodingRecord | None, lengths: Mapping[str, int]) -> Message:
    """The message with the positions it was really made over, where they were not simply one after the other; with
    those that were asked for where its only encodings stand in a prompt of their reader (baseline runs, repairs), and
    where it has none."""
    message = entry.message
    if made is None or made.recipe in ("baseline", "repaired"):
        return _asked(entry, made is not None and made.receipt.bos, lengths)
    end, plain = int(made.receipt.bos), True
    for _, offset, length in made.receipt.context:
        plain &= offset == end
        end = offset + length
    if plain and made.receipt.start == end:
        return message
    offsets = tuple(read.offset for read in made.receipt.context)
    return replace(message, offsets=offsets, new_offset=made.receipt.start)


def _asked(entry: Entry, bos: bool, lengths: Mapping[str, int]) -> Message:
    """The message with the positions that its places come to."""
    message, places = entry.message, entry.act.places
    if not any(place is not None for place in places):
        return message
    reads = tuple(Read(id, at) for id, at in zip(message.parents, places, strict=False))
    known = [lengths.get(id) for id in message.parents]
    read_set = ReadSet(message.author, reads, places[-1], ())
    *offsets, start = count(read_set, known, int(bos))
    return replace(message, offsets=tuple(offsets), new_offset=start)


def _named(entries: Iterable[Entry]) -> set[str]:
    names = {e.message.author for e in entries if e.message.author is not None}
    return names.union(*(e.message.audience.members or () for e in entries))

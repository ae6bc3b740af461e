"""Analyzes the prompt of each call: which tokens were reused, encoded and sampled.

A prompt is the context that a call read and the opening tokens of its own message. `MessageUsage.reused` is the number
of its tokens that came from the store; receipts give their places. Independent of files and HTML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from agentcho.protocol.call import ContextEntry
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.transcript import TranscriptEntry
from agentcho.viewer.compact_lists import Json


class CallPrompt(NamedTuple):
    """The prompt of one call. `runs` are numbers of tokens in prompt order: reused, encoded, reused, and so on.
    `placed`: the record tells where in the prompt the reused tokens are. `reported`: it tells how many there are.
    `repaired`: some encodings were repaired. They count as encoded, although they kept tokens of others."""

    runs: tuple[int, ...]
    sampled: int
    placed: bool = True
    reported: bool = True
    repaired: bool = False

    @property
    def reused(self) -> int:
        """Tokens of the prompt that were not encoded for this call."""
        return sum(self.runs[::2])

    @property
    def encoded(self) -> int:
        """Tokens of the prompt that were encoded for this call."""
        return sum(self.runs[1::2])

    def json(self) -> Json:
        """The page's form."""
        marks = {"unplaced": not self.placed, "unreported": not self.reported, "repaired": self.repaired}
        return {"prompt": self.runs} | {name: True for name, marked in marks.items() if marked}


def prompts(entries: Sequence[TranscriptEntry]) -> dict[str, CallPrompt]:
    """The prompt of each call with a known cost, by message, of one attempt at a game."""
    twins = _twins(record for entry in entries for record in entry.made)
    found = dict[str, CallPrompt]()
    for entry in entries:
        prompt = _prompt(entry, twins)
        if prompt is not None:
            found[entry.message.id] = prompt
    return found


def _prompt(entry: TranscriptEntry, twins: frozenset[int]) -> CallPrompt | None:
    spent, own = entry.usage.spent, entry.own
    if spent is not None:
        return _reported(spent.prompt, spent.cached, spent.completion)
    start, stop = entry.generated
    if own is None or stop == 0 or entry.ended == "died":
        return None
    context = own.receipt.context
    fresh = _fresh(entry, context, twins)
    pieces = [(piece.length, piece.id in fresh) for piece in context] if fresh is not None else _summed(entry, context)
    read = {piece.id for piece in context}
    repaired = any(record.receipt.base is not None and record.id in read for record in entry.made)
    return CallPrompt(
        _runs([*pieces, (start, True)]), stop - start, placed=fresh is not None, reported=True, repaired=repaired
    )


def _reported(prompt: int | None, cached: int | None, completion: int | None) -> CallPrompt | None:
    """The prompt of a call to a model behind an API. Its server caches prefixes."""
    if prompt is None:
        return None
    runs = _runs([(min(cached or 0, prompt), False), (prompt - min(cached or 0, prompt), True)])
    return CallPrompt(runs, completion or 0, reported=cached is not None)


def _summed(entry: TranscriptEntry, context: Sequence[ContextEntry]) -> list[tuple[int, bool]]:
    total = sum(piece.length for piece in context)
    reused = min(entry.usage.reused, total)
    return [(reused, False), (total - reused, True)]


def _fresh(entry: TranscriptEntry, context: Sequence[ContextEntry], twins: frozenset[int]) -> frozenset[int] | None:
    """The encodings in a context that were made for this call, or None if they do not add up to what was reused.

    These are the ones on the call's own line. A twin on that line may have been encoded by another call meanwhile.
    """
    made = {record.id for record in entry.made}
    mine = [piece for piece in context if piece.id in made]
    left = entry.usage.reused - sum(piece.length for piece in context if piece.id not in made)
    fresh = {piece.id for piece in mine}
    for piece in mine:
        if piece.id in twins and piece.length <= left:
            left -= piece.length
            fresh.discard(piece.id)
    return frozenset(fresh) if left == 0 else None


def _twins(records: Iterable[EncodingRecord]) -> frozenset[int]:
    """Encodings that have an equal one: calls of one step that lack the same encoding share it."""
    keys = {each.id: _key(each) for each in records}
    counts = Counter(keys.values())
    return frozenset(id for id, key in keys.items() if counts[key] > 1)


def _key(record: EncodingRecord) -> tuple[Hashable, Hashable]:
    """What twins have in common."""
    receipt = record.receipt
    return (record.message, record.recipe, record.engine), (receipt.start, len(receipt.context))


def _runs(pieces: Iterable[tuple[int, bool]]) -> tuple[int, ...]:
    """Lengths, each with whether it was encoded, as alternating sums that begin with the reused ones."""
    found = [0]
    for length, encoded in pieces:
        if not length:
            continue
        if encoded != (len(found) % 2 == 0):
            found.append(0)
        found[-1] += length
    return tuple(found)

"""Finds the parts of contexts that several rows can read in one place: runs of consecutive pieces.

A row can read a run at any position, if the pieces have the distances at which they were gathered (see
`attention.shared_prefix`). Independent of rows and of storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from agentcho.engine.call_layout import CallContext, ContextPiece, KVEntry
from agentcho.runner.kv.decode_kv import Pieces, tokens

LEAST = 64
"""The fewest tokens of a run that is shared: below that, reading it separately takes longer than reading it several
times."""
_Beside = tuple[KVEntry, int] | None
"""The preceding piece's entry, and the distance in positions from it; None if there is no such piece."""


def runs(contexts: Iterable[CallContext], saved: int = 0) -> Iterator[Pieces]:
    """The runs worth sharing in contexts that are about to be read, each at the positions of its first reader: those
    that save reading at least `saved` tokens. Every context that has one piece of a run has all of them, in this order,
    at these distances, each once. Contexts whose keys are weighed by a reuse method share none."""
    every = [context.pieces for context in contexts if context.parallel is None]
    counts, before, twice = _neighbours(every)
    found, run = set[KVEntry](), list[ContextPiece]()

    def whole() -> Iterator[Pieces]:
        if (length := tokens(run)) >= LEAST and length * (counts[run[0].entry] - 1) >= saved:
            yield tuple(run)
        run.clear()

    for pieces in every:
        for piece in pieces:
            entry = piece.entry
            if entry in found:
                continue
            found.add(entry)
            alone, beside = entry in twice or counts[entry] < 2, before[entry]
            follows = beside is not None and run and beside[0] is run[-1].entry and counts[beside[0]] == counts[entry]
            if run and (alone or not follows):
                yield from whole()
            if not alone:
                run.append(piece)
        yield from whole() if run else ()


def _neighbours(every: Iterable[Pieces]) -> tuple[dict[KVEntry, int], dict[KVEntry, _Beside], set[KVEntry]]:
    """The number of contexts that each entry is in; its preceding piece, if the same in all of them; and the entries
    that occur more than once in a context."""
    counts, before, twice = dict[KVEntry, int](), dict[KVEntry, _Beside](), set[KVEntry]()
    for pieces in every:
        last: ContextPiece | None = None
        if len({piece.entry for piece in pieces}) < len(pieces):
            twice |= {entry for entry, count in Counter(piece.entry for piece in pieces).items() if count > 1}
        for piece in pieces:
            entry = piece.entry
            beside = None if last is None else (last.entry, piece.offset - last.offset)
            if entry not in counts:
                counts[entry], before[entry] = 1, beside
            else:
                counts[entry] += 1
                if before[entry] != beside:
                    before[entry] = None
            last = piece
    return counts, before, twice


def alike(run: Sequence[ContextPiece], pieces: Sequence[ContextPiece]) -> int:
    """The number of these pieces that match a run, from its first piece on, at the same distances."""
    if not run or not pieces:
        return 0
    pairs, shift = zip(run, pieces, strict=False), pieces[0].offset - run[0].offset
    same = (one.entry is other.entry and other.offset - one.offset == shift for one, other in pairs)
    return next((place for place, here in enumerate(same) if not here), min(len(run), len(pieces)))

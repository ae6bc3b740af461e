"""Which parts of contexts several rows can read in one place: runs of neighbouring pieces.

A row can read a run wherever that stands for it, if the pieces stand to each other as they were gathered (see
`attention.shared_prefix`). Does not know: rows, where anything is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from agentcho.engine.call_layout import CallContext, ContextPiece, KVEntry
from agentcho.runner.kv.decode_kv import Pieces, tokens

LEAST = 64
"""A run of fewer tokens is not shared: to read it apart takes longer than to read it several times."""
_Beside = tuple[KVEntry, int] | None
"""The neighbour of a piece, and how many positions further along it stands; None: it has none."""


def runs(contexts: Iterable[CallContext], saved: int = 0) -> Iterator[Pieces]:
    """The runs that are worth sharing of contexts that are about to be read, each as the first of its readers has it:
    those that save copies of at least so many tokens. Where one of its pieces stands, there stand all of them, in this
    order and at these distances, each once. Rows that weigh their keys otherwise share none."""
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
    """In how many contexts each entry is; what stands before it, where that is the same in all of them; and which
    entries are in one context more than once."""
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
    """How many of these pieces are those of a run, from its first on, at the same distances."""
    if not run or not pieces:
        return 0
    pairs, shift = zip(run, pieces, strict=False), pieces[0].offset - run[0].offset
    same = (one.entry is other.entry and other.offset - one.offset == shift for one, other in pairs)
    return next((place for place, here in enumerate(same) if not here), min(len(run), len(pieces)))

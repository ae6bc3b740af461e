"""Which parts of contexts several rows can read in one place: runs of neighbouring pieces.

A row can read a run wherever that stands for it, if the pieces stand to each other as they were gathered (see
`inplace`). Does not know: rows, where anything is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agentcho.engine.cache import KVEntry
from agentcho.engine.layout import Context, Piece

LEAST = 64
"""A run of fewer tokens is not shared: to read it apart takes longer than to read it several times."""
Pieces = tuple[Piece, ...]
_Beside = tuple[KVEntry, int] | None
"""The neighbour of a piece, and how many positions further along it stands; None: it has none."""


def tokens(pieces: Iterable[Piece]) -> int:
    """The number of tokens of these pieces."""
    return sum(piece.entry.length for piece in pieces)


def runs(contexts: Iterable[Context], saved: int = 0) -> Iterator[Pieces]:
    """The runs that are worth sharing of contexts that are about to be read, each as the first of its readers has it:
    those that save copies of at least so many tokens. Where one of its pieces stands, there stand all of them, in this
    order and at these distances, each once."""
    every = [context.pieces for context in contexts]
    before, after = dict[KVEntry, list[_Beside]](), dict[KVEntry, list[_Beside]]()
    twice = set[KVEntry]()
    for pieces in every:
        seen = set[KVEntry]()
        for place, piece in enumerate(pieces):
            twice |= {piece.entry} & seen
            seen.add(piece.entry)
            before.setdefault(piece.entry, []).append(_beside(piece, pieces[place - 1]) if place else None)
            last = place + 1 == len(pieces)
            after.setdefault(piece.entry, []).append(None if last else _beside(piece, pieces[place + 1]))
    joined = {entry for entry in after if entry not in twice and _joins(entry, before, after, twice)}
    found = set[KVEntry]()
    for pieces in every:
        run = list[Piece]()
        for piece in pieces:
            new = piece.entry not in found and piece.entry not in twice and len(after[piece.entry]) > 1
            found.add(piece.entry)
            run += [piece] if new else []
            if run and piece.entry not in joined:
                if (length := tokens(run)) >= LEAST and length * (len(after[run[0].entry]) - 1) >= saved:
                    yield tuple(run)
                run = []


def _beside(piece: Piece, other: Piece) -> _Beside:
    return other.entry, other.offset - piece.offset


def _joins(
    entry: KVEntry, before: dict[KVEntry, list[_Beside]], after: dict[KVEntry, list[_Beside]], twice: set[KVEntry]
) -> bool:
    """Whether the same piece follows this one wherever one of them stands."""
    follows = {*after[entry]}
    if len(follows) > 1 or (next := follows.pop()) is None or next[0] in twice:
        return False
    return {*before[next[0]]} == {(entry, -next[1])}


def alike(run: Sequence[Piece], pieces: Sequence[Piece]) -> int:
    """How many of these pieces are those of a run, from its first on, at the same distances."""
    if not run or not pieces:
        return 0
    pairs, shift = zip(run, pieces, strict=False), pieces[0].offset - run[0].offset
    same = (one.entry is other.entry and other.offset - one.offset == shift for one, other in pairs)
    return next((place for place, here in enumerate(same) if not here), min(len(run), len(pieces)))

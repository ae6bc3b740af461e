"""From what a call reads to the encodings it reads it through, by mode; makes what is missing in the same submit.

choreographed: each message through its author's encoding E(m), made once. baseline: each message encoded in the
caller's own prompt; a prompt is a path of message ids, and equal beginnings of paths are shared. Re-encoding is
from token ids where they are known. Does not know: policies, the event loop, what a leak is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentcho.config import Mode
from agentcho.errors import BadOffsets
from agentcho.message import Message, Metadata
from agentcho.provenance import Recipe
from agentcho.request import EncodingId, Prefill
from agentcho.visibility import Place, ReadSet


@dataclass(eq=False)
class Utterance:
    """A message as the game keeps it. `message` is None until it is encoded for the first time."""

    metadata: Metadata
    text: str
    name: str | None
    reads: ReadSet
    message: Message | None = None

    def prefill(self, parents: Sequence[EncodingId | Prefill], offsets: Sequence[int | None] | None,
                new_offset: int | None) -> Prefill:  # fmt: skip
        """The call that encodes it again, from its content's ids once they are known."""
        said = self.message
        content = None if said is None else said.tokens[said.content[0] : said.content[1]]
        return Prefill(self.text, parents, offsets, new_offset, self.metadata.role, self.name, content)


class Missing(NamedTuple):
    """An encoding that a call lacks: of which message, by which recipe, at which path (baseline)."""

    message: str
    recipe: Recipe
    path: tuple[str, ...]
    call: Prefill


class Resolved(NamedTuple):
    """What a call attends to: ids, or calls in `missing` (to be submitted before it, in order), and positions."""

    missing: tuple[Missing, ...]
    parents: tuple[EncodingId | Prefill, ...]
    offsets: tuple[int | None, ...] | None
    new_offset: int | None


class Resolver:
    """The encodings of one game's messages.

    `lengths` are tokens by message id, known once encoded; `bos` says whether contexts begin after a BOS.
    """

    def __init__(self, mode: Mode) -> None:
        self.mode: Mode = mode
        self.utterances: dict[str, Utterance] = {}
        self._author: dict[str, EncodingId] = {}
        self._paths: dict[tuple[str, ...], EncodingId] = {}
        self.bos = False

    def resolve(self, reads: ReadSet) -> Resolved:
        """The context of a call with this read set."""
        if self.mode == "baseline":
            return self._path(tuple(read.id for read in reads.reads))
        missing: dict[str, Missing] = {}
        return self._context(reads, missing)

    def placed_after(self, reads: ReadSet) -> list[str]:
        """Messages that must be encoded first because a position of the read set counts from their end."""
        if self.mode == "baseline" or all(place is None or isinstance(place, int) for place in _places(reads)):
            return []
        return [read.id for read in reads.reads if read.id not in self._author]

    def enter(self, message: str, recipe: Recipe, path: tuple[str, ...], id: EncodingId) -> bool:
        """Take a finished encoding in; False where one was there already: this one is its twin."""
        if recipe == "baseline":
            return self._paths.setdefault(path, id) == id
        return self._author.setdefault(message, id) == id

    def _context(self, reads: ReadSet, missing: dict[str, Missing]) -> Resolved:
        parents = tuple(self._through_author(read.id, missing) for read in reads.reads)
        offsets, new_offset = self._positions(reads)
        return Resolved(tuple(missing.values()), parents, offsets, new_offset)

    def _through_author(self, id: str, missing: dict[str, Missing]) -> EncodingId | Prefill:
        if id in self._author:
            return self._author[id]
        if id not in missing:
            utterance = self.utterances[id]
            own = self._context(utterance.reads, missing)
            call = utterance.prefill(own.parents, own.offsets, own.new_offset)
            missing[id] = Missing(id, "author", (), call)
        return missing[id].call

    def _positions(self, reads: ReadSet) -> tuple[tuple[int | None, ...] | None, int | None]:
        """Absolute positions; None where the engine's default says the same."""
        places = _places(reads)
        if all(place is None for place in places):
            return None, None
        if all(place is None or isinstance(place, int) for place in places):
            *offsets, new = (place if isinstance(place, int) else None for place in places)
            return tuple(offsets), new
        return self._count(reads)

    def _count(self, reads: ReadSet) -> tuple[tuple[int | None, ...], int | None]:
        """Absolute positions as far as lengths are known; None, which is right after the preceding one, beyond."""
        end: int | None = int(self.bos)
        ends, offsets = dict[str, int](), list[int | None]()
        for read in reads.reads:
            start = _position(read.at, end, ends)
            offsets.append(start)
            message = self.utterances[read.id].message
            end = None if start is None or message is None else start + len(message.tokens)
            if end is not None:
                ends[read.id] = end
        return tuple(offsets), _position(reads.new_at, end, ends)

    def _path(self, path: tuple[str, ...]) -> Resolved:
        """Each message over all before it, in the caller's own order; offsets play no part."""
        missing, parents = list[Missing](), list[EncodingId | Prefill]()
        for end, id in enumerate(path, start=1):
            known = self._paths.get(path[:end])
            if known is None:
                call = self.utterances[id].prefill(tuple(parents), None, None)
                missing.append(Missing(id, "baseline", path[:end], call))
            parents.append(missing[-1].call if known is None else known)
        return Resolved(tuple(missing), tuple(parents), None, None)


def _places(reads: ReadSet) -> list[Place]:
    return [*(read.at for read in reads.reads), reads.new_at]


def _position(place: Place, end: int | None, ends: dict[str, int]) -> int | None:
    if place is None or isinstance(place, int):
        return end if place is None else place
    if place.id not in ends:
        raise BadOffsets(f"a message is placed after {place.id!r}, which stands nowhere before it in the view")
    return ends[place.id] + place.plus

"""Checks the integrity of stored keys and values, the counts of their holders, and their labels. Repairs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from agentcho.engine.cache import Encoding, TieredCache
from agentcho.engine.call_layout import EncodingRecipe, KVEntry
from agentcho.engine.sequence import Sequence as Admitted
from agentcho.errors import StoreDamaged
from agentcho.protocol.call import EncodingId


class Integrity:
    """Checks every entry that is still reachable: named by an id, held by an unfinished call, pinned, or needed to make
    one of these again. Use it between steps."""

    def __init__(self, tiers: TieredCache, encodings: Mapping[EncodingId, Encoding], calls: Sequence[Admitted]) -> None:
        self._tiers = tiers
        self._encodings = encodings
        self._calls = calls
        self._holders = Counter(encoding.entry for encoding in encodings.values())
        self._holders.update(entry for call in calls for entry in call.holds)
        self._holders.update(entry for owner in tiers.pins if owner not in calls for entry in tiers.pins[owner])
        self._storages = _closure([*self._holders, *tiers.resident, *tiers.outside.entries, *tiers.beneath.entries])

    def check(self) -> None:
        """Raise `StoreDamaged` unless all of this holds:

        - each page is free or belongs to one entry, and the promised pages are those of running calls;
        - each entry is in at most one tier, and its counts of holders and pins are right;
        - each entry in the store, in host memory or on disk has the checksum that was taken when it first moved or was
          first checked (now, if none was taken yet), and each file is as it was written;
        - each dropped entry can be made again;
        - key, position and length of an entry are those of its recipe, and its tokens and positions are those of the
          words and the receipt of each of its ids.
        """
        self._pages()
        self._counts()
        for entry in self._storages:
            self._tier(entry)
            self._label(entry)
            self._content(entry)
        for encoding in self._encodings.values():
            self._words(encoding)

    def _pages(self) -> None:
        store = self._tiers.store
        store.check([(entry.pages, entry.length) for entry in self._storages if entry.pages is not None])
        promised = sum(call.reserved for call in self._calls)
        _sound(promised == store.reserved, f"{store.reserved} pages are promised, and running calls have {promised}")
        _sound(store.used + store.reserved <= store.limit, "more pages are used and promised than there are")

    def _counts(self) -> None:
        tiers = self._tiers
        for entry in self._storages:
            named = self._holders[entry]
            _sound(entry.holders == named, f"an encoding counts {entry.holders} holders and has {named}")
        pinned = Counter(entry for pins in tiers.pins.values() for entry in pins)
        _sound(pinned == tiers.pinned, "pins do not add up")
        pages = sum(tiers.store.pages_for(entry.length) for entry in pinned)
        _sound(tiers.available == tiers.store.limit - tiers.store.reserved - pages, "pinned pages do not add up")
        for shelf, where in ((tiers.outside, "host memory"), (tiers.beneath, "the disk")):
            _sound(shelf.used == sum(entry.length for entry in shelf.entries), f"{where} does not add up")

    def _tier(self, entry: KVEntry) -> None:
        tiers, here = self._tiers, entry.pages is not None
        _sound(here == (entry in tiers.resident), "a block is not in the order of use")
        _sound((entry.host is not None) == (entry in tiers.outside), "a copy is not in the order of use")
        _sound((entry.file is not None) == (entry in tiers.beneath), "a file is not in the order of use")
        places = here + (entry.host is not None) + (entry.file is not None)
        _sound(places <= 1, "an encoding is in two tiers")
        _sound(entry.holders > 0 or not places, "what nobody holds takes room")
        _sound(here or not tiers.pinned[entry], "what is pinned is not in the store")

    def _label(self, entry: KVEntry) -> None:
        recipe = entry.recipe
        if recipe is None:
            raise StoreDamaged("an encoding has no recipe")
        label = (entry.key, entry.position, entry.length)
        _sound(label == (recipe.key, recipe.context.start, len(recipe.tokens)), "a label is not that of the recipe")
        if entry.ready:
            _sound(_complete(recipe), "an encoding could not be made again")

    def _content(self, entry: KVEntry) -> None:
        copy = entry.host if entry.file is None else self._tiers.read(entry.file)
        if entry.pages is not None and entry.ready:
            [copy] = self._tiers.store.copy_out([entry.pages])
        if copy is not None:
            found = self._tiers.store.checksum(copy)
            entry.digest = found if entry.digest is None else entry.digest
            _sound(entry.digest == found, "keys or values have changed since their checksum was taken")

    def _words(self, encoding: Encoding) -> None:
        recipe, receipt = encoding.entry.recipe, encoding.receipt
        assert recipe is not None
        _sound(encoding.words.tokens == recipe.tokens, f"encoding {encoding.id} has other words than its recipe")
        entries = [(piece.offset, piece.entry.length) for piece in recipe.context.pieces if piece.id is not None]
        named = [(entry.offset, entry.length) for entry in receipt.context]
        _sound(
            named == entries and receipt.start == recipe.context.start, f"encoding {encoding.id} has another receipt"
        )


def _sound(holds: bool, otherwise: str) -> None:
    if not holds:
        raise StoreDamaged(otherwise)


def _complete(recipe: EncodingRecipe) -> bool:
    """Whether the recipe can be followed: all its sources were made, and every token is accounted for."""
    fed = not recipe.feeds or sum(recipe.feeds) == len(recipe.tokens)
    placed = bool(recipe.places) and max(recipe.places) < len(recipe.tokens)
    repaired = recipe.base is None or bool(recipe.anchors) or placed
    return fed and repaired and all(source.ready for source in recipe.sources)


def _closure(entries: Sequence[KVEntry]) -> list[KVEntry]:
    """These entries and all entries that any of them is made from, each once."""
    found: dict[KVEntry, None] = {}
    left = list(entries)
    while left:
        entry = left.pop()
        if entry not in found:
            found[entry] = None
            left += () if entry.recipe is None else entry.sources
    return list(found)

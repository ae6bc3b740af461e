"""What the fake keeps instead of keys and values: equal ones once, counted by who holds them.

Does not know: calls, ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(eq=False)
class Page:
    """One message's tokens in one context. `ready` once a step has fed it."""

    key: bytes
    length: int
    ready: bool = False
    holders: int = 1


class Pages:
    """All pages that something holds; `len` counts them."""

    def __init__(self) -> None:
        self._held: set[Page] = set()
        self._by_key: dict[bytes, Page] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def tokens(self) -> int:
        """How many tokens they are of."""
        return sum(page.length for page in self._held)

    def take(self, key: bytes, length: int) -> Page:
        """The page of a prefill: that of an equal one, held once more, or a new one."""
        known = self._by_key.get(key)
        if known is None:
            known = self._by_key[key] = self.add(key, length)
        else:
            self.hold([known])
        return known

    def add(self, key: bytes, length: int, ready: bool = False) -> Page:
        """A new page, shared with none."""
        page = Page(key, length, ready)
        self._held.add(page)
        return page

    def hold(self, pages: Iterable[Page]) -> None:
        """One holder more for each."""
        for page in pages:
            page.holders += 1

    def drop(self, pages: Iterable[Page]) -> None:
        """One holder less for each; what nobody holds is gone."""
        for page in pages:
            page.holders -= 1
            if page.holders == 0:
                self._held.remove(page)
                if self._by_key.get(page.key) is page:
                    del self._by_key[page.key]


def key_of(context: Sequence[tuple[Page, int]], start: int, tokens: Sequence[int], kind: str) -> bytes:
    """A digest that names what tokens are encoded, over which (page, offset), from which position."""
    above = [(page.key, offset) for page, offset in context]
    return hashlib.blake2b(repr((kind, above, start, list(tokens))).encode(), digest_size=16).digest()

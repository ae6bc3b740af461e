"""A toy tokenizer and framing for the fake engine: words as tokens, reversible. Does not know: calls."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from agentcho.errors import RequestError

BOS, START, MESSAGE, END = range(4)
ROLES = {"system": 4, "user": 5, "assistant": 6}
FIRST_WORD = 16


class Words:
    """A reversible toy tokenizer: a token is a word with the space before it; its id is a hash of it."""

    def __init__(self) -> None:
        self._pieces: dict[int, str] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of a text; no text gives an id of framing."""
        return [self._id(piece) for piece in re.findall(r"\s?[^\s]+|\s", text)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids that `encode` gave."""
        return "".join(self._pieces[id] for id in ids)

    def check(self, ids: Iterable[int]) -> tuple[int, ...]:
        """Ids that are content. `RequestError`: one is of framing, or of no word that was ever encoded."""
        given = tuple(ids)
        wrong = sorted(set(given) - self._pieces.keys())
        if wrong:
            raise RequestError(f"token ids {wrong} are special or unknown and cannot be content; leave framing out")
        return given

    def _id(self, piece: str) -> int:
        id = FIRST_WORD + int.from_bytes(hashlib.blake2b(piece.encode(), digest_size=6).digest())
        self._pieces[id] = piece
        return id


class FakeFraming:
    """Framing of the fake: `START role name MESSAGE … END`. No word has one of their ids, so no text can spell them."""

    plain: tuple[tuple[str, str], ...] = ()

    def __init__(self) -> None:
        self.content = Words()

    def opening(self, role: str, name: str | None) -> tuple[int, ...]:
        """Ids before the content."""
        if role not in ROLES:
            raise RequestError(f"unknown role {role!r}; roles are {', '.join(ROLES)}")
        return (START, ROLES[role], *self.content.encode(name or ""), MESSAGE)

    def closing(self, role: str) -> tuple[int, ...]:
        """Ids after it."""
        return (END,)

"""The bytes of the tokens of a vocabulary, and tokenizations of given bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llguidance.hf
from llguidance import LLTokenizer


class TokenBytes:
    """The vocabulary of a Hugging Face tokenizer, of `size` ids, in which `stop` ends a document. `table` is the same
    in llguidance's form. Construction takes up to a second for a large vocabulary."""

    def __init__(self, tokenizer: Any, size: int, stop: int) -> None:
        self.size, self.stop = size, stop
        self.known = max(size, len(tokenizer))
        """The ids of the table. Some tokenizers know ids beyond the vocabulary, such as that of images in Gemma 3."""
        self.table: LLTokenizer = llguidance.hf.from_tokenizer(tokenizer, self.known, stop)
        self._bytes = [self._plain(id) for id in range(size)]
        self._ids: dict[bytes, int] = {}
        for id, spelt in enumerate(self._bytes):
            if spelt:
                self._ids.setdefault(spelt, id)
        self._longest = max(map(len, self._ids), default=0)
        alone = {spelt[0] for spelt in self._ids if len(spelt) == 1}
        self.letters = bytes(byte for byte in range(256) if byte in alone or byte >= 0x80)
        """The bytes that can be spelt one by one, and all those of letters beyond ASCII, which some vocabularies have
        as whole letters only."""

    def _plain(self, id: int) -> bytes:
        return b"" if id == self.stop or self.table.is_special_token(id) else self.table.decode_bytes([id])

    def of(self, token: int) -> bytes:
        """The bytes of a token; empty for a special one."""
        return self._bytes[token]

    def tokens(self, spelt: bytes) -> tuple[int, ...] | None:
        """Tokens that spell these bytes: the tokenizer's own if they do, or None if there are no such tokens."""
        found = self.table.tokenize_bytes(spelt)
        return tuple(found) if self._spells(found, spelt) else self._longest_first(spelt)

    def _spells(self, tokens: Sequence[int], spelt: bytes) -> bool:
        known = all(0 <= token < self.size for token in tokens)
        return known and b"".join(map(self.of, tokens)) == spelt

    def _longest_first(self, spelt: bytes) -> tuple[int, ...] | None:
        found, at = list[int](), 0
        while at < len(spelt):
            sizes = range(min(self._longest, len(spelt) - at), 0, -1)
            size = next((size for size in sizes if spelt[at : at + size] in self._ids), 0)
            if not size:
                return None
            found.append(self._ids[spelt[at : at + size]])
            at += size
        return tuple(found)

"""Sets of token ids as bits: as the words that llguidance fills, and as rows of a table on a device.

The ids that a row may draw are never a Python list: for a vocabulary of 128,000 tokens a mask has 16 KB; the masks of
all rows of a step are copied to the device at once and unpacked there. Independent of logits and grammars.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import llguidance.numpy
import numpy as np
import torch
from llguidance import LLMatcher
from numpy.typing import NDArray
from torch import Tensor

from agentcho.engine.generation import SamplingDraw, TokenLimits

WORD = 32
"""The number of ids in a word."""
Words = NDArray[np.int32]


class TokenMask:
    """A set of ids of a vocabulary. Immutable."""

    def __init__(self, words: Words, size: int) -> None:
        """
        Args:
            words: Bit i % 32 of word i // 32 says whether id i is in the set.
            size: The number of ids in the vocabulary. Bits beyond it are cleared.
        """
        self.words, self.size = words, size
        if rest := size % WORD:
            words[-1] &= (1 << rest) - 1

    @classmethod
    def of(cls, ids: Iterable[int], size: int) -> TokenMask:
        """The set of these ids."""
        words = np.zeros(_words(size), dtype=np.uint32)
        for id in ids:
            words[id // WORD] |= np.uint32(1 << id % WORD)
        return cls(words.view(np.int32), size)

    @classmethod
    def where(cls, flags: NDArray[np.bool_]) -> TokenMask:
        """The flagged ids, of a vocabulary as large as the array."""
        whole = np.zeros(_words(len(flags)) * WORD, dtype=bool)
        whole[: len(flags)] = flags
        return cls(np.packbits(whole, bitorder="little").view(np.int32), len(flags))

    @classmethod
    def after(cls, matcher: LLMatcher, size: int, known: int) -> TokenMask:
        """The ids of a vocabulary of `size` that a matcher accepts next. `known`: the number of ids in its table."""
        words: Any = llguidance.numpy.allocate_token_bitmask(1, known)
        llguidance.numpy.fill_next_token_bitmask(matcher, words, 0)
        return cls(words[0, : _words(size)], size)

    def __contains__(self, id: int) -> bool:
        return 0 <= id < self.size and bool(int(self.words[id // WORD]) >> id % WORD & 1)

    def __or__(self, other: TokenMask) -> TokenMask:
        return TokenMask(self.words | other.words, self.size)

    def also(self, id: int) -> TokenMask:
        """The set with one more id."""
        return self | TokenMask.of([id], self.size)

    def __and__(self, other: TokenMask) -> TokenMask:
        return TokenMask(self.words & other.words, self.size)

    @property
    def only(self) -> int | None:
        """The one id in the set, or None if it has none or several."""
        places = self.words.nonzero()[0]
        if len(places) != 1:
            return None
        word = int(self.words[places[0]]) % (1 << WORD)
        return None if word & (word - 1) else int(places[0]) * WORD + word.bit_length() - 1

    def tolist(self) -> list[int]:
        """All ids, in ascending order. For a large set this takes longer than a decode step."""
        found: list[int] = np.unpackbits(self.words.view(np.uint8), bitorder="little").nonzero()[0].tolist()
        return found


class Banned:
    """The ids that no message may contain."""

    def __init__(self, ids: Sequence[int], size: int, device: torch.device) -> None:
        """
        Args:
            ids: The banned ids.
            size: The number of ids in the vocabulary.
            device: The device of the logits.
        """
        flags = np.zeros(size, dtype=bool)
        flags[[*ids]] = True
        self.flags = torch.from_numpy(flags).to(device)
        """Bool `[vocab]`, on the device."""
        self.others = TokenMask.where(~flags)
        """All other ids."""


class RowMasks(NamedTuple):
    """What the rows of a step may draw.

    Attributes:
        table: The bytes of each mask, `[masks, bytes]`, in host memory.
        rows: The index of each row's mask.
        size: The number of ids in the vocabulary.
    """

    table: Tensor
    rows: Sequence[int]
    size: int

    def on(self, table: Tensor, which: Tensor) -> Tensor:
        """The tokens that each row may draw, bool `[rows, vocab]`. `table` and `which` are the `table` and `rows` of
        this object, on the device."""
        found = _unpacked(table)[:, : self.size]
        return found if self.rows == range(len(found)) else found.index_select(0, which)


def _unpacked(table: Tensor) -> Tensor:
    """The bits of bytes `[rows, bytes]`, as bool `[rows, 8 * bytes]` on the same device."""
    if table.device.type == "cpu":
        return torch.from_numpy(np.unpackbits(table.numpy(), axis=1, bitorder="little")).view(torch.bool)
    places = 1 << torch.arange(8, dtype=torch.uint8, device=table.device)
    return (table.unsqueeze(-1) & places).ne(0).flatten(1)


def row_masks(draws: Sequence[SamplingDraw], banned: Banned) -> RowMasks:
    """The masks of a step's rows. Rows without a constraint or a limit share one."""
    masks, rows, size = list[TokenMask](), list[int](), banned.others.size
    free: int | None = None
    for draw in draws:
        if draw.allowed is not None:
            masks.append(_mask(draw.allowed, size))
        elif draw.limits is not None:
            masks.append(_limited(draw.limits, banned.others))
        elif free is None:
            free = len(masks)
            masks.append(banned.others)
        else:
            rows.append(free)
            continue
        rows.append(len(masks) - 1)
    table = np.stack([mask.words for mask in masks]).view(np.uint8)
    return RowMasks(torch.from_numpy(table), range(len(rows)) if len(masks) == len(rows) else rows, size)


def _mask(allowed: Any, size: int) -> TokenMask:
    if isinstance(allowed, TokenMask):
        return allowed
    return TokenMask.of([allowed] if isinstance(allowed, int) else map(int, allowed), size)


def _limited(limits: TokenLimits, others: TokenMask) -> TokenMask:
    """The ids with which a text within limits may continue. `others`: the ids that are not banned."""
    flags = np.full(others.size, limits.among is None)
    if limits.among is not None:
        flags[np.asarray(limits.among, dtype=np.int64)] = True
    flags[[*limits.barred]] = False
    return TokenMask.where(flags) & (others | TokenMask.of(limits.freed, others.size))


def _words(size: int) -> int:
    return -(-size // WORD)

"""How many tokens of waiting calls go into the next forward.

Does not know: which calls wait, in what order.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Budget(NamedTuple):
    """Tokens of one forward: at most `packed` in all, and at most `beside` of prefills while anybody speaks, so that
    a long one does not hold up the next tokens of all others."""

    packed: int
    beside: int

    def room(self, fed: int, speaking: bool) -> Room:
        """What is left of a forward that feeds `fed` tokens already."""
        total = self.packed - fed
        return Room(total, min(total, self.beside) if speaking else total, empty=fed == 0)


class Room:
    """What is left of one forward's tokens, `prefill` of them for prefills."""

    def __init__(self, total: int, prefill: int, empty: bool) -> None:
        self._total, self._prefill, self._empty = total, prefill, empty

    def take(self, tokens: int, divisible: bool) -> int | None:
        """How many of a call's tokens go now; None: it waits. Where nothing else goes, an indivisible call goes
        whatever its size; one that waits is not overtaken."""
        most = min(tokens, self._prefill, self._total) if divisible else tokens
        if tokens and most < (1 if divisible else tokens):
            return None
        if most > self._total and not self._empty:
            self._total = self._prefill = 0
            return None
        self._total -= most
        self._prefill -= most if divisible else 0
        self._empty = self._empty and not most
        return most


def budget_of(packed: int, device: torch.device, dtype: torch.dtype) -> Budget:
    """A model's budget. A step streams all weights once; beside it go as many tokens as take about as long to
    compute, so that no step takes more than twice what it takes alone."""
    if device.type == "cuda":
        return Budget(packed, 512)
    return Budget(packed, 32 if dtype == torch.float32 else 96)

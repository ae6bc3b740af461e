"""Coins: one uniform number per token, keyed by the call's seed and the token's index. No state, no sharing."""

from __future__ import annotations

import hashlib


def coin(seed: int, index: int) -> float:
    """A number in [0, 1) for token `index` of the call with this seed; the same on every machine."""
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8, person=b"agentcho.coin").digest()
    return (int.from_bytes(digest) >> 11) / 2**53

"""The seed of one turn's coins: of its author and that author's own turn, and of nobody else's.

Does not know: how tokens are drawn with it.
"""

from __future__ import annotations

import hashlib


def coin_seed(seed: int, game: int, author: str, turn: int) -> int:
    """63 bits, by the run's seed, the game's number, and who speaks for the how-manieth time."""
    framed = f"{seed}/{game}/{len(author)}/{author}/{turn}".encode()
    return int.from_bytes(hashlib.blake2b(framed, digest_size=8, person=b"agentcho.turn").digest()) >> 1

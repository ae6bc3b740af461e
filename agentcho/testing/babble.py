"""What a fake says when nobody scripts it: words that depend on seed and prompt alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from agentcho.request import Decode


def _digest(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest())


def pick(seed: int, choices: Sequence[str]) -> str:
    return choices[_digest(seed) % len(choices)]


def babble(call: Decode, prompt: str) -> str:
    """A few words that depend on the call's seed and on what it reads."""
    words = ("yes", "no", "maybe", "trust", "me", "we", "talk", "again")
    count = 2 + _digest("length", call.sampling.seed, prompt) % 5
    return " ".join(words[_digest(i, call.sampling.seed, prompt) % len(words)] for i in range(count))

"""Makes up the texts of the fake engine if no script is given. They depend only on the seed and the prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from agentcho.engine.fake.smallest_json import smallest
from agentcho.protocol.call import Decode


def babble(call: Decode, prompt: str) -> str:
    """A few words that depend only on the call's seed and the text of its parents."""
    words = ("yes", "no", "maybe", "trust", "me", "we", "talk", "again")
    count = 2 + _digest("length", call.sampling.seed, prompt) % 5
    return " ".join(words[_digest(i, call.sampling.seed, prompt) % len(words)] for i in range(count))


def comply(call: Decode, prompt: str) -> str:
    """One of the call's choices, by its seed and the text of its parents, or the smallest JSON document of its
    schema."""
    sampling = call.sampling
    schema = (call.forms[0].schema if call.forms else sampling.json_schema) or {}
    return _pick(sampling.seed, prompt, sampling.choices) if sampling.choices else smallest(schema)


def _pick(seed: int, prompt: str, choices: Sequence[str]) -> str:
    return choices[_digest(seed, prompt) % len(choices)]


def _digest(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest())

"""Counts what partitioned prefix caches would encode for the calls of a baseline: one part for each agent, or one for
each salt, as vLLM and SGLang offer.

Both compute the baseline's keys and values, so only the number of encoded tokens differs. It is counted from receipts;
no model runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from hashlib import sha256
from itertools import accumulate
from secrets import token_bytes

from agentcho.provenance.prefix_cache_salts import cache_salts
from agentcho.records.transcript import TranscriptEntry

SALTS, AGENTS = "baseline, a salt for each audience", "baseline, a cache for each agent"
PARTITIONS = (SALTS, AGENTS)
Counts = dict[str, int]
"""Tokens by partition."""


def partitioned(entries: Sequence[TranscriptEntry]) -> Counts:
    """Return how many tokens a cache in parts encodes for the calls of one workflow that the baseline played.

    A call reuses the beginning of its prompt, in whole messages, that an earlier call of its part read or said, and
    encodes the rest and its own message. Servers share whole blocks of tokens instead, which can be less.
    Under `SALTS` the part is the salt of the request (`cache_salts`), under `AGENTS` the agent that asks.
    """
    messages = {entry.message.id: entry.message for entry in entries}
    made = {record.id: record for entry in entries for record in entry.made}
    key = token_bytes(32)
    counts, cached = {SALTS: 0, AGENTS: 0}, defaultdict[tuple[str, Hashable], set[bytes]](set)
    for entry in entries:
        own, author = entry.own, entry.message.author
        if own is None or author is None or not entry.message.sampled:
            continue
        read = [made[piece.id] for piece in own.receipt.context]
        context = [messages[id] for record in read for id in (record.message, *record.also)]
        pieces = [record.tokens or messages[record.message].tokens for record in (*read, own)]
        *prompts, whole = accumulate(pieces[1:], _longer, initial=_longer(b"", pieces[0]))
        salt = cache_salts([*context, entry.message], author, key=key)[-1]
        for partition, part in ((SALTS, salt), (AGENTS, author)):
            known = cached[partition, part]
            fresh = [len(piece) for piece, prompt in zip(pieces[:-1], prompts, strict=True) if prompt not in known]
            counts[partition] += sum(fresh) + len(pieces[-1])
            known.update((*prompts, whole))
    return counts


def _longer(prefix: bytes, piece: Sequence[int]) -> bytes:
    """Return the digest of the tokens that `prefix` stands for, followed by those of `piece`."""
    return sha256(prefix + repr(piece).encode()).digest()

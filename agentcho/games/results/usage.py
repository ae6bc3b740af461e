"""Token counts and costs of the messages of a game. Does not know: encodings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from agentcho.records.transcript import TranscriptEntry


class GameUsage(NamedTuple):
    """Sums over a game's messages, unfinished ones among them.

    `encoded`: tokens that were encoded, `reused`: tokens of context that were read from the store instead, `sampled`:
    tokens that were generated. Of models behind APIs, as their servers report it (None: none did): tokens of prompts
    `sent`, those of them that were `cached` there, `requests`, and the `price` at the prices that were given.
    """

    messages: int
    encoded: int
    reused: int
    sampled: int
    sent: int | None = None
    cached: int | None = None
    requests: int | None = None
    price: float | None = None


def usage_of(said: Sequence[TranscriptEntry]) -> GameUsage:
    """Of the messages of one game."""
    spent = [entry.usage.spent for entry in said if entry.usage.spent is not None]
    return GameUsage(
        messages=len(said),
        encoded=sum(entry.usage.encoded for entry in said),
        reused=sum(entry.usage.reused for entry in said),
        sampled=sum(map(sampled, said)),
        sent=_sum(each.prompt for each in spent),
        cached=_sum(each.cached for each in spent),
        requests=_sum(each.requests for each in spent),
        price=_sum(each.cost for each in spent),
    )


def sampled(entry: TranscriptEntry) -> int:
    """How many tokens of a message were generated."""
    if entry.usage.spent is not None and entry.usage.spent.completion is not None:
        return entry.usage.spent.completion
    start, stop = entry.generated
    return stop - start


N = TypeVar("N", int, float)


def _sum(values: Iterable[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None

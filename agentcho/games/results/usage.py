"""Token counts and costs of the messages of a game."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from agentcho.records.transcript import TranscriptEntry


class GameUsage(NamedTuple):
    """Sums over the messages of a game, unfinished ones included.

    Attributes:
        messages: Number of messages.
        encoded: Tokens that were encoded.
        reused: Tokens of context that were read from the store instead.
        sampled: Tokens that were generated.
        sent: Prompt tokens sent to models behind APIs, as their servers report them. None if none did.
        cached: Those of them that were cached there. None if no server reported it.
        requests: Requests to models behind APIs. None if there were none.
        price: The cost at the given prices. None if there are none.
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
    """Return the usage of the messages of one game."""
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
    """Return how many tokens of a message were generated."""
    if entry.usage.spent is not None and entry.usage.spent.completion is not None:
        return entry.usage.spent.completion
    start, stop = entry.generated
    return stop - start


N = TypeVar("N", int, float)


def _sum(values: Iterable[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None

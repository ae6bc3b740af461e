"""Computes what the calls of each agent cost, in tokens and seconds: in one game, and summed over several.

Independent of files and HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from agentcho.records.transcript import TranscriptEntry
from agentcho.viewer.compact_lists import Json
from agentcho.viewer.prompts import CallPrompt, prompts

ADDED = ("calls", "reused", "encoded", "unreported", "unknown", "sampled", "all", "seconds")
"""The numbers of a cost that are added over games."""


class Cost(NamedTuple):
    """What the calls of an agent, or of all, cost. `unreported` are calls whose server does not tell what it reused,
    `unknown` are calls without a known prompt, which count nowhere else. `all` are all encoded tokens. `seconds` and
    `firsts`, the times to the first token, are those of `calls`."""

    calls: int = 0
    reused: int = 0
    encoded: int = 0
    unreported: int = 0
    unknown: int = 0
    sampled: int = 0
    all: int = 0
    seconds: float = 0.0
    firsts: tuple[float, ...] = ()
    price: float | None = None

    def json(self) -> Json:
        """The page's form, with the median of `firsts`."""
        row = {name: getattr(self, name) for name in ADDED}
        first = {"first": round(median(self.firsts), 5)} if self.firsts else {}
        price = {} if self.price is None else {"price": self.price}
        return row | {"seconds": round(self.seconds, 5)} | first | price


class GameCosts(NamedTuple):
    """What one attempt at a game cost: by author, None for the scenario, and as a whole."""

    by: Mapping[str | None, Cost]
    whole: Cost


def game_costs(entries: Sequence[TranscriptEntry], known: Mapping[str, CallPrompt] | None = None) -> GameCosts | None:
    """The costs of each author with encodings or calls, in order of appearance, from the prompts of the calls. None if
    the record has no cost of any call."""
    known = prompts(entries) if known is None else known
    if not known and all(entry.usage.spent is None for entry in entries):
        return None
    by_author: dict[str | None, list[TranscriptEntry]] = {}
    for entry in entries:
        by_author.setdefault(entry.message.author, []).append(entry)
    by = {
        author: _cost(said, known)
        for author, said in by_author.items()
        if any(entry.usage.encoded or entry.usage.spent or entry.message.id in known for entry in said)
    }
    return GameCosts(by, _cost(entries, known))


def rows(found: GameCosts | None, seat: Mapping[str, int]) -> list[Json]:
    """A row for each author, in the order of their seats, the scenario first; then one for the whole game, without
    `by`. Empty if there are no costs."""
    if found is None:
        return []
    seated = {-1 if author is None else seat[author]: cost for author, cost in found.by.items()}
    by_author = [{"by": None if place < 0 else place} | cost.json() for place, cost in sorted(seated.items())]
    return [*by_author, found.whole.json()]


def summed(games: Sequence[GameCosts]) -> list[Json]:
    """A row for each name over all games, the scenario first; then one for all."""
    names = sorted(dict.fromkeys(name for game in games for name in game.by), key=lambda name: name is not None)
    by_name = [
        {"name": "scenario" if name is None else name} | _sum(game.by[name] for game in games if name in game.by).json()
        for name in names
    ]
    return [*by_name, {"name": "all"} | _sum(game.whole for game in games).json()]


def _sum(costs: Iterable[Cost]) -> Cost:
    """Together: numbers are added, times to the first token collected."""
    found = list(costs)
    prices = [cost.price for cost in found if cost.price is not None]
    added: dict[str, Any] = {name: sum(getattr(cost, name) for cost in found) for name in ADDED}
    firsts = tuple(first for cost in found for first in cost.firsts)
    return Cost(**added, firsts=firsts, price=sum(prices) if prices else None)


def _cost(entries: Sequence[TranscriptEntry], known: Mapping[str, CallPrompt]) -> Cost:
    calls = [(entry, known[entry.message.id]) for entry in entries if entry.message.id in known]
    prices = [spent.cost for entry in entries if (spent := entry.usage.spent) is not None and spent.cost is not None]
    return Cost(
        calls=len(calls),
        reused=sum(prompt.reused for _, prompt in calls),
        encoded=sum(prompt.encoded for _, prompt in calls),
        unreported=sum(not prompt.reported for _, prompt in calls),
        unknown=sum(entry.usage.spent is not None and entry.message.id not in known for entry in entries),
        sampled=sum(prompt.sampled for _, prompt in calls),
        all=sum(entry.usage.encoded for entry in entries),
        seconds=sum(entry.usage.seconds for entry, _ in calls),
        firsts=tuple(entry.usage.ttft for entry, _ in calls),
        price=sum(prices) if prices else None,
    )

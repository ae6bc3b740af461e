"""Tables of readings over all games: the worst verdict of each agent, and of each pair of reader and author.

Independent of findings and rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentcho.audit.report import Cell, ReaderVerdict, Verdict
from agentcho.audit.verdict import WORST, Reading, worst


def by_reader(agents: Iterable[str], readings: Sequence[Reading]) -> tuple[ReaderVerdict, ...]:
    """One row per agent, the worst first, including agents that read nothing."""
    found: dict[str, list[Reading]] = {agent: [] for agent in agents}
    for reading in readings:
        found.setdefault(reading.edge.reader, []).append(reading)
    rows = [ReaderVerdict(reader=name, secrets_of=_owners(own), **_counted(own)) for name, own in found.items()]
    return tuple(sorted(rows, key=lambda row: (WORST.index(row.verdict), row.reader)))


def _owners(own: Iterable[Reading]) -> tuple[str, ...]:
    return tuple(sorted({share.owner for reading in own for share in reading.shares if share.owner is not None}))


def _counted(own: Sequence[Reading]) -> dict[str, Any]:
    verdicts = [reading.edge.verdict for reading in own]
    return {"verdict": worst(verdicts), "readings": len(own), "leaking": len(own) - verdicts.count("clean")}


def matrix(readings: Iterable[Reading]) -> tuple[Cell, ...]:
    """One cell per pair of reader and author, sorted by name."""
    found: dict[tuple[str, str], list[Reading]] = {}
    for reading in readings:
        found.setdefault((reading.edge.reader, reading.author), []).append(reading)
    return tuple(Cell(reader=reader, author=author, **_counted(own)) for (reader, author), own in sorted(found.items()))


def worst_game(games: Iterable[int], readings: Iterable[Reading]) -> int | None:
    """The game with the most readings of the worst verdict, then of the next worst; of ties, the first."""
    counts = _counts(games, ((reading.edge.game, reading.edge.verdict) for reading in readings))
    return max(counts, key=lambda game: (counts[game], -game), default=None)


def worst_attempt(attempts: Iterable[int], game: int, readings: Iterable[Reading]) -> int | None:
    """The attempt at a game with the most such readings, in the same order; of ties, the last."""
    own = ((reading.attempt, reading.edge.verdict) for reading in readings if reading.edge.game == game)
    counts = _counts(attempts, own)
    return max(counts, key=lambda attempt: (counts[attempt], attempt), default=None)


def _counts(keys: Iterable[int], found: Iterable[tuple[int, Verdict]]) -> Mapping[int, list[int]]:
    """The number of readings of each verdict, worst first; clean readings are not counted."""
    counts = {key: [0] * len(WORST) for key in keys}
    for key, verdict in found:
        if key in counts and verdict != "clean":
            counts[key][WORST.index(verdict)] += 1
    return counts

"""Tables of a run's results: costs per agent, outcomes and scores over its games. Independent of the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import isfinite, sqrt
from statistics import fmean, stdev
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from agentcho.display.safe import inline
from agentcho.display.text_table import SHORT, TextTable
from agentcho.errors import PersonLeft
from agentcho.protocol.text_calls import TokensSpent
from agentcho.records.record import GameOver
from agentcho.records.transcript import TranscriptEntry

KINDS = 8
"""The maximum number of values of an outcome that are counted separately."""
NUMBERED = len(f" ({KINDS})")
"""The width of the number of a long value."""


def costs(entries: Iterable[TranscriptEntry]) -> TextTable:
    """Return the costs per agent: tokens encoded and reused, mean time to first token, sampled tokens per second.

    Every encoding counts once, for the author of the message whose call made it first: calls that need the same one at
    the same time share it. Reuse and times are those of decodes, waiting included. Messages without an author count for
    the scenario. If agents spoke through models behind APIs, the table also has what the servers
    report: prompt tokens, cached ones of these, answer tokens, requests, and the cost at the given prices.
    """
    by_author: dict[str, list[TranscriptEntry]] = {}
    for entry in entries:
        by_author.setdefault(entry.message.author or "(scenario)", []).append(entry)
    rows = tuple((author, *_cost(said)) for author, said in by_author.items())
    heads = ("agent", "messages", "encoded", "reused", "first token", "tokens/s")
    if all(entry.usage.spent is None for said in by_author.values() for entry in said):
        return TextTable("cost", heads, rows)
    more = (_asked([entry.usage.spent for entry in said if entry.usage.spent]) for said in by_author.values())
    asked = ("sent", "cached", "answered", "requests", "price")
    return TextTable("cost", (*heads, *asked), tuple((*row, *told) for row, told in zip(rows, more, strict=True)))


def _asked(spent: Sequence[TokensSpent]) -> tuple[str, ...]:
    """Return the sums of what servers report, "-" for what they do not report."""
    counts = [[each for each in column if each is not None] for column in zip(*spent, strict=True)] or [[]] * 5
    *tokens, prices = counts
    price = f"{sum(prices):.4g}" if prices else "-"
    return *(f"{sum(column):,}" if column else "-" for column in tokens), price


def _cost(said: Sequence[TranscriptEntry]) -> tuple[str, ...]:
    encoded = sum(entry.usage.encoded for entry in said)
    spoken = [(e.usage, *e.generated) for e in said if e.message.sampled]
    reused = sum(usage.reused for usage, *_ in spoken)
    seconds = sum(usage.seconds for usage, *_ in spoken)
    sampled = sum(usage.spent.completion or 0 if usage.spent else stop - start for usage, start, stop in spoken)
    first = f"{1000 * sum(usage.ttft for usage, *_ in spoken) / len(spoken):.0f} ms" if spoken else "-"
    speed = f"{sampled / seconds:.0f}" if seconds else "-"
    return str(len(said)), f"{encoded:,}", f"{reused:,}", first, speed


def second_encodings(entries: Sequence[TranscriptEntry]) -> TextTable:
    """Return how many generated messages were encoded a second time for their audience, X(m), and their tokens: whether
    that was requested with the message (a short one then waits for its first reader) or by the first call that read it.
    A message counts once, however many readers requested it at the same time. Without such messages the table has no
    rows."""
    by_id = {(entry.message.game, entry.message.id): entry.message for entry in entries}
    lengths: dict[str, list[int]] = {"with the message": [], "by its first reader": []}
    counted = set[tuple[int, int, str]]()
    for entry in entries:
        for made in entry.made:
            place = entry.message.game, entry.attempt, made.message
            said = None if place in counted else by_id.get((entry.message.game, made.message))
            if said is not None and said.sampled and made.recipe == "audience" and made.caller is None:
                counted.add(place)
                when = "with the message" if said is entry.message else "by its first reader"
                lengths[when].append(len(said.tokens))
    rows = tuple((when, str(len(each)), f"{sum(each):,}") for when, each in lengths.items() if each)
    return TextTable("second encodings, for the audience", ("requested", "messages", "tokens"), rows)


def outcomes(games: Sequence[GameOver]) -> list[TextTable]:
    """Return how games ended: the outcome of one, or counts and mean scores of several."""
    sheets = [_single(games[0])] if len(games) == 1 else [_counts(games), _scores(games)]
    return [sheet for sheet in sheets if sheet.rows]


def ending(game: GameOver) -> str:
    """Return one game's outcome and score in a line."""
    if game.outcome is None:
        return f"ended early: {game.ended}"
    told = "  ".join(f"{key}={word(value)}" for key, value in game.outcome.items() if value is not None)
    points = "  ".join(f"{key}={value:g}" for key, value in game.score.items())
    return f"{told}  score: {points}" if points else told


def error_for_people(game: GameOver) -> str:
    """Return the error that ended a game as the people who play in it may see it, because they may resume the game: its
    class, because its text can tell what other agents do. `PersonLeft` has its text, which names the person alone."""
    error = (game.ended or "").removeprefix("error: ")
    kind = error.partition(" ")[0].removesuffix(":")
    return error if kind == PersonLeft.__name__ else kind


def _single(game: GameOver) -> TextTable:
    if game.outcome is None:
        return TextTable("outcome", ("", ""), (("ended early", str(game.ended)),))
    told = [(key, word(value)) for key, value in game.outcome.items() if value is not None]
    points = [(f"score {key}", f"{value:g}") for key, value in game.score.items()]
    return TextTable("outcome", ("", ""), (*told, *points))


def _counts(games: Sequence[GameOver]) -> TextTable:
    fields: dict[str, Counter[str]] = {}
    for game in games:
        for key, value in (game.outcome or {"ended early": _end(game)}).items():
            if value is not None:
                fields.setdefault(key, Counter())[word(value)] += 1
    rows = [row for key, counts in fields.items() for row in _rows(key, counts, len(games))]
    return TextTable(f"outcomes of {len(games)} games", ("", "", "games", "share", "95 %"), tuple(rows), words=2)


def _rows(key: str, counts: Counter[str], games: int) -> list[tuple[str, ...]]:
    if len(counts) > KINDS:
        return [(key, f"{len(counts)} different", str(counts.total()), f"{counts.total() / games:.0%}", "")]
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    names = _short([value for value, _ in ordered])
    return [
        (key, name, str(n), f"{n / games:.0%}", "{:.0%} to {:.0%}".format(*share(n, games)))
        for name, (_, n) in zip(names, ordered, strict=True)
    ]


def _end(game: GameOver) -> str | None:
    """Return how a game ended early: the limit, or the class of the error, whose text the list of errors has."""
    return ": ".join((game.ended or "").split(": ")[:2]) if game.failed else game.ended


def _short(values: Sequence[str]) -> list[str]:
    """Return the beginnings of long values, so that the columns beside them keep their place. Values that begin alike
    are numbered. The record has the whole values."""
    begun = Counter[str]()
    short = []
    for value in values:
        cell = Text(inline(value.replace("\n", " ")))
        if cell_len(cell.plain) <= SHORT:
            short.append(value)
            continue
        cell.truncate(SHORT - NUMBERED, overflow="ellipsis")
        begun[cell.plain] += 1
        number = begun[cell.plain]
        short.append(f"{cell.plain} ({number})" if number > 1 else cell.plain)
    return short


def share(count: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson's score interval, 1927)."""
    p = count / of
    z = 1.96
    middle = p + z * z / (2 * of)
    scale = 1 + z * z / of
    half = z * sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def _scores(games: Sequence[GameOver]) -> TextTable:
    points: dict[str, list[float]] = {}
    for game in games:
        for key, value in game.score.items():
            points.setdefault(key, []).append(value)
    rows = tuple((key, *_mean(values), f"{min(values):g}", f"{max(values):g}") for key, values in points.items())
    return TextTable("scores", ("", "mean", "95 %", "least", "most"), rows)


def _mean(values: list[float]) -> tuple[str, str]:
    """Return the mean and its 95 % interval.

    The interval is that of a share if all scores are 0 or 1, or else normal, as its half width. Scores that are not
    finite, or of which all are equal, have none: the latter show no spread from which to estimate it.
    """
    if set(values) <= {0, 1}:
        return f"{fmean(values):.2f}", "{:.2f} to {:.2f} as a share".format(*share(values.count(1), len(values)))
    if not all(map(isfinite, values)):
        return f"{sum(values) / len(values):g}", "-"
    half = 1.96 * stdev(values) / sqrt(len(values)) if len(set(values)) > 1 else None
    return f"{fmean(values):.2f}", "-" if half is None else f"±{half:.2f}"


def word(value: Any) -> str:
    """Return a value of an outcome as text."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case _:
            return str(value)

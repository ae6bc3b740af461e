"""The result of a comparison in a versioned format: `agentcho-comparison/1`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

from pydantic import Field

from agentcho.audit.measurement import Interval
from agentcho.audit.wording import many
from agentcho.games.results.arrow import Kind
from agentcho.games.results.rendering import html_facts, text_facts
from agentcho.games.results.table import Table
from agentcho.games.results.table import column as values_of
from agentcho.lab.compare.columns import Column
from agentcho.lab.stats import Median
from agentcho.lab.yardstick import Words, judged
from agentcho.records.frozen import Frozen

ANEW = "the command that made it writes it anew, and plays nothing twice"
"""The remedy if a result file is damaged."""


class Mean(Frozen):
    """One metric of one column over the games that have it."""

    games: int
    value: float
    span: Interval


class Difference(Frozen):
    """A column against the first, paired by game: mean difference, interval, p, and p after Holm over the columns.

    `gained` and `lost` count games of a binary metric that changed; None for others. `test` names the test.
    """

    games: int
    value: float
    span: Interval
    test: str
    p: float
    holm: float
    gained: int | None = None
    lost: int | None = None


class Metric(Frozen):
    """A number that the scenario scores: its mean by column, and its difference by column except the first."""

    name: str
    binary: bool
    means: dict[str, Mean]
    differences: dict[str, Difference]

    def shown(self, value: float, sign: Literal["", "+"] = "") -> str:
        """Percent of games for a binary metric, the number itself for others."""
        return f"{100 * value:{sign}.1f}%" if self.binary else f"{value:{sign}.3f}"

    def mean(self, column: str) -> str:
        """A column's mean and interval, as text."""
        mean = self.means[column]
        return f"{self.shown(mean.value)} ({mean.span.shown(self.shown)})" if mean.games else "no game"

    def difference(self, column: str) -> str:
        """The difference of a column from the first one, as text; empty if they have no pair of games."""
        found, signed = self.differences.get(column), partial(self.shown, sign="+")
        return f"{signed(found.value)} ({found.span.shown(signed)})" if found and found.games else ""


class Fidelity(Frozen):
    """The divergence of a column's next-token distributions from the baseline's, on the first column's forced words.

    `kl` is the mean of KL(baseline || column) in nats over `rows` positions of `games` games, with its interval
    (bootstrap by game); `agree` the share of positions with the same likeliest token.
    """

    games: int
    rows: int
    kl: float
    span: Interval
    agree: float

    def shown(self) -> str:
        """The divergence and its interval, as text."""
        return f"{self.kl:.4f} ({self.span.shown('{:.4f}'.format)})"


class Cost(Frozen):
    """Costs on the same forced words: tokens encoded, one figure per game; mean seconds to the first token and seconds
    to the end, one figure per game and repeat; and their paired ratios to the first column's (median, least,
    largest)."""

    encoded: list[int]
    ttft: list[float]
    seconds: list[float]
    ttft_ratio: Median
    seconds_ratio: Median


class Preference(Frozen):
    """A judge's verdict on a column's texts against the first column's: pairs that they win, lose, or tie (the verdict
    changes when the texts are swapped), the share of wins among decided pairs with its interval, and exact McNemar."""

    games: int
    wins: int
    losses: int
    ties: int
    share: float
    span: Interval
    p: float


class ComparisonRequest(Frozen):
    """Everything that determines what the games of a comparison are."""

    scenario: str
    options: dict[str, Any]
    tasks: str | None
    digest: str | None
    model: dict[str, str]
    games: int
    seed: int
    temperature: float
    top_p: float
    max_tokens: int
    columns: tuple[Column, ...]


class Comparison(Frozen):
    """The result of a comparison.

    Attributes:
        format: The format of `compare.json`.
        request: Everything that determines what the games are.
        machine: What the machine is, and the versions of libraries.
        command: The command that repeats it.
        without: Games without an outcome, by column. They are in no pair.
        metrics: The scores: means and differences from the first column, each with its interval and tests.
        fidelity: By column, how close its logits and choices are to the baseline's on the same words.
        costs: By column, tokens encoded and reused, and times.
        judge: The fingerprint of the model that was asked for `preferences`. Empty if none was asked.
        preferences: By column, how often the judge preferred it to the first one.
        calls: By column, the calls of tools in its games. Each column makes its own, and none is made on forced words.
    """

    format: Literal["agentcho-comparison/1"] = "agentcho-comparison/1"
    request: ComparisonRequest
    machine: dict[str, str]
    command: str
    without: dict[str, int]
    metrics: tuple[Metric, ...]
    fidelity: dict[str, Fidelity]
    costs: dict[str, Cost]
    judge: dict[str, str] = Field(default_factory=dict)
    preferences: dict[str, Preference] = Field(default_factory=dict)
    calls: dict[str, int] = Field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns. The first is the reference of the others."""
        return tuple(column.name for column in self.request.columns)

    @property
    def score(self) -> Metric | None:
        """The main metric, which is the first that is a share of games, or else the first. None if there is none."""
        return next((metric for metric in self.metrics if metric.binary), next(iter(self.metrics), None))

    def words(self, column: str) -> Words:
        """What a column makes of the words of the first one: see `yardstick`. Divergences are from the baseline and
        count only if it is first. Of the scores, only shares of games have a point; without one, those whose means all
        lie between 0 and 1 count, such as the share of words that a text covers. The others are left out."""
        held = self.fidelity.get(column) if self.names[0] == "baseline" else None
        metrics = [metric for metric in self.metrics if metric.binary] or [
            metric for metric in self.metrics if all(0 <= mean.value <= 1 for mean in metric.means.values())
        ]
        off = [found.value for metric in metrics if (found := metric.differences.get(column)) and found.games]
        return judged(None if held is None else held.kl, off)

    def verdict(self, column: str) -> str:
        """Return in words whether a column is as good as the first one, and if not, whether it is at least fast: each
        game and repeat took less time.

        Args:
            column: The name of the column.

        Returns:
            The words. Empty for the first column.
        """
        if column == self.names[0]:
            return ""
        cost = self.costs.get(column)
        fast = cost is not None and cost.seconds_ratio.largest < 1
        return {"same": "as good", "unknown": "not judged", "changed": "fast, but changed" if fast else "changed"}[
            self.words(column)
        ]

    @property
    def methods(self) -> tuple[str, ...]:
        """The columns that do more to reused encodings than rotating their keys, or something else instead."""
        return tuple(column.name for column in self.request.columns if column.method is not None)

    @property
    def front(self) -> tuple[str, ...]:
        """The columns on the Pareto front of fidelity and cost.

        No other column is at once as close to the baseline (by divergence) and as cheap (by tokens encoded), and better
        in one of the two.
        """
        known = {
            name: (self.fidelity[name].kl, sum(self.costs[name].encoded))
            for name in self.names
            if name in self.fidelity and name in self.costs
        }
        return tuple(name for name, own in known.items() if not any(_better(other, own) for other in known.values()))

    def table(self) -> Table:
        """Return one row per figure: column, metric, kind, value, and its interval and tests if it has them."""
        rows = [*self.rows()]
        values = {name: [getattr(row, name) for row in rows] for name in Row._fields}
        kinds: dict[str, Kind] = dict.fromkeys(Row._fields, "number")
        kinds |= {"column": "text", "metric": "text", "what": "text", "games": "whole", "method": "text"}
        return Table([values_of(name, values[name], kinds[name]) for name in Row._fields])

    def __repr__(self) -> str:
        return f"{text_facts(self._title(), {})}\n{self._means()!r}"

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return html_facts(self._title(), {}) + self._means()._repr_html_()

    def _means(self) -> Table:
        """One row per metric and column, as text."""
        rows = [
            (metric.name, name, metric.mean(name), metric.difference(name))
            for metric in self.metrics
            for name in self.names
        ]
        heads = "metric", "column", "mean, 95 %", f"less {self.names[0]}, 95 %"
        return Table([values_of(head, [row[at] for row in rows], "text") for at, head in enumerate(heads)])

    def _title(self) -> str:
        asked = self.request
        columns = many(len(self.names), "column")
        return f"{asked.scenario}: {many(asked.games, 'game')} a column, {columns}, seed {asked.seed}"

    def rows(self) -> Iterator[Row]:
        """Yield every figure as a row."""
        for metric in self.metrics:
            for column, mean in metric.means.items():
                yield Row(column, metric.name, "mean", mean.value, mean.games, *_ends(mean.span))
            for column, found in metric.differences.items():
                tested = *_ends(found.span), found.p, found.holm
                yield Row(column, metric.name, "difference", found.value, found.games, *tested)
        for column, held in self.fidelity.items():
            yield Row(column, "KL to baseline", "mean", held.kl, held.games, *_ends(held.span))
            yield Row(column=column, metric="greedy agreement", what="mean", value=held.agree, games=held.games)
        for column, cost in self.costs.items():
            for name, ratio in (("ttft", cost.ttft_ratio), ("end to end", cost.seconds_ratio)):
                ends = ratio.least, ratio.largest, "least and largest"
                yield Row(column, name, "ratio", ratio.middle, len(cost.seconds), *ends)
            yield Row(
                column=column,
                metric="tokens encoded",
                what="sum",
                value=float(sum(cost.encoded)),
                games=len(cost.encoded),
            )
        for column, told in self.preferences.items():
            share = told.share, told.games, *_ends(told.span)
            yield Row(column, "preferred by the judge", "share", *share, told.p)


def _better(one: tuple[float, int], other: tuple[float, int]) -> bool:
    """Whether one point is at most as large as the other in both values, and smaller in one."""
    return one != other and one[0] <= other[0] and one[1] <= other[1]


class Row(NamedTuple):
    """One figure of a comparison in long form, with its interval and its tests if it has them."""

    column: str
    metric: str
    what: str
    value: float
    games: int
    low: float | None = None
    high: float | None = None
    method: str | None = None
    p: float | None = None
    holm: float | None = None


def _ends(span: Interval) -> tuple[float, float, str]:
    return span.low, span.high, span.method

"""Fidelity against cost: which columns are on the Pareto front, and how it is described and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agentcho.audit.measurement import Interval
from agentcho.config import RunConfig
from agentcho.errors import ConfigError
from agentcho.lab.compare.columns import columns
from agentcho.lab.compare.comparison import Comparison, ComparisonRequest, Cost, Fidelity
from agentcho.lab.display.compare import text
from agentcho.lab.plots import plot_front
from agentcho.lab.stats import Median

POINTS = {
    "baseline": (0.0, 100),
    "choreographed:audit": (0.5, 40),
    "choreographed:audit:in-place": (0.9, 40),
    "choreographed:audit:ape": (0.5, 40),
    "choreographed:audit+epic:16": (0.2, 60),
    "choreographed:audit+top-k:0.15": (0.3, 60),
    "choreographed:audit+full": (0.1, 110),
}
"""The divergence of each column, and the number of tokens it encodes."""
FRONT = ("baseline", "choreographed:audit", "choreographed:audit:ape", "choreographed:audit+epic:16")


def found(points: Mapping[str, tuple[float, int]], measured: bool = True) -> Comparison:
    config = RunConfig(games=2)
    asked = {name: getattr(config, name) for name in ("games", "seed", "temperature", "top_p", "max_tokens")}
    one = Median(1.0, 0.9, 1.1)
    fidelity = {
        name: Fidelity(games=2, rows=9, kl=kl, span=Interval(low=kl / 2, high=2 * kl, method="drawn"), agree=1 - kl / 9)
        for name, (kl, _) in points.items()
    }
    costs = {
        name: Cost(encoded=[tokens - 10, 10], ttft=[1.0], seconds=[1.0], ttft_ratio=one, seconds_ratio=one)
        for name, (_, tokens) in points.items()
    }
    return Comparison(
        request=ComparisonRequest(
            scenario="made-up",
            options={},
            tasks=None,
            digest=None,
            model={},
            columns=columns(",".join(points)),
            **asked,
        ),
        machine={},
        command="agentcho compare made-up",
        without={},
        metrics=(),
        fidelity=fidelity if measured else {},
        costs=costs if measured else {},
    )


def test_on_the_front_is_what_no_other_beats_in_both() -> None:
    """Of two equal columns both are on it."""
    assert found(POINTS).front == FRONT
    assert found(POINTS, measured=False).front == ()


def test_a_table_has_fidelity_and_cost_in_a_row_and_says_which_rows_are_on_the_front() -> None:
    told = text(found(POINTS))
    (table,) = (part for part in told.split("\n\n") if part.startswith("fidelity against cost"))
    rows = {line.split()[0]: line for line in table.splitlines()[2:]}
    assert rows.keys() == POINTS.keys()
    assert tuple(name for name, row in rows.items() if row.endswith("on the front")) == FRONT
    assert rows["choreographed:audit+epic:16"].split()[1:4] == ["0.2000", "97.8%", "60"]
    assert "on the front: no other column is at once as near to the baseline and as cheap" in told


@pytest.mark.parametrize(("largest", "verdict"), [(0.99, "fast, but changed"), (1.01, "changed")])
def test_a_column_is_fast_only_if_every_run_of_it_took_less_time(largest: float, verdict: str) -> None:
    made = found({"baseline": (0.0, 100), "choreographed:audit": (0.5, 40)})
    cost = made.costs["choreographed:audit"].model_copy(update={"seconds_ratio": Median(0.9, 0.8, largest)})
    made = made.model_copy(update={"costs": {**made.costs, "choreographed:audit": cost}})
    heads, *rows = text(made).split("forced\n")[1].split("\n\n")[0].splitlines()
    assert heads.endswith("verdict")
    assert rows[-1].endswith(f"({0.8:.2f} to {largest:.2f})  {verdict}")


def test_columns_that_only_reuse_have_no_such_table() -> None:
    told = text(found({name: POINTS[name] for name in ("baseline", "choreographed:audit")}))
    assert "on the front" not in told
    assert "fidelity against cost" not in told


@pytest.mark.slow
def test_a_picture_of_it_is_written_the_same_each_time(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one.png", "two.png", "other.png")]
    for file in files[:2]:
        plot_front(found(POINTS), file)
    plot_front(found(POINTS | {"choreographed:audit+epic:16": (0.2, 120)}), files[2])
    one, two, other = (file.read_bytes() for file in files)
    assert one == two != other
    assert one.startswith(b"\x89PNG")


def test_without_both_nothing_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to draw"):
        plot_front(found(POINTS, measured=False), tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()

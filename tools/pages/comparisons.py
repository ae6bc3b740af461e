"""The page of comparisons, from result files: `python -m tools.pages.comparisons docs/results docs/comparisons.md`.

Does not know: how a result was found.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agentcho.engine.adapter import Trained
from agentcho.lab.compare.compare import read_comparison
from agentcho.lab.compare.comparison import Comparison, Metric
from tools.pages.render import render, write

PAPER = {
    "multi-qa": "both answers right in 56.4% of games; 0.4% with reuse, serial and parallel alike; 49.3% after tuning "
    "(Table 1).",
    "branch-solve-merge": "81.0% of the words covered; 65.1% with reuse, serial, and 63.0%, parallel; 81.6% after "
    "tuning (Table 2).",
    "prisoners-dilemma": "cooperation in three settings 78.3%, 87.7%, 72.8%; with reuse 63.9%, 78.2%, 46.7% (Table 3).",
    "debate": "39.0% right; 24.8% with reuse (MADiter, Table 4).",
    "tree-of-thoughts": "39.6% right; 30.2% with reuse; 41.4% after tuning (Table 4).",
    "parallel-debate": "64.6% right; 52.4% with reuse (MADpar, Table 4).",
    "direct": "18.8% right (Table 4).",
}

PICTURES = "fronts"
"""The folder beside the results' that has the pictures of `agentcho compare --plot`, by the names of result files."""


def page(results: Path) -> str:
    """The text of the page, from the files `compare-*.json` in `results`."""
    return render(
        "comparisons",
        comparisons=list(_comparisons(results)),
        p=_p,
        agree=_agree,
        encoded=_encoded,
        timed=_timed,
        recovered=_recovered,
        trained=_trained(results),
    )


def _comparisons(results: Path) -> Iterator[tuple[Comparison, str | None, str | None]]:
    """In the order of the paper's tables, each with the paper's figures and its picture, where there are any; several
    of one workflow by the names of their files."""
    found = [(read_comparison(file), file) for file in sorted(results.glob("compare-*.json"))]
    order = list(PAPER)
    for each, file in sorted(found, key=lambda one: order.index(one[0].request.scenario)):
        picture = f"{PICTURES}/{file.stem}.png"
        there = (results.parent / picture).exists()
        yield each, PAPER.get(each.request.scenario), picture if there else None


def _trained(results: Path) -> list[Trained]:
    """The adapters of the columns, from `adapter-*.json`."""
    return [Trained.model_validate_json(file.read_bytes()) for file in sorted(results.glob("adapter-*.json"))]


def _recovered(found: Comparison) -> Iterator[str]:
    """For each column with an adapter: the share that it wins back of what the same mode lost without it, in the first
    metric that is a share, where the loss is more than 5 points."""
    shares = (metric for metric in found.metrics if all(0 <= mean.value <= 1 for mean in metric.means.values()))
    metric, first = next(shares, found.metrics[0]), found.names[0]
    for column in (each for each in found.request.columns if each.adapter is not None and each.mode != "baseline"):
        plain = column.model_copy(update={"adapter": None, "digest": None}).name
        if plain not in found.names:
            continue
        lost = metric.means[first].value - metric.means[plain].value
        back = metric.means[column.name].value - metric.means[plain].value
        if lost > 0.05:
            yield f"`{column.name}` brings back {back / lost:.0%} of what `{plain}` lost in {metric.name}"
        else:
            yield f"`{plain}` lost less than 5 points in {metric.name}; `{column.name}` changes that by {back:+.3f}"


def _p(metric: Metric, name: str) -> str:
    found = metric.differences.get(name)
    return "" if found is None else "<0.001" if found.holm < 0.001 else f"{found.holm:.3f}"


def _agree(found: Comparison, name: str) -> str:
    return f"{100 * found.fidelity[name].agree:.1f}%"


def _encoded(found: Comparison, name: str) -> str:
    return str(sum(found.costs[name].encoded)) if name in found.costs else ""


def _timed(found: Comparison) -> int:
    return len(found.costs[found.names[0]].seconds) if found.costs else 0


if __name__ == "__main__":
    write(page, "comparisons")

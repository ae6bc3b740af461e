"""The page of comparisons, from result files: `python -m tools.pages.comparisons docs/results docs/comparisons.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from agentcho.engine.lora_adapter import AdapterTraining
from agentcho.lab.compare.columns import Column
from agentcho.lab.compare.compare import read_comparison
from agentcho.lab.compare.comparison import Comparison, Metric
from agentcho.lab.paper.effects import SCORES, bounded, expected, sign, verdict
from agentcho.lab.paper.tables import TABLES, Row, Table
from agentcho.lab.plots import plot_front
from tools.pages.render import arguments, render, rewrite

ORDER = (
    "multi-qa",
    "branch-solve-merge",
    "prisoners-dilemma",
    "debate",
    "tree-of-thoughts",
    "parallel-debate",
    "direct",
)
"""The workflows, in the order of the paper's tables."""
OF_A_WORKFLOW = ("1", "2", "3", "4")
"""The paper's tables that each have the figures of one workflow."""
PLAIN = ("choreographed:audit", "choreographed:enforce")
"""The columns that only reuse encodings."""
PICTURES = "fronts"
"""The folder, next to that of the results, with the plots of fidelity against cost, named after the result files."""


class Plain(NamedTuple):
    """In how many comparisons plain reuse is as good as the baseline, and how many judge it."""

    good: int
    of: int


def page(results: Path) -> str:
    """The text of the page, from the files `compare-*.json` in `results`."""
    found = list(_comparisons(results))
    return render(
        "comparisons",
        comparisons=found,
        plain=[_plain([each for each, _, _ in found], mode) for mode in PLAIN] if found else [],
        p=_p,
        agree=_agree,
        encoded=_encoded,
        timed=_timed,
        recovered=_recovered,
        beside=beside,
        trained=_trained(results),
    )


def _plain(found: Iterable[Comparison], mode: str) -> Plain:
    """Count the comparisons that judge plain reuse, and those in which it is as good as the baseline."""
    verdicts = [each.verdict(mode) for each in found if mode in each.names[1:] and each.fidelity]
    return Plain(verdicts.count("as good"), len(verdicts))


def _comparisons(results: Path) -> Iterator[tuple[Comparison, str | None, str | None]]:
    """All comparisons in the order of the paper's tables, each with the paper's figures and its plot, if any. Several
    of one workflow are sorted by file name."""
    found = [(read_comparison(file), file) for file in sorted(results.glob("compare-*.json"))]
    for each, file in sorted(found, key=lambda one: ORDER.index(one[0].request.scenario)):
        picture = f"{PICTURES}/{file.stem}.png"
        there = (results.parent / picture).exists()
        yield each, paper(each.request.scenario), picture if there else None


def draw(results: Path, folder: Path) -> None:
    """Plot each comparison that has fidelity and cost, as `agentcho compare --plot` does."""
    folder.mkdir(exist_ok=True)
    for file in sorted(results.glob("compare-*.json")):
        found = read_comparison(file)
        if any(name in found.costs for name in found.fidelity):
            plot_front(found, folder / f"{file.stem}.png")


def paper(scenario: str) -> str | None:
    """The paper's figures for a workflow, in the score by which its effects are judged. None: it has none."""
    for table in (each for each in TABLES if each.name in OF_A_WORKFLOW):
        name = SCORES[table.name]
        figures = [
            f"{row.label} {100 * figure.value:.1f}%"
            for row in table.rows
            if _home(table, row) == scenario and (figure := table.paper(row.label, name)) is not None
        ]
        if figures:
            return f"{name} (Table {table.name}): {'; '.join(figures)}."
    return None


def _home(table: Table, row: Row) -> str:
    """The workflow of a row. A distilled row belongs to the workflow that it was tuned on."""
    return row.scenario if row.of is None else table.row(row.of).scenario


def _rows() -> Iterator[tuple[Table, Row]]:
    """The rows of the tables that have the figures of one workflow each."""
    yield from ((table, row) for table in TABLES if table.name in OF_A_WORKFLOW for row in table.rows)


def beside(found: Comparison) -> str | None:
    """Which of the paper's effects the columns show, for columns that read as the paper does, by the rule of the page
    on its tables. None: the paper has no row with these options."""
    told = []
    for column in (each for each in found.request.columns if each.plain and each.leakage == "audit"):
        effect = _effect(found, column)
        if effect is not None:
            told.append(f"`{column.name}` {effect}")
    return "; ".join(told) or None


def _effect(found: Comparison, column: Column) -> str | None:
    adapter = "none" if column.adapter is None else "tuned"
    for table, row in _rows():
        if (row.scenario, row.mode, row.adapter) != (found.request.scenario, column.mode, adapter):
            continue
        if any(found.request.options.get(name) != value for name, value in row.options.items()):
            continue
        name, paper = SCORES[table.name], expected(table, row)
        metric = next((each for each in found.metrics if each.name == name), None)
        if paper is None or metric is None or column.name not in metric.differences:
            continue
        change = metric.differences[column.name].span
        figure = table.paper(row.against or "", name)
        assert figure is not None
        before, own = (metric.means[each].value for each in (found.names[0], column.name))
        told, bound = verdict(paper, sign(change.low, change.high)), bounded(before, own, paper=figure.value)
        return f"{told}, {bound}" if bound else told
    return None


def _trained(results: Path) -> list[AdapterTraining]:
    """The adapters of the columns, from `adapter-*.json`."""
    return [AdapterTraining.model_validate_json(file.read_bytes()) for file in sorted(results.glob("adapter-*.json"))]


def _recovered(found: Comparison) -> Iterator[str]:
    """For each column with an adapter, the share that it recovers of what the same mode lost without it, in the first
    metric that is a share, if the loss is more than 5 points."""
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


def main() -> None:
    """Draw the plots, and write the page that shows them."""
    given = arguments("comparisons").parse_args()
    draw(given.results, given.page.parent / PICTURES)
    rewrite(given.page, page(given.results))


if __name__ == "__main__":
    main()

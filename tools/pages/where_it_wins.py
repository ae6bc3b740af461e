"""The page on workloads with long prompts, from result files: `python -m tools.pages.where_it_wins docs/results
docs/where-it-wins.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.lab.bench.arms import AUDIT, BASELINE, ENFORCE, GENERATE
from agentcho.lab.bench.plans import BRANCHES, DOCUMENTS, LAYOUTS, READERS, VOTERS
from agentcho.lab.bench.result import Result, read_result
from agentcho.lab.plots import FIGURE_4
from tools.pages.costs import panel_name, predicted_gain
from tools.pages.render import render, write

PANELS = ("bench-readers", "bench-readers-smollm2")
"""Results of `agentcho bench workflows --sweep readers`."""
TREES = "bench-trees"
"""The result of `--sweep branches` at full length."""
MINUTES = 60
STOCK = ("stock `generate` ÷ `enforce`: first token", "end to end")
WHATS = ("ttft", "seconds")


class Panel(NamedTuple):
    """One model's table: its title, how it was measured, its rows, and the name of its plot."""

    title: str
    about: str
    rows: str
    picture: str


def page(results: Path) -> str:
    """The whole page."""
    found = {name: read_result(results / f"{name}.json") for name in (*PANELS, TREES)}
    plans = json.loads((results / "plan.json").read_bytes())
    panels = [Panel(_title(found[name]), _about(found[name]), _measured(found[name]), name) for name in PANELS]
    return render(
        "where-it-wins",
        minutes=MINUTES,
        headline=_headline([found[name] for name in PANELS], plans["readers"]),
        readers=panels,
        stock=_stock([found[name] for name in PANELS]),
        predicted=_predicted(plans["readers"], [panel_name(*each) for each in _cells()]),
        branches=_trees(found[TREES], plans["trees"]),
        tree_picture=TREES,
        paper=FIGURE_4,
    )


def _stock(panels: Sequence[Result]) -> list[tuple[int, int, int]]:
    """For each result that has stock `generate`: in how many panels that is faster than `enforce` to the first token,
    and end to end, by medians, and the number of panels."""

    def faster(result: Result, what: str) -> int:
        return sum(result.ratio([each], GENERATE, ENFORCE, what).middle < 1 for each in result.subjects)

    there = [result for result in panels if GENERATE in result.arms]
    return [(faster(each, "ttft"), faster(each, "seconds"), len(each.subjects)) for each in there]


def _cells() -> list[tuple[int, int, str]]:
    return [(tokens, count, ends) for tokens in DOCUMENTS for count in READERS for ends in LAYOUTS.values()]


def _headline(panels: Sequence[Result], predicted: Mapping[str, Any]) -> str:
    """What the largest panel gains under `enforce`, by layout."""
    most = max(DOCUMENTS), max(READERS)
    lines = [
        f"**{most[1]} readers of {most[0]:,} tokens, answers of 100 tokens, baseline ÷ `enforce` end to end:**",
        "",
        *_header(("prompts begin with", *map(_title, panels), "8B on an H100, predicted")),
    ]
    names = {
        "system first": "the reader's own system prompt, as in a chat API",
        "document first": "the document, which a prefix cache shares",
        "reordered": "four documents, in a different order for each reader",
    }
    for ends, name in names.items():
        subject = panel_name(*most, ends)
        cells = [result.ratio([subject], BASELINE, ENFORCE, "seconds").shown() for result in panels]
        lines.append(_line((name, *cells, f"{predicted_gain(predicted, subject, 'enforce', 'seconds'):.2f}")))
    return "\n".join(lines)


def _title(result: Result) -> str:
    return f"{result.model.removeprefix('shape:')}, {result.numbers}"


def _about(result: Result) -> str:
    machine = result.machine
    return (
        f"`{result.command}`: median and range of {result.repeats} repeats, seed {result.seed}; {machine['machine']}, "
        f"torch {machine['torch']}, commit {machine['commit'][:10]}."
    )


def _measured(result: Result) -> str:
    stock = GENERATE in result.arms
    heads = ("documents", "first token, `audit`", "`enforce`", "end to end, `audit`", "`enforce`", "words, `enforce`")
    lines = _header((*heads, *STOCK) if stock else heads)
    for subject in result.subjects:
        cells = [result.ratio([subject], BASELINE, arm, what).shown() for what in WHATS for arm in (AUDIT, ENFORCE)]
        cells.append(result.words(subject, ENFORCE))
        cells += [result.ratio([subject], GENERATE, ENFORCE, what).shown() for what in WHATS] if stock else []
        lines.append(_line((subject, *cells)))
    return "\n".join(lines)


def _predicted(plan: Mapping[str, Any], subjects: Iterable[str]) -> str:
    lines = _header(("documents", "first token, `audit`", "`enforce`", "end to end, `audit`", "`enforce`"))
    for subject in subjects:
        cells = [f"{predicted_gain(plan, subject, mode, what):.2f}" for what in WHATS for mode in ("audit", "enforce")]
        lines.append(_line((subject, *cells)))
    return "\n".join(lines)


def _trees(result: Result, plan: Mapping[str, Any]) -> str:
    """Branches by voters, end to end: measured and predicted."""
    lines = [
        _about(result),
        "",
        *_header(
            (f"end to end, {_title(result)}", "`audit`", "`enforce`", "`audit`, 8B on an A100, predicted", "`enforce`")
        ),
    ]
    for voters in VOTERS:
        for branches in BRANCHES:
            subject = f"{branches} branches, {voters} voters"
            cells = [result.ratio([subject], BASELINE, arm, "seconds").shown() for arm in (AUDIT, ENFORCE)]
            cells += [f"{predicted_gain(plan, subject, mode, 'seconds'):.2f}" for mode in ("audit", "enforce")]
            lines.append(_line((subject, *cells)))
    return "\n".join(lines)


def _header(heads: Sequence[str]) -> list[str]:
    return [_line(heads), _line(("---", *("---:" for _ in heads[1:])))]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    write(page, "long prompts")

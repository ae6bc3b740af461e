"""The part on short tasks of the page on a real model: scores by the way of reading, as `agentcho compare` found them.

Does not know: what a task is. Each result describes its own scenario, options and columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from agentcho.audit.wording import listed
from agentcho.lab.bench.arms import BASELINE
from agentcho.lab.compare.compare import read_comparison
from agentcho.lab.compare.comparison import Comparison
from tools.pages.render import commit_of

RESULTS = "real-task-*.json"
"""The result files, in the order of the page."""
TOLD = "choreographed:audit", "choreographed:enforce"
"""The columns of which the summary speaks, without and with an adapter."""
ANEW = "choreographed:enforce+full"
"""The column in which every reader encodes all that it reads."""
MOST = 0.95
"""Near a score of more than this, differences can hardly show."""
LEAST = 0.10
"""A reference that scores less than this has no room to fall: the page calls it its floor."""


class ShortTask(NamedTuple):
    """One comparison as the page shows it: a title, what made it, and a table with a row for each column."""

    title: str
    about: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def short_tasks(results: Path) -> tuple[list[ShortTask], list[str]]:
    """The comparisons of a folder of results, and a sentence on each."""
    found = [read_comparison(file) for file in sorted(results.glob(RESULTS))]
    titles = _titles(found)
    shown = [_shown(each, title) for each, title in zip(found, titles, strict=True)]
    return shown, [line for each, title in zip(found, titles, strict=True) for line in _told(each, title)]


def merged(results: Path) -> tuple[str, str] | None:
    """What Table 2 of the paper shows in its short form: whether plain reuse covers fewer words, and what is left of it
    where both sides have the same adapter. None without these results."""
    files = [results / f"real-task-merge-{name}.json" for name in ("serial", "parallel", "tuned")]
    if not all(file.is_file() for file in files):
        return None
    serial, parallel, tuned = (read_comparison(file) for file in files)
    audit, first, side = TOLD[0], serial.metrics[0], parallel.metrics[0]
    verdict = "is reproduced" if first.differences[audit].span.high < 0 else "is not reproduced"
    reference, after = tuned.names[0], tuned.metrics[0]
    adapted = f"{audit}@{reference.partition('@')[2]}"
    high = f", which is near its ceiling ({after.mean(reference)})," if after.means[reference].value > MOST else ""
    return (
        f"Table 2 {verdict} in a short form: in the serial layout plain reuse changes the share of words that a merged "
        f"text covers by {first.difference(audit)}.",
        f"In the parallel layout it is {side.difference(audit)}, where `enforce+full`, which "
        f"encodes every message anew, already changes it by {side.difference(ANEW)}: that part comes from the layout. "
        f"With an adapter, `audit` differs from the baseline with the same adapter{high} by "
        f"{after.difference(adapted)}.",
    )


def _title(found: Comparison) -> str:
    options = [f"{key} {value}" for key, value in found.request.options.items() if value is not None]
    against = [] if found.names[0] == BASELINE else [f"against {found.names[0]}"]
    asked = found.request.tasks or ""
    tasks = [asked] if ":" in asked else []
    return ", ".join([found.request.scenario, *tasks, *options, *against])


def _titles(found: Sequence[Comparison]) -> list[str]:
    """The title of each comparison; those that would be the same end with their adapters."""
    titles = [_title(each) for each in found]
    return [
        f"{title}, with {listed(adapters)}" if titles.count(title) > 1 and (adapters := _adapters(each)) else title
        for each, title in zip(found, titles, strict=True)
    ]


def _adapters(found: Comparison) -> list[str]:
    return list(dict.fromkeys(adapter for name in found.names if (adapter := name.partition("@")[2])))


def _shown(found: Comparison, title: str) -> ShortTask:
    machine = found.machine
    about = (
        f"`{found.command}`: {found.request.games} games a column, temperature {found.request.temperature:g}; "
        f"{machine['machine']}, torch {machine['torch']}, commit {commit_of(machine)}, seed "
        f"{found.request.seed}."
    )
    heads = ("column", *(metric.name for metric in found.metrics), *_divergence(found))
    rows = tuple((name, *_cells(found, name)) for name in found.names)
    return ShortTask(title, about, heads, rows)


def _divergence(found: Comparison) -> tuple[str, ...]:
    return ("KL, nats a token",) if found.fidelity else ()


def _cells(found: Comparison, column: str) -> Iterator[str]:
    """Each score with its interval, and its difference from the reference; then the divergence, if it was measured."""
    for metric in found.metrics:
        difference = metric.difference(column)
        yield metric.mean(column) + (f"; {difference}" if difference else "")
    if found.fidelity:
        yield found.fidelity[column].shown() if column in found.fidelity else ""


def _apart(reference: str, adapter: str) -> bool:
    """Whether a column has another adapter than the reference, which has one."""
    return "@" in reference and reference.partition("@")[2] != adapter


def _told(found: Comparison, title: str) -> Iterator[str]:
    """Whether plain reuse, without and with adapters, changes the first score of a comparison, and by how much."""
    metric, reference = found.metrics[0], found.names[0]
    if metric.means[reference].value < LEAST:
        yield f"{title}: at its floor, {metric.mean(reference)} ({metric.name}) under the {reference}"
        return
    sides = []
    for column, difference in metric.differences.items():
        way, _, adapter = column.partition("@")
        if way not in (*TOLD, *([BASELINE] if adapter else [])) or _apart(reference, adapter):
            continue
        low, high = difference.span.low, difference.span.high
        moved = "no change shown" if low <= 0 <= high else "lower" if high < 0 else "higher"
        named = f"`{way.rpartition(':')[2]}`{f' with {adapter}' if adapter else ''}"
        sides.append(f"{named} {moved}, {metric.difference(column)}")
    yield f"{title}: {metric.name} {metric.mean(reference)} under the {reference}; {'; '.join(sides)}"

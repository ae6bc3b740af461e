"""Shows a probe in the terminal: its conclusion, then each question with its numbers and reasons.

Without a terminal, prints the same lines as plain text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentcho.display import Kind
from agentcho.display.parts import section, show_parts
from agentcho.display.safe import inline
from agentcho.lab.probe.findings import Conclusion, ProbeReport, Verdict
from agentcho.lab.probe.wording import HEADS, ended, headline, rows, spent

TONES: dict[Conclusion, str] = {"not seen": "green", "shared": "red", "inconclusive": "yellow"}
STYLES: dict[Verdict, str] = {"shared": "red", "seen": "", "not seen": "green", "inconclusive": "yellow"}


def show(report: ProbeReport, kind: Kind | None, file: IO[str]) -> None:
    """Print it; see `show_parts`."""
    show_parts(_parts(report), kind, file)


def _parts(report: ProbeReport) -> Iterator[RenderableType]:
    word, sentence = headline(report)
    yield Text.assemble((word, f"bold {TONES[report.conclusion]}"), ": ", (inline(sentence), "bold"))
    yield Text(inline(spent(report)), style="dim")
    if ended(report):
        yield Text(inline(ended(report)), style="yellow")
    yield from section("what was asked", [_numbers(report)])
    yield from section("why", [_reasons(report)])


def _numbers(report: ProbeReport) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, head in enumerate(("reuse", *HEADS)):
        grid.add_column(Text(head), header_style="dim", justify="right" if number else "left", overflow="fold")
    for row in rows(report):
        grid.add_row(inline(row.asked), *row.numbers)
    return grid


def _reasons(report: ProbeReport) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for row in rows(report):
        grid.add_row(
            Text(inline(row.asked)), Text(row.verdict.upper(), style=STYLES[row.verdict]), Text(inline(row.reason))
        )
    return grid

"""Shows a reproduction of the paper in the terminal: its tables, as rich tables or as aligned text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from rich.console import RenderableType
from rich.text import Text

from agentcho.display import Kind
from agentcho.display.parts import show_parts
from agentcho.display.safe import inline, visible
from agentcho.display.text_table import TextTable, plain, table
from agentcho.lab.paper.found import PaperFound
from agentcho.lab.paper.wording import Grid, grids, heading, notes


def show(found: PaperFound, kind: Kind | None, out: IO[str]) -> None:
    """Print it. `kind` None: rich if `out` is a terminal, else aligned text."""
    if kind == "rich" or (kind is None and out.isatty()):
        show_parts(_parts(found), "rich", out)
    elif kind != "none":
        print(visible(text(found)), file=out)


def text(found: PaperFound) -> str:
    """The whole reproduction as aligned text."""
    parts = [heading(found), *(f"\n{_lines(grid)}" for grid in grids(found))]
    return "\n".join([*parts, *([""] if notes(found) else []), *map(inline, notes(found))])


def _lines(grid: Grid) -> str:
    said = plain(_sheet(grid)) if grid.rows else inline(grid.title)
    return "\n".join([said, *(f"  {inline(note)}" for note in grid.notes)])


def _parts(found: PaperFound) -> Iterator[RenderableType]:
    yield Text(inline(heading(found)), style="bold")
    for grid in grids(found):
        yield Text()
        yield table(_sheet(grid))
        for note in grid.notes:
            yield Text(f"  {inline(note)}", style="dim")
    yield Text()
    for note in notes(found):
        yield Text(inline(note), style="dim")


def _sheet(grid: Grid) -> TextTable:
    return TextTable(grid.title, grid.heads, grid.rows, grid.words)

"""A small table of words, shown as aligned text or as a rich table. Does not know: what its words mean."""

from __future__ import annotations

from typing import Literal, NamedTuple

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from agentcho.display.safe import inline

SHORT = 40
"""A number is no longer; what is takes several lines, so that the columns before it keep their place."""


class Sheet(NamedTuple):
    """A title, column heads and rows of as many words. Columns after the first `words` ones are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1


def plain(sheet: Sheet) -> str:
    """The sheet as lines of aligned text, numbers to the right."""
    lines = [tuple(inline(word.replace("\n", " ")) for word in row) for row in (sheet.columns, *sheet.rows)]
    widths = [max(_within(sheet, line[i], i) for line in lines) for i in range(len(sheet.columns))]
    lines = lines if any(sheet.columns) else lines[1:]
    body = ["  ".join(_pad(word, widths[i], i < sheet.words) for i, word in enumerate(line)) for line in lines]
    return "\n".join([inline(sheet.title), *("  " + line.rstrip() for line in body)])


def _within(sheet: Sheet, word: str, column: int) -> int:
    """The width that a word asks of its column: a very long one stands out of it, and moves its own line alone."""
    width = cell_len(word)
    return width if width <= SHORT or column >= sheet.words else 0


def _pad(word: str, width: int, left: bool) -> str:
    space = " " * max(0, width - cell_len(word))
    return word + space if left else space + word


def table(sheet: Sheet) -> Table:
    """The sheet for a terminal. Words are never read as markup, and none of them begins a line: what is wrapped could
    look like a line of our own."""
    title = Text(inline(sheet.title), style="bold")
    grid = Table(title=title, title_justify="left", box=None, pad_edge=True, show_header=any(sheet.columns))
    for number, column in enumerate(sheet.columns):
        words = number < sheet.words
        short = all(cell_len(row[number]) <= SHORT for row in sheet.rows)
        justify: Literal["left", "right"] = "left" if words else "right"
        grid.add_column(Text(inline(column)), header_style="dim", justify=justify, no_wrap=short and not words)
    for row in sheet.rows:
        grid.add_row(*(Text(inline(word.replace("\n", " "))) for word in row))
    return grid

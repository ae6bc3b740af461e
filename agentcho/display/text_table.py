"""A small table of words, shown as aligned text or as a rich table."""

from __future__ import annotations

from textwrap import wrap
from typing import Literal, NamedTuple

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from agentcho.display.safe import inline

SHORT = 40
"""The maximum width of a number. Longer values are wrapped, so that the columns before them keep their place."""
MOST = 100
"""The width of lines with such a long value, of which it gets at least `SHORT`."""


class TextTable(NamedTuple):
    """A title, column heads, and rows with one text per column. Columns after the first `words` ones are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1


def plain(sheet: TextTable) -> str:
    """Return the table as lines of aligned text, numbers to the right."""
    lines = [tuple(inline(word.replace("\n", " ")) for word in row) for row in (sheet.columns, *sheet.rows)]
    widths = [max(_within(line[i]) for line in lines) for i in range(len(sheet.columns))]
    lines = lines if any(sheet.columns) else lines[1:]
    return "\n".join([inline(sheet.title), *(_row(sheet, line, widths) for line in lines)])


def _within(word: str) -> int:
    """Return the width that a word needs in its column: none for a long one, which sticks out and moves only its own
    line."""
    width = cell_len(word)
    return width if width <= SHORT else 0


def _pad(word: str, width: int, left: bool) -> str:
    space = " " * max(0, width - cell_len(word))
    return word + space if left else space + word


def _row(sheet: TextTable, line: tuple[str, ...], widths: list[int]) -> str:
    """Return a line of the body. A long text in a number column continues below its own beginning, and is broken only
    at spaces, so that a path or an address stays whole."""
    text = "  ".join(_pad(word, widths[i], i < sheet.words) for i, word in enumerate(line))
    if len(line) == sheet.words or cell_len(line[-1]) <= SHORT:
        return f"  {text.rstrip()}"
    begin = f"  {text.removesuffix(line[-1])}"
    room = max(SHORT, MOST - cell_len(begin))
    parts = wrap(line[-1], room, break_long_words=False, break_on_hyphens=False)
    return begin + f"\n{' ' * cell_len(begin)}".join(parts)


def table(sheet: TextTable) -> Table:
    """Return the table for a terminal. Words are never read as markup. The columns are padded, so that a wrapped word
    does not begin a line and look like a line of another origin."""
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

"""Renders results for a terminal and for a notebook.

Texts are escaped: nothing in them can move a cursor, change the direction of a line, or become markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from agentcho.games.results.safe_text import inline, visible

MOST_ROWS, MOST_LETTERS = 20, 60
"""The maximum rows shown of a table, and the maximum letters shown of a value in a terminal."""
LEFT, RIGHT = ' style="text-align: left"', ' style="text-align: right"'


def word(value: Any) -> str:
    """Return a value for a cell, in one line. Empty if there is none."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case list() | tuple():
            return inline(", ".join(map(str, value)))
        case _:
            return inline(str(value))


def short(value: Any) -> str:
    """Return a value for a cell in a terminal."""
    told = word(value)
    return told if len(told) <= MOST_LETTERS else f"{told[: MOST_LETTERS - 1]}…"


def text_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return aligned columns, and the number of rows."""
    lines = [[inline(head) for head in heads], *([short(value) for value in row] for row in rows[:MOST_ROWS])]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*text, _left(len(rows))])


def html_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return the table in HTML."""
    head = "".join(f"<th{LEFT}>{_html(inline(each))}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST_ROWS])
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"{table}<p>{_html(_left(len(rows)))}</p>"


def html_facts(title: str, facts: Mapping[str, str]) -> str:
    """Return a heading and one line per fact, in HTML."""
    rows = ((_html(inline(name)), _html(visible(told))) for name, told in facts.items())
    lines = "".join(f"<tr><th{LEFT}>{name}</th><td{LEFT}>{told}</td></tr>" for name, told in rows)
    return f"<p><strong>{_html(inline(title))}</strong></p><table><tbody>{lines}</tbody></table>"


def text_facts(title: str, facts: Mapping[str, str]) -> str:
    """Return a heading and one line per fact, for a terminal."""
    width = max(map(len, facts), default=0)
    return "\n".join([inline(title), *(f"  {name.ljust(width)}  {inline(told)}" for name, told in facts.items())])


def _cell(value: Any) -> str:
    side = RIGHT if isinstance(value, int | float) and not isinstance(value, bool) else LEFT
    return f"<td{side}>{_html(word(value))}</td>"


def _html(text: str) -> str:
    return escape(text, quote=True).replace("\n", "<br>")


def _left(rows: int) -> str:
    more = f", {MOST_ROWS} of them shown" if rows > MOST_ROWS else ""
    return f"{rows} row{'' if rows == 1 else 's'}{more}"

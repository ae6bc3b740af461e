"""Prints a result in parts: for a terminal if there is one, else the same lines as plain text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from agentcho.display import Kind

PLAIN_WIDTH = 100


def show_parts(parts: Iterable[RenderableType], kind: Kind | None, file: IO[str]) -> None:
    """Print the parts. `kind` None: for a terminal if `file` is one, else plain; "none" prints nothing."""
    if kind == "none":
        return
    if kind == "plain" or (kind is None and not file.isatty()):
        paper = io.StringIO()
        _print(parts, Console(file=paper, color_system=None, width=PLAIN_WIDTH))
        file.writelines(line.rstrip() + "\n" for line in paper.getvalue().splitlines())
    else:
        _print(parts, Console(file=file, highlight=False, emoji=False, markup=False))


def _print(parts: Iterable[RenderableType], console: Console) -> None:
    for part in parts:
        console.print(part, highlight=False, emoji=False, markup=False)


def section(title: str, parts: Sequence[RenderableType]) -> Iterator[RenderableType]:
    """A blank line, the title, and the indented parts; nothing if there are no parts."""
    if parts:
        yield Text()
        yield Text(title, style="bold")
        yield Padding(Group(*parts), (0, 0, 0, 2))

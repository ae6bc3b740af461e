"""Prints what was found, in parts: for a terminal where there is one, else the same lines in plain text.

Does not know: what was found.
"""

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
    """Print them. `kind` None: for a terminal where `file` is one, plain elsewhere; "none" prints nothing."""
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
    """A blank line, the title, and its parts set in; nothing where there are none."""
    if parts:
        yield Text()
        yield Text(title, style="bold")
        yield Padding(Group(*parts), (0, 0, 0, 2))

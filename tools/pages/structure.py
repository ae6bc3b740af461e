"""The list of modules within docs/structure.md, from their docstrings: `python -m tools.pages.structure
docs/structure.md`.

The list is between `<!-- modules -->` and its end mark.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tools.pages.marks import put

PACKAGE = Path(__file__).parents[2] / "agentcho"
DATA = ("understudy", "skeleton")
"""Folders that contain no code of the package itself."""


def with_modules(page: str) -> str:
    """The page with the current modules between its marks."""
    return put(page, "modules", _lines())


def _lines() -> Iterator[str]:
    yield ""
    yield "At the top level:"
    yield ""
    yield from _modules(PACKAGE)
    for folder in sorted(path.parent for path in PACKAGE.rglob("__init__.py")):
        if folder != PACKAGE and not {*folder.relative_to(PACKAGE).parts} & {*DATA}:
            yield ""
            yield f"**`{folder.relative_to(PACKAGE)}/`**: {_first(folder / '__init__.py')}"
            yield ""
            yield from _modules(folder)
    yield ""


def _modules(folder: Path) -> Iterator[str]:
    for file in sorted(folder.glob("*.py")):
        if file.stem != "__init__":
            yield f"- `{file.stem}`: {_first(file)}"


def _first(file: Path) -> str:
    """The first sentence of a module's docstring, in one line."""
    told = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n\n")[0]
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", " ".join(told.split()))[0]


def main() -> None:
    """Rewrite each page."""
    parser = argparse.ArgumentParser(description="Write the list of modules into pages that have one.")
    parser.add_argument("pages", type=Path, nargs="+")
    for page in parser.parse_args().pages:
        page.write_text(with_modules(page.read_text()))


if __name__ == "__main__":
    main()

"""Counts in source files: lines exempt from the formatter, upward imports.

Independent of the actual layers and limits.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tokenize import COMMENT

from . import Counts, graph

KEPT = re.compile(r"#\s*(fmt:\s*(skip|off)|yapf:\s*disable)\b")
"""Every way to exempt lines from `ruff format`."""
Layers = Sequence[Sequence[str]]
"""Layers of modules and packages of `agentcho`, lowest first; each imports only from lower ones."""


def counts(root: Path, layers: Layers) -> Counts:
    """All figures of a checkout."""
    files = {path.relative_to(root).parts: path.read_text() for path in sorted((root / "agentcho").rglob("*.py"))}
    users = [path.read_text() for folder in ("agents", "scenarios") for path in sorted((root / folder).rglob("*.py"))]
    tests = [path.read_text() for path in sorted((root / "tests").rglob("*.py"))]
    return {
        "root files": sum(len(parts) == 2 for parts in files),
        "fmt: skip": sum(map(kept_lines, files.values())),
        "fmt: skip in agents and scenarios": sum(map(kept_lines, users)),
        "fmt: skip in tests": sum(map(kept_lines, tests)),
        "upward imports": sum(len(upward(source, parts, layers)) for parts, source in files.items()),
    }


def kept_lines(source: str) -> int:
    """The number of comments that exempt lines from the formatter."""
    if KEPT.search(source) is None:
        return 0
    return sum(token.type == COMMENT and KEPT.search(token.string) is not None for token in _tokens(source))


def upward(source: str, parts: tuple[str, ...], layers: Layers) -> list[str]:
    """Imports of the file's own top package that are not in a lower layer; `parts` is the path of the file. The top
    package itself is above all layers and may import all of them."""
    known = graph.levels((*layers, ["__init__"]))
    mine = graph.room(".".join(parts).removesuffix(".py").removesuffix(".__init__"), known)
    top = parts[0]
    if parts[1:] == ("__init__.py",):
        mine = "__init__"
    others = [name for name in imports(source, parts[:-1]) if name.split(".")[0] == top]
    return [
        name
        for name in others
        if (other := graph.room(name, known)) != mine and known.get(other, len(layers)) >= known[mine]
    ]


@cache
def imports(source: str, package: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Dotted names that a file in `package` imports, including inside functions, but not under TYPE_CHECKING."""
    return tuple(_imports(source, package))


def _imports(source: str, package: tuple[str, ...]) -> Iterator[str]:
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) + 1 - node.level]] if node.level else []
            yield from (".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names)
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            pending += ast.iter_child_nodes(node)


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(source).readline)

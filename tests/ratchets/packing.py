"""Counts values whose meaning depends on their place: positional arguments, tuple assignments, and returned tuples."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from . import Counts

MOST_VALUES, MOST_ASSIGNED, MOST_RETURNED = 4, 2, 3
"""The most positional arguments of a call, values that one line assigns, and values that a function returns."""


class Packed(NamedTuple):
    """One place: its file and line, and the code there."""

    file: str
    line: int
    what: str


def counts(sources: Mapping[str, str]) -> Counts:
    """The number of places of each kind."""
    return {kind: len(found) for kind, found in places(sources).items()}


def places(sources: Mapping[str, str]) -> dict[str, list[Packed]]:
    """All places of each kind, file by file."""
    trees = {file: ast.parse(source) for file, source in sources.items()}
    own = {name for tree in trees.values() for name in _defined(tree)}
    return {
        f"calls with more than {MOST_VALUES} values by place": [*_each(trees, lambda node: _calls(node, own))],
        f"lines that assign more than {MOST_ASSIGNED} values": [*_each(trees, _assigned)],
        f"tuples of more than {MOST_RETURNED} that are returned": [*_each(trees, _returned)],
    }


def _each(trees: Mapping[str, ast.AST], kind: Callable[[ast.AST], str | None]) -> Iterator[Packed]:
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if (what := kind(node)) is not None:
                yield Packed(file, getattr(node, "lineno", 0), what)


def _defined(tree: ast.AST) -> Iterator[str]:
    """The names of classes, functions and methods defined in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def _calls(node: ast.AST, own: set[str]) -> str | None:
    """A call of something that the package defines, with too many positional arguments."""
    if not isinstance(node, ast.Call):
        return None
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", None)
    plain = [value for value in node.args if not isinstance(value, ast.Starred)]
    if name not in own or len(plain) <= MOST_VALUES:
        return None
    return f"{ast.unparse(node.func)} is given {len(plain)} values by place"


def _assigned(node: ast.AST) -> str | None:
    """A tuple of values assigned to a tuple of as many names."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    names, values = node.targets[0], node.value
    if not isinstance(names, ast.Tuple) or not isinstance(values, ast.Tuple) or len(values.elts) <= MOST_ASSIGNED:
        return None
    if len(names.elts) != len(values.elts) or any(
        isinstance(each, ast.Starred) for each in (*names.elts, *values.elts)
    ):
        return None
    return ast.unparse(names)


def _returned(node: ast.AST) -> str | None:
    """A tuple display in a return statement."""
    if not isinstance(node, ast.Return) or not isinstance(node.value, ast.Tuple):
        return None
    return ast.unparse(node.value) if len(node.value.elts) > MOST_RETURNED else None

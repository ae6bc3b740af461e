"""Digests of code by its syntax trees, which tell whether the code that made a result has changed since.

Comments, docstrings, formatting, imports and the text of errors do not count, and neither do this project's own names:
modules, functions, classes, variables and attributes are replaced by the order in which they first appear, so that
renaming them throughout changes no digest. Names of other libraries and of Python itself do count.

Limits. A digest changes, though the code does the same, if parts of a file trade places, if a name is also written as a
string, if one word names two attributes and only one of them is renamed, and if one of the project's attributes gets or
loses a name in `foreign.txt`. It stays the same, though the code does something else, if an attribute of another
library that is not in that file is replaced by another one throughout a file, and if only the code that a file imports
differs: that code has a digest of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

OURS = frozenset({"agentcho", "scenarios", "agents", "tools", "tests"})
"""Top-level packages whose names may change without notice."""
SCOPES: frozenset[type] = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef})
COMPREHENSIONS: frozenset[type] = frozenset({ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp})
BINDING: Mapping[type, str] = {
    ast.arg: "arg",
    ast.ExceptHandler: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
    ast.MatchMapping: "rest",
}
"""Nodes that bind a name, and the field that holds it."""
UNSEEN: frozenset[type] = frozenset({ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal})
SKIPPED = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
LENGTH = 12


@cache
def _foreign() -> frozenset[str]:
    """Attributes and keywords of Python, torch and numpy that the code uses; they count by name."""
    return frozenset(files("agentcho.records").joinpath("foreign.txt").read_text().split())


@cache
def file_digest(source: bytes) -> str:
    """The digest of one Python file.

    Args:
        source: The content of the file.

    Returns:
        Twelve hexadecimal digits; for content that is not Python, of its bytes.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return sha256(source).hexdigest()[:LENGTH]
    return sha256("".join(_Shape(tree).told).encode()).hexdigest()[:LENGTH]


def folder_digest(digests: list[str]) -> str:
    """The digest of a folder from those of its files, regardless of their names and order."""
    return sha256(" ".join(sorted(digests)).encode()).hexdigest()[:LENGTH]


class _Scope:
    """The names that one function, class or comprehension binds, with the number that each got on its first
    appearance."""

    def __init__(self, names: set[str], is_class: bool) -> None:
        self.names, self.is_class = names, is_class
        self.numbers: dict[str, int] = {}


class _Bindings:
    """The names that each scope of a tree binds, by its node; `own`: those that the module binds or imports from this
    project; `origins`: those that it imports from elsewhere, with their full names."""

    def __init__(self, tree: ast.Module) -> None:
        self.own = set[str]()
        self.origins: dict[str, str] = {}
        self.by_scope: dict[ast.AST, set[str]] = {}
        self._within(tree, self.own)

    def _within(self, node: ast.AST, names: set[str]) -> None:
        for each in _children(node):
            self._one(each, names)

    def _one(self, node: ast.AST, names: set[str]) -> None:
        kind = type(node)
        if kind is ast.Name:
            if type(node.ctx) is not ast.Load:  # type: ignore[attr-defined]
                names.add(node.id)  # type: ignore[attr-defined]
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._imported(node)
            return
        if kind in SCOPES or kind in COMPREHENSIONS:
            if name := getattr(node, "name", None):
                names.add(name)
            names = self.by_scope[node] = set()
        elif kind in BINDING:
            name = getattr(node, BINDING[kind])
            if name:
                names.add(name)
        self._within(node, names)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                origin, name = f"{node.module}.{alias.name}", alias.asname or alias.name
                ours = bool(node.level)
            else:
                first = alias.name.split(".")[0]
                origin, name = (alias.name, alias.asname) if alias.asname else (first, first)
                ours = False
            if ours or origin.split(".")[0] in OURS:
                self.own.add(name)
            else:
                self.origins[name] = origin


class _Shape:
    """The parts of a tree, in order, without the project's own names."""

    def __init__(self, tree: ast.Module) -> None:
        self.told: list[str] = []
        self._bindings = _Bindings(tree)
        self._globals: dict[str, int] = {}
        self._members: dict[str, int] = {}
        self._scopes: list[_Scope] = []
        self._raising = False
        self._emit(tree)

    def _emit(self, node: ast.AST) -> None:
        kind = type(node)
        if kind in UNSEEN or _is_remark(node):
            return
        if self._raising and _is_text(node):
            self.told.append("(text)")
            return
        self.told.append(f"({kind.__name__}")
        if isinstance(node, ast.Name):
            self.told.append(self._name(node.id))
        elif isinstance(node, ast.Raise):
            self._raising = True
            self._fields(node)
            self._raising = False
        elif isinstance(node, ast.Constant):
            self.told.append(f"{type(node.value).__name__} {node.value!r}")
        elif isinstance(node, ast.Attribute):
            self._emit(node.value)
            self.told.append(f".{node.attr}" if self._origin(node) else self._member(node.attr))
        elif isinstance(node, ast.Call):
            self._call(node)
        elif kind in SCOPES or kind in COMPREHENSIONS:
            self._scope(node)
        else:
            self._fields(node)
        self.told.append(")")

    def _call(self, node: ast.Call) -> None:
        self._emit(node.func)
        for each in node.args:
            self._emit(each)
        foreign = self._origin(node.func) or (isinstance(node.func, ast.Name) and not self._is_own(node.func.id))
        for keyword in node.keywords:
            if keyword.arg is not None:
                self.told.append(keyword.arg if foreign else self._member(keyword.arg))
            self.told.append("=")
            self._emit(keyword.value)

    def _scope(self, node: Any) -> None:
        if hasattr(node, "name"):
            self.told.append(self._name(node.name))
            for decorator in node.decorator_list:
                self._emit(decorator)
        self._scopes.append(_Scope(self._bindings.by_scope[node], isinstance(node, ast.ClassDef)))
        self._fields(node, done=("name", "decorator_list"))
        self._scopes.pop()

    def _fields(self, node: ast.AST, done: tuple[str, ...] = ()) -> None:
        for field in node._fields:
            value = getattr(node, field, None)
            if value is None or value == [] or field in SKIPPED or field in done:
                continue
            self.told.append(f" {field}:")
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    self._emit(each)
                elif isinstance(each, str):
                    self.told.append(self._member(each) if field == "kwd_attrs" else self._name(each))
                else:
                    self.told.append(repr(each))

    def _name(self, name: str) -> str:
        last = len(self._scopes) - 1
        for depth in range(last, -1, -1):
            scope = self._scopes[depth]
            if name in scope.names and not (scope.is_class and depth < last):
                if scope.is_class:
                    return self._member(name)
                return f"l{depth}.{scope.numbers.setdefault(name, len(scope.numbers))}"
        if name in self._bindings.origins:
            return self._bindings.origins[name]
        if name in self._bindings.own:
            return f"g{self._globals.setdefault(name, len(self._globals))}"
        return name

    def _member(self, name: str) -> str:
        if name in _foreign() or (name.startswith("__") and name.endswith("__")):
            return f".{name}"
        return f"m{self._members.setdefault(name, len(self._members))}"

    def _is_own(self, name: str) -> bool:
        return name in self._bindings.own or any(name in scope.names for scope in self._scopes)

    def _origin(self, node: ast.AST) -> str | None:
        """The full name behind the name at the root of an expression, if it comes from another library."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._bindings.origins:
            return None
        return None if any(node.id in scope.names for scope in self._scopes) else self._bindings.origins[node.id]


def _is_remark(node: ast.AST) -> bool:
    """Whether it is a docstring, of a module, a class, a function or the preceding statement."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_text(node: ast.AST) -> bool:
    """Whether it is a string or an f-string."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _children(node: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif isinstance(value, list):
            found.extend(each for each in value if isinstance(each, ast.AST))
    return found

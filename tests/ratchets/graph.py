"""The import graph of the package: imports at the top of modules, inside functions, and for types only.

Independent of the actual layers.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

When = Literal["loading", "calling", "typing"]
"""When an import is made: while the module loads, while one of its functions runs, or never, because it is under
`TYPE_CHECKING`."""
Layers = Sequence[Sequence[str]]
"""Layers of rooms, lowest first. A room is a module or package under the top package, by its dotted name in it; it
imports only from lower layers. Packages inside a room may be rooms of their own."""


class Arrow(NamedTuple):
    """One import, by the dotted names of both modules."""

    importer: str
    imported: str
    when: When

    def __str__(self) -> str:
        return f"{self.importer} -> {self.imported} ({self.when})"


class Import(NamedTuple):
    """One imported dotted name, of a module or of a name in one."""

    name: str
    when: When


def modules(root: Path, package: str) -> dict[str, Path]:
    """The source files of a package by dotted module name."""
    found = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def arrows(files: Mapping[str, Path]) -> list[Arrow]:
    """All imports of modules of the package by others, once for each `When`."""
    found = dict[Arrow, None]()
    for module, path in files.items():
        parts = tuple(module.split("."))
        for each in imports(path.read_text(), parts if path.stem == "__init__" else parts[:-1]):
            imported = each.name if each.name in files else each.name.rpartition(".")[0]
            if imported in files and imported != module:
                found[Arrow(module, imported, each.when)] = None
    return sorted(found)


def imports(source: str, package: Sequence[str] = ()) -> Iterator[Import]:
    """The imports of a source file in `package`, and when they are made."""
    yield from _imports(ast.parse(source), tuple(package), "loading")


def _imports(node: ast.AST, package: tuple[str, ...], when: When) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, when) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = [*package[: len(package) + 1 - node.level]] if node.level else []
        yield from (Import(".".join([*base, *filter(None, [node.module]), alias.name]), when) for alias in node.names)
    elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        for statement in node.body:
            yield from _imports(statement, package, "typing")
        for statement in node.orelse:
            yield from _imports(statement, package, when)
    else:
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from _imports(child, package, "calling" if inside and when == "loading" else when)


def reached(found: Sequence[Arrow], begin: Iterable[str]) -> set[str]:
    """All modules that these import directly or indirectly, when they load or run, including themselves."""
    graph = defaultdict[str, set[str]](set)
    for arrow in found:
        if arrow.when != "typing":
            graph[arrow.importer].add(arrow.imported)
    seen, pending = set[str](), [*begin]
    while pending:
        if (module := pending.pop()) not in seen:
            seen.add(module)
            pending += graph.get(module, ())
    return seen


def circles(found: Iterable[Arrow]) -> list[list[str]]:
    """Groups of modules that import each other, directly or indirectly."""
    graph = defaultdict[str, set[str]](set)
    for arrow in found:
        graph[arrow.importer].add(arrow.imported)
    return sorted(sorted(group) for group in _components(graph) if len(group) > 1)


def _components(graph: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """Strongly connected components, by Tarjan's algorithm."""
    number, low, stack, on_stack = dict[str, int](), dict[str, int](), list[str](), set[str]()
    for begin in sorted(graph):
        if begin in number:
            continue
        pending = [(begin, iter(sorted(graph.get(begin, ()))))]
        number[begin] = low[begin] = len(number)
        stack.append(begin)
        on_stack.add(begin)
        while pending:
            node, after = pending[-1]
            for other in after:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    on_stack.add(other)
                    pending.append((other, iter(sorted(graph.get(other, ())))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], number[other])
            else:
                pending.pop()
                if pending:
                    low[pending[-1][0]] = min(low[pending[-1][0]], low[node])
                if low[node] == number[node]:
                    group = set[str]()
                    while node not in group:
                        group.add(stack.pop())
                    on_stack -= group
                    yield group


def levels(layers: Layers) -> dict[str, int]:
    """The layer of each room."""
    return {name: level for level, names in enumerate(layers) for name in names}


def room(module: str, known: Mapping[str, int]) -> str:
    """The room of a module: the innermost known room that contains it, else the module or package right under the top
    package. The empty string for the top package itself."""
    parts = module.split(".")[1:]
    names = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    return next((name for name in names if name in known), ".".join(parts[:1]))


def upward(found: Iterable[Arrow], layers: Layers) -> list[Arrow]:
    """Imports of anything that is not in a lower layer than the importer. The top package is above all layers."""
    known = levels(layers)
    result = []
    for arrow in found:
        mine, other = (room(module, known) for module in arrow[:2])
        if mine != other and mine and known.get(other, len(layers)) >= known[mine]:
            result.append(arrow)
    return result


def drawn(found: Iterable[Arrow], wrong: Iterable[Arrow], layers: Layers) -> Iterator[str]:
    """The rooms, layer by layer, and the imports between them, for Graphviz."""
    known = levels(layers)
    styles = dict[tuple[str, str], str]()
    for arrow in found:
        mine, other = (room(module, known) for module in arrow[:2])
        if mine and other and mine != other:
            plain = arrow.when != "typing" or styles.get((mine, other)) == ""
            styles[mine, other] = "" if plain else " [style=dashed]"
    for arrow in wrong:
        styles[room(arrow.importer, known), room(arrow.imported, known) or arrow.imported] = " [color=red]"
    yield "digraph imports {"
    for names in reversed(layers):
        yield f"  {{ rank=same; {'; '.join(map(_quoted, names))} }}"
    yield from (f"  {_quoted(mine)} -> {_quoted(other)}{style}" for (mine, other), style in sorted(styles.items()))
    yield "}"


def _quoted(name: str) -> str:
    return f'"{name}"' if "." in name else name


def twice(files: Mapping[str, Path]) -> list[str]:
    """Top-level classes that have the same name as one in another module of the folder."""
    first, found = dict[tuple[Path, str], str](), list[str]()
    for module, path in files.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                other = first.setdefault((path.parent, node.name), module)
                if other != module:
                    found.append(f"{module}: {node.name}, as in {other}")
    return found

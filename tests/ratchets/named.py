"""Finds the source files that name something: as an identifier or a module, or in a string that is not a docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache

WORD = re.compile(r"\w+(?:-\w+)*")


def touched(sources: Mapping[str, str], names: Collection[str]) -> list[str]:
    """The files in which one of these names is an identifier, an imported module, or a word of a string."""
    return [file for file, source in sources.items() if not words(source).isdisjoint(names)]


def declaring(sources: Mapping[str, str], name: str) -> list[str]:
    """The files that declare an option: a field of a class or a parameter of a function with this name."""
    return [file for file, source in sources.items() if name in declared(source)]


@cache
def words(source: str) -> frozenset[str]:
    """All identifiers of a source file, and all words of its strings except docstrings."""
    return frozenset(_words(ast.parse(source)))


@cache
def declared(source: str) -> frozenset[str]:
    """The fields of its classes and the parameters of its functions."""
    return frozenset(_declared(ast.parse(source)))


def docstrings(tree: ast.AST) -> set[ast.Constant]:
    """Strings that are statements: docstrings of modules, classes, functions and names."""
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {value for value in statements if isinstance(value, ast.Constant) and isinstance(value.value, str)}


def _words(tree: ast.AST) -> Iterator[str]:
    told = docstrings(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ImportFrom(module=module, names=names):
                yield from (module or "").split(".")
                yield from (alias.name for alias in names)
            case ast.Import(names=names):
                yield from (part for alias in names for part in alias.name.split("."))
            case ast.Constant(value=str(text)) if node not in told:
                yield from WORD.findall(text)


def _declared(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(body=body):
                yield from (
                    each.target.id
                    for each in body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                )
            case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
                yield from (each.arg for each in (*args.posonlyargs, *args.args, *args.kwonlyargs))

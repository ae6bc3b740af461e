"""The size of the package, and the number of files that typical changes touch."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import agentcho
from agentcho.config import ModelConfig, RunConfig

from . import Counts, graph, named, packing

BESIDE = ("lab", "integrations")
"""Folders left out when the package is counted without measurements and third-party integrations."""
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "an attention backend (flex)": ("flex",),
    "a leakage rule (AC019)": ("AC019",),
    "a field of chat completions (min_p)": ("min_p",),
    "a reuse method (KVCOMM)": ("kvcomm", "Anchored", "KVComm", "KVCOMM"),
    "a run-wide option (kv_dtype)": ("kv_dtype",),
}
"""One example of each kind of change, and the names that files use for it."""
METHODS = ("in-place", "first-k", "top-k", "cacheblend", "kvcomm", "epic")
"""Reuse methods with unambiguous names."""
OPTIONS = sorted({name for name in (*RunConfig.model_fields, *ModelConfig.model_fields) if "_" in name})
"""Options of a run with unambiguous names."""
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def limited(root: Path) -> Counts:
    """The figures that may only go down."""
    sources = read(root)
    found = {f"files that name {what}": len(touched(sources, names)) for what, names in EXAMPLES.items()}
    found["folders at the top"] = len({path.parent for path in package(root).glob("*/*.py")})
    files = graph.modules(root, "agentcho")
    found["types that another of their folder is called like"] = len(graph.twice(files))
    found["modules that library calls reach and that import typer"] = len(of_the_command_line(files))
    found["files that name a way of reuse, of all ways"] = sum(len(touched(sources, (name,))) for name in METHODS)
    declared = [len(named.declaring(sources, name)) for name in OPTIONS]
    found["files that declare an option of a run again, of all options"] = sum(number - 1 for number in declared)
    return found | packing.counts(sources)


def shown(root: Path) -> Counts:
    """The figures that are shown and have no limit."""
    sources = read(root)
    core = [source for file, source in sources.items() if not file.startswith(tuple(f"{each}/" for each in BESIDE))]
    arrows = {arrow[:2] for arrow in graph.arrows(graph.modules(root, "agentcho"))}
    importers = Counter(imported for importer, imported in arrows if importer.count("."))
    return {
        "modules": len(sources),
        "modules with one importer": sum(number == 1 for number in importers.values()),
        "statements": sum(map(statements, sources.values())),
        "statements without lab and integrations": sum(map(statements, core)),
        "code lines": sum(map(code_lines, sources.values())),
        "code lines without lab and integrations": sum(map(code_lines, core)),
    }


def of_the_command_line(files: Mapping[str, Path]) -> list[str]:
    """Modules that public names need and that import a command line library. Library calls must not raise errors of the
    command line, so there should be none."""
    homes = [f"agentcho.{home}" for home in agentcho.HOMES]
    called = sorted(graph.reached(graph.arrows(files), homes) & files.keys())
    tops = {name: {each.name.split(".")[0] for each in graph.imports(files[name].read_text())} for name in called}
    return [name for name, imported in tops.items() if not imported.isdisjoint({"typer", "click"})]


def package(root: Path) -> Path:
    """The folder of the package in a checkout."""
    return root / "agentcho"


def read(root: Path) -> dict[str, str]:
    """The source files of the package by path."""
    files = sorted(package(root).rglob("*.py"))
    return {file.relative_to(package(root)).as_posix(): file.read_text() for file in files}


def touched(sources: Mapping[str, str], names: tuple[str, ...]) -> list[str]:
    """The files that contain one of these names, or whose path does."""
    called = [file for file in sources if not {*file.removesuffix(".py").split("/")}.isdisjoint(names)]
    return sorted({*called, *named.touched(sources, names)})


def statements(source: str) -> int:
    """The number of statements of a file, without docstrings."""
    tree = ast.parse(source)
    told = named.docstrings(tree)
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.stmt))
    return sum(not (isinstance(node, ast.Expr) and node.value in told) for node in nodes)


def code_lines(source: str) -> int:
    """The number of lines with code: not blank, no comment, no docstring."""
    found = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for string in named.docstrings(ast.parse(source)):
        found.difference_update(range(string.lineno, (string.end_lineno or string.lineno) + 1))
    return len(found)

"""Names that must not disappear: those that users import, and those stored in files.

The kept names are a minimum; new names are allowed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from importlib import import_module

import agentcho
from agentcho import errors

from .plays import ROOT, Lines

PAGES = ("README.md", "docs", "examples", "agents", "scenarios")
IMPORTED = re.compile(r"from (agentcho(?:\.\w+)+) import ([\w, ]+)")
TOLD = re.compile(r"::\s+(agentcho(?:\.\w+)+)")
FORMAT = re.compile(r"agentcho[-a-z]*/\d+")
FILE = re.compile(r"[a-z]\w+\.(jsonl|json|safetensors|pt|key)")
FIELDS = {"structured_outputs.json"}
"""Fields of requests that look like file names."""


def public() -> Lines:
    """Public names, the errors (records hold their class names), and what pages and examples import."""
    found = {f"agentcho.{name}" for name in (*agentcho.__all__, *agentcho.MOVED)}
    found |= {f"agentcho.errors.{name}" for name, value in vars(errors).items() if _error(value)}
    for place in PAGES:
        files = [ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*"))
        for file in files:
            if file.suffix in (".md", ".py", ".ipynb") and "_build" not in file.parts and file.stem != "structure":
                text = file.read_text(encoding="utf-8")
                found |= {
                    f"{home}.{name.strip()}" for home, names in IMPORTED.findall(text) for name in names.split(",")
                }
                found.update(TOLD.findall(text))
    return [json.dumps({"import": name}) for name in sorted(found)]


def stored() -> Lines:
    """Constants in the source that end up on disk or in hashes: formats, hash personalization strings, file names."""
    found = set[tuple[str, str]]()
    for file in sorted((ROOT / "agentcho").rglob("*.py")):
        found.update(_spelled(ast.parse(file.read_text())))
    return [json.dumps({kind: value}) for kind, value in sorted(found)]


def _error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, errors.AgentchoError)


def _spelled(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "person" and isinstance(node.value, ast.Constant):
            assert isinstance(node.value.value, bytes)
            yield "person", node.value.value.decode()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if FORMAT.fullmatch(node.value):
                yield "format", node.value
            elif FILE.fullmatch(node.value) and node.value not in FIELDS:
                yield "file", node.value


def imported(name: str) -> object:
    """The object of a dotted name, whichever of its parts are modules. ImportError or AttributeError: there is none."""
    parts = name.split(".")
    value: object = import_module(parts[0])
    for number, part in enumerate(parts[1:], start=2):
        try:
            value = getattr(value, part)
        except AttributeError:
            value = import_module(".".join(parts[:number]))
    return value

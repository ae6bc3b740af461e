"""Names that may not be lost: those that users import, and those that stand in files.

What is kept is the least that there has to be; more may come. Does not know: what the names stand for.
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
"""What looks like the name of a file and is a field of a request."""


def public() -> Lines:
    """Public names, the errors (records hold the names of their classes), and what pages and examples import."""
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
    """What source files spell out of what lies on disk or is hashed: formats, the persons of hashes, names of files."""
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
    """What a dotted name stands for, however many of its parts are modules. ImportError or AttributeError: nothing."""
    parts = name.split(".")
    value: object = import_module(parts[0])
    for number, part in enumerate(parts[1:], start=2):
        try:
            value = getattr(value, part)
        except AttributeError:
            value = import_module(".".join(parts[:number]))
    return value

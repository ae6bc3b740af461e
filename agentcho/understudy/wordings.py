"""Reads the wordings in `rules/`: each file names symbols, and under each its possible wordings.

A line at the margin that ends in a colon names a symbol; each line below it, indented by two spaces,
is one wording, kept as it stands after these two. Knows not what a wording is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

Rules = Mapping[str, tuple[str, ...]]


@cache
def rules(name: str) -> Rules:
    """The rules of one file, by symbol."""
    text = (files(__package__) / "rules" / f"{name}.txt").read_text(encoding="utf-8")
    found: dict[str, tuple[str, ...]] = {}
    symbol = ""
    for line in text.splitlines():
        if line.startswith("  "):
            found[symbol] += (line[2:],)
        elif line.endswith(":") and not line.startswith("#"):
            symbol = line[:-1]
            found[symbol] = ()
    return found

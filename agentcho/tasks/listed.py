"""Reads lists of words and sentences: a line at the margin that ends in a colon names a list, each line below it,
indented by two spaces, is one item, kept as it stands after these two.

Does not know: what a list is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

Lists = Mapping[str, tuple[str, ...]]


def parse(text: str) -> Lists:
    """The lists of a text by name, in their order."""
    found: dict[str, tuple[str, ...]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("  "):
            found[name] += (line[2:],)
        elif line.endswith(":") and not line.startswith("#"):
            name = line[:-1]
            found[name] = ()
    return found


@cache
def lists(name: str) -> Lists:
    """The lists of one file in `words/`."""
    return parse((files(__package__) / "words" / f"{name}.txt").read_text(encoding="utf-8"))

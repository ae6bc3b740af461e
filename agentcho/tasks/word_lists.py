"""Reads lists of words and sentences from the TOML files in `words/`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

Lists = Mapping[str, tuple[str, ...]]


def parse(text: str) -> Lists:
    """The lists of a file by name, in order."""
    return {name: tuple(items) for name, items in tomllib.loads(text).items()}


@cache
def lists(name: str) -> Lists:
    """The lists of one file in `words/`."""
    return parse((files(__package__) / "words" / f"{name}.toml").read_text(encoding="utf-8"))

"""The wordings in `rules/`: symbols and their possible wordings."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from agentcho.tasks.word_lists import Lists as Rules
from agentcho.tasks.word_lists import parse

__all__ = ["Rules", "rules"]


@cache
def rules(name: str) -> Rules:
    """The rules of one file, by symbol."""
    return parse((files(__package__) / "rules" / f"{name}.toml").read_text(encoding="utf-8"))

"""The declarations for AgentDojo's tools, from `labels.toml` next to this file. Must not import AgentDojo."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentcho.games.tools.tool import Declared, declared
from agentcho.message import EVERYONE

FILE = Path(__file__).with_name("labels.toml")


class Label(BaseModel):
    """One row of the table: see the head of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tools: Annotated[tuple[str, ...], Field(min_length=1)]
    audience: Literal["nobody", "world"]
    effect: bool
    trusted: bool
    results: Literal["private", "everyone"]
    why: str

    @property
    def declared(self) -> Declared:
        """The label as a tool declaration."""
        results = EVERYONE if self.results == "everyone" else None
        return declared(self.audience, self.effect, self.trusted, results, timeout=None, most=1 << 24)


@cache
def labels() -> Mapping[str, tuple[Label, ...]]:
    """The rows of each suite. ValueError: a tool has two rows."""
    found = {suite: tuple(map(Label.model_validate, rows)) for suite, rows in tomllib.loads(FILE.read_text()).items()}
    for suite, rows in found.items():
        names = [name for row in rows for name in row.tools]
        if len(names) != len(set(names)):
            raise ValueError(f"{FILE.name}: a tool of {suite} has two rows")
    return found


def label(suite: str, tool: str) -> Label:
    """The row of a tool. KeyError: it has none."""
    for row in labels()[suite]:
        if tool in row.tools:
            return row
    raise KeyError(f"{suite}.{tool} has no label")

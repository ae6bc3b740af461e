"""The columns of a comparison: ways of reading, as they are named on a command line.

Does not know: what is played, models.
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from agentcho.config import Leakage, Mode, RunConfig
from agentcho.errors import BadColumn

IN_PLACE = "in-place"


class Column(BaseModel):
    """One way to read: `mode[:leakage][:in-place]`. `in_place`: keys stay at the positions at which they were made
    (no repositioning; the paper's footnote 5)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Mode
    leakage: Leakage = "audit"
    in_place: bool = False

    @property
    def name(self) -> str:
        """As it is written on the command line."""
        parts = [self.mode, *([self.leakage] if self.mode == "choreographed" else [])]
        return ":".join([*parts, *([IN_PLACE] if self.in_place else [])])

    def config(self, base: RunConfig) -> RunConfig:
        """The options of a run that is played this way."""
        ways = {"mode": self.mode, "leakage": self.leakage, "in_place": self.in_place}
        return RunConfig.model_validate(base.model_dump() | ways)


def columns(text: str) -> tuple[Column, ...]:
    """Columns from their names, with commas between. `BadColumn`: one is none, or stands twice."""
    found: list[Column] = []
    for name in text.split(","):
        column = _column(name.strip())
        if column in found:
            raise BadColumn(name.strip(), "stands twice")
        found.append(column)
    return tuple(found)


def _column(name: str) -> Column:
    if "@" in name:
        raise BadColumn(name, "names an adapter, which this version cannot load yet")
    mode, *rest = name.split(":")
    if mode not in get_args(Mode):
        raise BadColumn(name, f"{mode!r} is no mode; there are {' and '.join(get_args(Mode))}")
    known: dict[Literal["leakage", "in_place"], object] = {}
    for word in rest:
        if mode == "baseline":
            raise BadColumn(name, "baseline stands alone: it encodes every prompt anew, at its own positions")
        if word in get_args(Leakage):
            known["leakage"] = word
        elif word == IN_PLACE:
            known["in_place"] = True
        else:
            raise BadColumn(name, f"{word!r} is none of {', '.join((*get_args(Leakage), IN_PLACE))}")
    if len(known) < len(rest):
        raise BadColumn(name, "says one thing twice")
    return Column.model_validate({"mode": mode} | known)

"""The columns of a comparison: ways of reading by their names on the command line.

Does not know: what is played, models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from agentcho.audit.measurement import Frozen
from agentcho.config import Leakage, Mode, RunConfig, parsed_repair
from agentcho.engine.adapter import find_adapter
from agentcho.errors import ConfigError

IN_PLACE = "in-place"


class Column(Frozen):
    """One way to read: `mode[:leakage][:in-place][+repair][@adapter]`. `in_place`: keys stay at the positions at which
    they were made (no repositioning; the paper's footnote 5). `repair`: first-k:TOKENS, top-k:SHARE or full. `adapter`
    is a folder, `digest` that of what was in it when it was asked for."""

    mode: Mode
    leakage: Leakage = "audit"
    in_place: bool = False
    repair: str | None = None
    adapter: str | None = None
    digest: str | None = None

    @property
    def name(self) -> str:
        """The name on the command line; of an adapter only the folder's own name."""
        parts = [self.mode, *([self.leakage] if self.mode == "choreographed" else [])]
        name = ":".join([*parts, *([IN_PLACE] if self.in_place else [])])
        name = name if self.repair is None else f"{name}+{self.repair}"
        return name if self.adapter is None else f"{name}@{Path(self.adapter).resolve().name}"

    def config(self, base: RunConfig) -> RunConfig:
        """The options of a run in this column."""
        return RunConfig.model_validate(base.model_dump() | self.model_dump(exclude={"digest"}))

    def folder(self, out: Path) -> Path:
        """Where the records of its games are."""
        name = self.name.replace(":", "-")
        return out / (name if self.digest is None else f"{name}-{self.digest[:8]}")


def columns(text: str, repairs: str | None = None, adapter: str | None = None) -> tuple[Column, ...]:
    """Columns from their names, with commas between; each choreographed one once more with each of `repairs`.
    `adapter` is for those choreographed ones that name none.

    `ConfigError`: one is none, or stands twice. `AdapterError`: a folder holds none.
    """
    found = _named(text)
    if adapter is not None:
        found = [_adapted(column, adapter) for column in found]
    plain = [column for column in found if column.mode == "choreographed" and not column.in_place and not column.repair]
    if repairs is not None and not plain:
        raise _bad(text, "no column could be repaired: give a choreographed one, not in-place")
    for column in plain:
        for repair in repairs.split(",") if repairs else ():
            found.append(
                column.model_copy(update={"repair": _repair(f"{column.name}+{repair.strip()}", repair.strip())})
            )
    return tuple(found)


def _named(text: str) -> list[Column]:
    found: list[Column] = []
    for name in text.split(","):
        column = _column(name.strip())
        if column.name in {other.name for other in found}:
            raise _bad(name.strip(), "stands twice (an adapter goes by its folder's own name)")
        found.append(column)
    return found


def _adapted(column: Column, folder: str) -> Column:
    if column.mode == "baseline" or column.adapter is not None:
        return column
    return column.model_copy(update={"adapter": folder, "digest": find_adapter(folder).digest})


def _column(name: str) -> Column:
    written, at, folder = name.partition("@")
    column = _way(name, written)
    if not at:
        return column
    return column.model_copy(update={"adapter": folder, "digest": find_adapter(folder).digest})


def _way(name: str, written: str) -> Column:
    way, plus, repair = written.partition("+")
    mode, *rest = way.split(":")
    if mode not in get_args(Mode):
        raise _bad(name, f"{mode!r} is no mode; there are {' and '.join(get_args(Mode))}")
    known: dict[Literal["leakage", "in_place"], object] = {}
    for word in rest:
        if mode == "baseline":
            raise _bad(name, "baseline stands alone: it encodes every prompt anew, at its own positions")
        if word in get_args(Leakage):
            known["leakage"] = word
        elif word == IN_PLACE:
            known["in_place"] = True
        else:
            raise _bad(name, f"{word!r} is none of {', '.join((*get_args(Leakage), IN_PLACE))}")
    if len(known) < len(rest):
        raise _bad(name, "says one thing twice")
    if plus and (mode == "baseline" or known.get("in_place")):
        raise _bad(name, "a repair goes with a choreographed column alone, and not in-place")
    return Column.model_validate({"mode": mode} | known | ({"repair": _repair(name, repair)} if plus else {}))


def _repair(name: str, text: str) -> str:
    try:
        parsed_repair(text)
    except ValueError as error:
        raise _bad(name, str(error)) from None
    return text


def _bad(name: str, what: str) -> ConfigError:
    return ConfigError(f"column {name!r}: {what}. Columns are such as baseline or choreographed:enforce:in-place")

"""The columns of a comparison: reading modes by their names on the command line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from agentcho.config import Leakage, Mode, RunConfig, option_names
from agentcho.engine.lora_adapter import find_adapter
from agentcho.errors import AdapterError, ConfigError
from agentcho.games.runs.loading import tell_unfinished
from agentcho.records.frozen import Frozen
from agentcho.records.trained_adapters import called
from agentcho.reuse.in_place import InPlace
from agentcho.reuse.registry import ALL, DEFAULT, READINGS, parsed_repair, parsed_way, usual_repairs, usual_ways

DEFAULT_MODES = "baseline,choreographed:audit,choreographed:enforce"
OF_COLUMNS = (
    *("mode", "leakage", "reuse", "repair", "adapter", "merge", "limits", "games", "part"),
    *option_names("served"),
)
"""The run options that a comparison does not take, or that each column sets itself."""


class Column(Frozen):
    """One reading mode: `mode[:leakage][:way][+repair][@adapter]`. `in_place`: keys stay at the positions at which they
    were made (no repositioning; the paper's footnote 5). `reuse`: a way of reading other than the default, as
    `parsed_way` takes it. `repair`: as `parsed_repair` takes it. `adapter` is a folder, `digest` that of its content
    when the column was made."""

    mode: Mode
    leakage: Leakage = "audit"
    in_place: bool = False
    reuse: str = DEFAULT
    repair: str | None = None
    adapter: str | None = None
    digest: str | None = None

    @property
    def name(self) -> str:
        """The name on the command line, with the name of its adapter (`trained_adapters.called`)."""
        parts = [self.mode, *([self.leakage] if self.mode == "choreographed" else [])]
        way = InPlace.name if self.in_place else self.reuse
        name = ":".join([*parts, *([way] if way != DEFAULT else [])])
        name = name if self.repair is None else f"{name}+{self.repair}"
        return name if self.adapter is None else f"{name}@{called(Path(self.adapter).resolve())}"

    @property
    def plain(self) -> bool:
        """Whether it reuses encodings with repositioned keys and nothing else."""
        return self.mode == "choreographed" and self.method is None

    @property
    def method(self) -> str | None:
        """What it does in addition to repositioning keys, or instead; None: nothing."""
        return self.repair or (InPlace.name if self.in_place else self.reuse if self.reuse != DEFAULT else None)

    def check_adapter(self) -> None:
        """Raise `AdapterError` if the folder of the adapter has changed since the column was made."""
        if self.adapter is None or self.digest is None:
            return
        if find_adapter(self.adapter).digest != self.digest:
            reason = "it has changed since this command began; if it is being trained, wait for the end, and repeat"
            raise AdapterError(Path(self.adapter), reason)

    def config(self, base: RunConfig) -> RunConfig:
        """The options of a run in this column."""
        own = self.model_dump(exclude={"digest", "in_place"}) | ({"reuse": InPlace.name} if self.in_place else {})
        return RunConfig.model_validate(base.renamed() | own)

    def folder(self, out: Path) -> Path:
        """The folder of the records of its games."""
        name = self.name.replace(":", "-").replace("/", "-")
        return out / (name if self.digest is None else f"{name}-{self.digest[:8]}")


def columns(
    text: str, repairs: str | None = None, adapter: str | None = None, ways: str | None = None
) -> tuple[Column, ...]:
    """Parse columns from their comma-separated names. Each plain choreographed column is repeated in each of `ways` and
    with each of `repairs`; "all" stands for every usual repair and, unless `ways` is given, every usual way. `adapter`
    is used by choreographed columns that name none.

    A note names each adapter whose training has not finished.

    `ConfigError`: a column is invalid or given twice. `AdapterError`: a folder has no adapter.
    """
    found = _named(text)
    if adapter is not None:
        found = [_adapted(column, adapter) for column in found]
        if twice := [name for name, count in Counter(column.name for column in found).items() if count > 1]:
            raise _bad(text, f"with --adapter {adapter}, {twice[0]} is given twice; rename a folder, or leave one out")
    if repairs is not None and repairs.strip() == ALL:
        repairs, ways = ",".join(usual_repairs()), ",".join(usual_ways()) if ways is None else ways
    plain = [column for column in found if column.plain]
    if (repairs is not None or ways is not None) and not plain:
        raise _bad(text, "no column can be repaired or read in another way: give a plain choreographed one")
    for column in plain:
        more = [_in_way(column, way) for way in _split(ways or "")]
        more += [_repaired(column, repair) for repair in _split(repairs or "")]
        names = {each.name for each in found}
        found += [each for each in dict.fromkeys(more) if each.name not in names]
    for folder in dict.fromkeys(column.adapter for column in found):
        tell_unfinished(folder)
    return tuple(found)


def _split(text: str) -> list[str]:
    """Split a comma-separated list; a comma before a digit is part of a name, as in ape:0.9,0.8."""
    return [name.strip() for name in re.split(r",(?!\s*[\d.])", text)] if text else []


def _in_way(column: Column, way: str) -> Column:
    read = _checked(f"{column.name}:{way}", way, parsed_way)
    return column.model_copy(update={"in_place": True} if read == InPlace.name else {"reuse": read})


def _repaired(column: Column, repair: str) -> Column:
    return column.model_copy(update={"repair": _checked(f"{column.name}+{repair}", repair, parsed_repair)})


def _named(text: str) -> list[Column]:
    found: list[Column] = []
    for name in _split(text) or [""]:
        column = _column(name.strip())
        if column.name in {other.name for other in found}:
            raise _bad(name.strip(), "it is given twice (adapters are named by their folder's own name)")
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
    names = [each.name for each in READINGS]
    mode, *rest = re.sub(rf":({'|'.join(names)}):([^:]*[\d.][^:]*)", r":\1=\2", way).split(":")
    if mode not in get_args(Mode):
        raise _bad(name, f"unknown mode {mode!r}; give {' or '.join(get_args(Mode))}")
    known: dict[str, object] = {}
    for word in rest:
        if mode == "baseline":
            raise _bad(name, "baseline takes no other words: it encodes every prompt anew, at its own positions")
        if word in get_args(Leakage):
            known["leakage"] = word
        elif word == InPlace.name:
            known["in_place"] = True
        elif word.partition("=")[0] in names[1:]:
            known["reuse"] = _checked(name, word.replace("=", ":"), parsed_way)
        else:
            raise _bad(name, f"{word!r} is none of {', '.join((*get_args(Leakage), *names[1:]))}")
    if len(known) < len(rest) or known.keys() >= {"in_place", "reuse"}:
        raise _bad(name, "it sets one option twice")
    if plus and (mode == "baseline" or known.keys() & {"in_place", "reuse"}):
        raise _bad(name, f"a repair needs a choreographed column that reads by {DEFAULT}")
    repaired = {"repair": _checked(name, repair, parsed_repair)} if plus else {}
    return Column.model_validate({"mode": mode} | known | repaired)


def _checked(name: str, text: str, parsed: Callable[[str], object]) -> str:
    try:
        parsed(text)
    except ValueError as error:
        raise _bad(name, str(error)) from None
    return text


def _bad(name: str, what: str) -> ConfigError:
    return ConfigError(f"column {name!r}: {what}. Columns are such as baseline or choreographed:enforce:{InPlace.name}")

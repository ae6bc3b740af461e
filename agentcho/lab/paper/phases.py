"""The phases of a reproduction: what each took, over all commands that worked at it, and which no longer began because
a budget was used up. Does not know: what is done in one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from agentcho.errors import ConfigError
from agentcho.lab.paper.found import Phase
from agentcho.records.files import LineFile, read_lines

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Spent(Exception):
    """A phase was not begun: the budget is used up."""


def parsed_budget(text: str) -> float:
    """`90s`, `20m` or `1.5h` in seconds. `ConfigError`: it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if found is None or float(found[1]) <= 0:
        raise ConfigError(
            f"budget {text!r} is not a time; give a number above 0 and its unit, such as 90s, 20m or 1.5h"
        )
    return float(found[1]) * UNITS[found[2]]


class Phases:
    """All phases of one folder. `budget`: seconds after which none begins; one that has begun is finished."""

    def __init__(self, file: Path, budget: float | None) -> None:
        self._file = file
        self._budget = budget
        self._began = perf_counter()
        self.left = list[str]()

    @contextmanager
    def begin(self, name: str) -> Iterator[None]:
        """A phase that has something to do. `Spent`: it is left over. Its time is kept however it ends."""
        if self._budget is not None and perf_counter() - self._began >= self._budget:
            self.left.append(name)
            raise Spent(name)
        began = perf_counter()
        try:
            yield
        finally:
            with LineFile(self._file) as lines:
                lines.append({"phase": name, "seconds": round(perf_counter() - began, 3)})

    def found(self) -> tuple[Phase, ...]:
        """What each took, in the order in which they were begun first."""
        taken: dict[str, float] = {}
        for _, line in read_lines(self._file) if self._file.exists() else ():
            taken[line["phase"]] = taken.get(line["phase"], 0.0) + line["seconds"]
        return tuple(Phase(name=name, seconds=round(seconds, 3)) for name, seconds in taken.items())

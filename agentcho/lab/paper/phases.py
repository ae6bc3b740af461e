"""The phases of a reproduction: the time of each, over all commands that worked on it, and those that were not begun
because a budget was used up.
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
    """Parse `90s`, `20m` or `1.5h` to seconds. `ConfigError`: it is not a time."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if found is None or float(found[1]) <= 0:
        raise ConfigError(
            f"budget {text!r} is not a time; give a number above 0 and its unit, such as 90s, 20m or 1.5h"
        )
    return float(found[1]) * UNITS[found[2]]


class Phases:
    """All phases of one folder. `budget`: seconds after which none is begun; a running one is finished."""

    def __init__(self, file: Path, budget: float | None) -> None:
        self._file = file
        self._budget = budget
        self._began = perf_counter()
        self.left = list[str]()

    @contextmanager
    def begin(self, name: str) -> Iterator[None]:
        """Run a phase. `Spent`: the budget is used up. Its time is recorded however it ends."""
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
        """The time of each phase, in the order in which they were first begun."""
        taken: dict[str, float] = {}
        for _, line in read_lines(self._file) if self._file.exists() else ():
            taken[line["phase"]] = taken.get(line["phase"], 0.0) + line["seconds"]
        return tuple(Phase(name=name, seconds=round(seconds, 3)) for name, seconds in taken.items())

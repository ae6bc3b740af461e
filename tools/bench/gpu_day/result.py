"""The result file of a run, `agentcho-gpu/1`: it is whole on disk after each thing that was measured, whatever becomes
of the process then. Does not know: what is measured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.bench.gpu_day.parts import Part

FORMAT = "agentcho-gpu/1"
RUNNING = "running"
"""The state of a part that is measured; of one that was measured when everything was killed, for ever."""


class ResultFile:
    """The result of one run, and the file in which it is kept. `command` and `asked`: what was asked for."""

    def __init__(self, file: Path, command: str, asked: Mapping[str, Any]) -> None:
        self._file = file
        self._parts = list[dict[str, Any]]()
        began = datetime.now(UTC).isoformat(timespec="seconds")
        self.held: dict[str, Any] = {"format": FORMAT, "command": command, "asked": dict(asked), "began": began}
        self.held |= {"machine": {}, "parts": self._parts, "ended": None}

    def begin(self, part: Part, second: float) -> None:
        """A part begins, so many seconds after the program did."""
        said = {"name": part.name, "title": part.title, "state": RUNNING, "began": round(second, 1), "found": {}}
        self._parts.append(said)
        self.write()

    def keep(self, name: str, value: Any) -> None:
        """Something that the running part has found."""
        self._parts[-1]["found"][name] = value
        self.write()

    def end(self, state: str, **more: Any) -> None:
        """The running part has ended: "done", "failed" or "skipped"."""
        self._parts[-1] |= {"state": state, **more}
        self.write()

    def never(self, part: Part, why: str) -> None:
        """A part that does not run, and why."""
        self._parts.append({"name": part.name, "title": part.title, "state": "skipped", "why": why, "found": {}})
        self.write()

    def learn(self, machine: Mapping[str, str]) -> None:
        """Versions, commit and digests of the code that has run. Digests of several processes are put together."""
        known = self.held["machine"]
        trees = sorted({*known.get("trees", "").split(), *machine.get("trees", "").split()})
        known |= {**machine, **({"trees": " ".join(trees)} if trees else {})}
        self.write()

    def close(self, how: str) -> None:
        """The run has ended: "whole", "time was up" or "interrupted"."""
        self.held["ended"] = how
        self.write()

    def write(self) -> None:
        """Put what is held into the file, all of it or nothing."""
        partly = self._file.with_name(f".{self._file.name}.part")
        with partly.open("w") as file:
            json.dump(self.held, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        partly.replace(self._file)

"""The result file of a run, `agentcho-gpu/1`. It is complete on disk after each measurement, whatever then happens to
the process.
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
"""The state of a part that is being measured, or that was when everything was killed."""


class ResultFile:
    """The result of one run, and its file. `command` and `asked`: the options of the run."""

    def __init__(self, file: Path, command: str, asked: Mapping[str, Any]) -> None:
        self._file = file
        self._parts = list[dict[str, Any]]()
        began = datetime.now(UTC).isoformat(timespec="seconds")
        self.held: dict[str, Any] = {"format": FORMAT, "command": command, "asked": dict(asked), "began": began}
        self.held |= {"machine": {}, "parts": self._parts, "ended": None}

    def begin(self, part: Part, second: float) -> None:
        """A part begins, `second` seconds after the program did."""
        said = {"name": part.name, "title": part.title, "state": RUNNING, "began": round(second, 1), "found": {}}
        self._parts.append(said)
        self.write()

    def keep(self, name: str, value: Any) -> None:
        """Add something that the running part has found."""
        self._parts[-1]["found"][name] = value
        self.write()

    def end(self, state: str, **more: Any) -> None:
        """The running part has ended: "done", "failed" or "skipped"."""
        self._parts[-1] |= {"state": state, **more}
        self.write()

    def never(self, part: Part, why: str) -> None:
        """Add a part that does not run, and why."""
        self._parts.append({"name": part.name, "title": part.title, "state": "skipped", "why": why, "found": {}})
        self.write()

    def learn(self, machine: Mapping[str, str]) -> None:
        """Add versions, commit and digests of the code that has run. Digests from several processes are merged."""
        known = self.held["machine"]
        trees = sorted({*known.get("trees", "").split(), *machine.get("trees", "").split()})
        known |= {**machine, **({"trees": " ".join(trees)} if trees else {})}
        self.write()

    def close(self, how: str) -> None:
        """The run has ended: "whole", "time was up" or "interrupted"."""
        self.held["ended"] = how
        self.write()

    def write(self) -> None:
        """Write the file, atomically."""
        partly = self._file.with_name(f".{self._file.name}.part")
        with partly.open("w") as file:
            json.dump(self.held, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        partly.replace(self._file)

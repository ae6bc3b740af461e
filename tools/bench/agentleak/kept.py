"""Workflows that were measured so far, a line each in a file beside the result's, so that who was stopped goes on.

Does not know: what is measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from agentcho.errors import ConfigError, RecordBroken
from agentcho.records.files import check_file, replace_whole
from tools.bench.agentleak.result import Office

END = ".part"
"""What the name of the file has behind that of the result."""


class Kept:
    """What is there, and where it is kept: nowhere without a file. `seconds`: how long it took to measure."""

    def __init__(self, file: Path | None, settings: Mapping[str, str]) -> None:
        self._file, self._settings = file, dict(settings)
        self.offices: dict[str, Office] = {}
        self.skipped: dict[str, str] = {}
        self.seconds = 0.0

    @classmethod
    def begin(cls, result: Path | None, resume: bool, settings: Mapping[str, str]) -> Kept:
        """Keep it beside the file of the result, or go on with what is there. `ConfigError`: what is there was measured
        otherwise, or is in the way; `RecordBroken`: it is damaged."""
        if result is None:
            if resume:
                raise ConfigError("what is to go on has no file: name that of the result by --json FILE")
            return cls(None, settings)
        file = result.with_name(result.name + END)
        check_file(file)
        if not resume and file.exists():
            raise ConfigError(f"{file} has what was measured before: go on by --resume, or delete it")
        kept = cls(file, settings)
        if file.exists():
            kept._read(file)
        return kept

    def _read(self, file: Path) -> None:
        try:
            found = json.loads(file.read_bytes())
            settings, self.skipped, self.seconds = found["settings"], dict(found["skipped"]), float(found["seconds"])
            self.offices = {one.workflow: one for one in map(Office.model_validate, found["workflows"])}
        except (ValueError, KeyError, TypeError, ValidationError):
            raise RecordBroken(f"{file}:1", "is not what was kept of these workflows; delete it") from None
        if other := [name for name in self._settings if settings.get(name) != self._settings[name]]:
            told = "; ".join(f"{name} was {settings.get(name)}, and is {self._settings[name]}" for name in other)
            raise ConfigError(f"{file} was measured otherwise: {told}. Ask for the same, or delete it")

    def __contains__(self, workflow: str) -> bool:
        return workflow in self.offices or workflow in self.skipped

    def add(self, workflow: str, found: Office | str, seconds: float) -> None:
        """One workflow more, or why there is nothing of it; on disk when this returns."""
        if isinstance(found, str):
            self.skipped[workflow] = found
        else:
            self.offices[workflow] = found
        self.seconds += seconds
        if self._file is not None:
            lines = [one.model_dump(mode="json") for one in self.offices.values()]
            whole = {"settings": self._settings, "seconds": self.seconds, "skipped": self.skipped, "workflows": lines}
            replace_whole(self._file, json.dumps(whole) + "\n")

    def done(self) -> None:
        """The result is written: take this away."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

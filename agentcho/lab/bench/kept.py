"""What a benchmark has measured so far, in a file beside the result's, so that one that was killed goes on.

A repeat is kept when all arms have had their turn in it, so that ratios are made within one process. Does not know:
what is measured.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from agentcho.calls.costs import Costs
from agentcho.errors import ConfigError, RecordBroken
from agentcho.lab.bench.plans import Workload
from agentcho.lab.bench.result import Figures
from agentcho.records.files import check_file, replace_whole

END = ".part"
"""What the name of the file has behind that of the result."""
Repeat = dict[str, dict[str, float]]
"""What one repeat took, by arm and by what was measured."""


class Subject(BaseModel):
    """What was measured of one subject: whole repeats, why arms are not there, and how near words are."""

    model_config = ConfigDict(extra="forbid")
    repeats: list[Repeat] = []
    unavailable: dict[str, str] = {}
    figures: list[Figures] | None = None


class Part(BaseModel):
    """The file. `settings`: all that figures depend on; `costs`: what forwards take, by which guesses are weighed."""

    model_config = ConfigDict(extra="forbid")
    format: Literal["agentcho-bench-part/1"] = "agentcho-bench-part/1"
    settings: dict[str, str]
    costs: Costs | None = None
    subjects: dict[str, Subject] = {}


class Kept:
    """What was measured, and where it is kept; nowhere without a file."""

    def __init__(self, file: Path | None = None, part: Part | None = None) -> None:
        self._file, self._part = file, part or Part(settings={})

    @classmethod
    def begin(cls, result: Path | None, resume: bool, settings: Mapping[str, str]) -> Self:
        """Keep it beside the file of the result, or go on with what is there. `ConfigError`: what is there was asked
        for otherwise, or is in the way. `CannotWrite`, `RecordBroken`: the file cannot be written, or read."""
        file = beside(result, resume)
        if file is None:
            return cls()
        kept = cls(file, _read(file) if file.exists() else None)
        kept.check(settings)
        return kept

    def check(self, settings: Mapping[str, str]) -> None:
        """Note what figures depend on. `ConfigError`: what is kept was measured with other settings."""
        known = self._part.settings
        other = [name for name in settings if known.get(name, settings[name]) != settings[name]]
        if other:
            told = "; ".join(f"{name} was {known[name]}, and is {settings[name]}" for name in other)
            raise ConfigError(f"{self._file} was measured otherwise: {told}. Ask for the same, or delete it")
        known.update(settings)

    def costs(self, engine: Any) -> None:
        """Weigh guesses on this engine by what forwards took when the first of it was measured."""
        self._part.costs = engine.speculate(self._part.costs)

    def subject(self, name: str) -> Subject:
        """What is there of a subject, to be added to."""
        return self._part.subjects.setdefault(name, Subject())

    def save(self) -> None:
        """Write all of it, whole or not at all. `CannotWrite`."""
        if self._file is not None:
            replace_whole(self._file, self._part.model_dump_json() + "\n")

    def done(self) -> None:
        """The result is written: take this away."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def beside(result: Path | None, resume: bool) -> Path | None:
    """The file beside a result in which what was measured is kept, to begin it or to go on with it; None: nothing is
    kept, as beside a pipe. `ConfigError`: there is nothing to go on with, or something is in the way. `CannotWrite`."""
    if result is None or (result.exists() and not result.is_file()):
        if resume:
            raise ConfigError("what is to go on has no file: name that of the result by --json FILE")
        return None
    file = result.with_name(result.name + END)
    check_file(file)
    if not resume and file.exists():
        raise ConfigError(f"{file} has what was measured before: go on by --resume, or delete it")
    if resume and result.exists() and not file.exists():
        raise ConfigError(f"{result} is whole: there is nothing to go on with; leave out --resume to measure again")
    return file


def digest(subjects: Iterable[Workload]) -> str:
    """Of the names and all words of these workflows."""
    found = sha256()
    for each in subjects:
        found.update(json.dumps([each.name, each.workflow.to_json(), each.warm.to_json()], sort_keys=True).encode())
    return f"sha256 {found.hexdigest()[:16]}"


def figures(subject: str, arms: Collection[str], kept: Subject) -> list[Figures]:
    """Of each arm what all repeats took; none of one that was not there in all of them."""
    return [Figures.of(subject, arm, list(_taken(arm, kept)), kept.unavailable.get(arm)) for arm in arms]


def _taken(arm: str, kept: Subject) -> Iterator[Mapping[str, float]]:
    return (repeat[arm] for repeat in kept.repeats if arm not in kept.unavailable)


def _read(file: Path) -> Part:
    try:
        return Part.model_validate_json(file.read_bytes())
    except ValidationError:
        raise RecordBroken(f"{file}:1", "is not what a benchmark has kept (agentcho-bench-part/1)") from None

"""What has been measured so far, in a file beside the result's, so that a measurement that was stopped goes on.

One mechanism for all that measures for a long time: it is begun or resumed with the same settings, saved whole after
each part, and taken away when the result is written. Does not know: what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from agentcho.errors import ConfigError, RecordBroken
from agentcho.records.files import check_file, replace_whole, write_errors

PACKAGE = Path(__file__).parents[1]
UNNAMED = "--resume needs the result file of the interrupted measurement: pass it with --json FILE"
END = ".part"
"""What the name of the file has behind that of the result."""


class PartialData(BaseModel):
    """The file.

    Attributes:
        format: Of what measurement and version it is; a subclass declares it as a `Literal` with a default.
        settings: All that what was measured depends on, by name.
    """

    model_config = ConfigDict(extra="forbid")
    format: str = ""
    settings: dict[str, str]


Data = TypeVar("Data", bound=PartialData)


class PartialResult(Generic[Data]):
    """What was measured, and the file it is kept in; nowhere without a file. A subclass says how parts are added.

    Attributes:
        data_type: The model of the file.
        by: What measures it, as errors name it.
        data: What was measured so far. Whatever changes it calls `save`.
    """

    data_type: type[Data]
    by: str

    def __init__(self, file: Path | None = None, data: Data | None = None) -> None:
        self._file, self.data = file, data or self.data_type(settings={})

    @classmethod
    def begin(cls, result: Path | None, resume: bool, settings: Mapping[str, str]) -> Self:
        """Begin a measurement, or go on with one.

        Args:
            result: The file of the result; None: nothing is kept.
            resume: Whether to go on with what is there.
            settings: All that what is measured depends on.

        Raises:
            ConfigError: What is there was measured with other settings, or is in the way, or there is nothing there.
            RecordBroken: The file is damaged.
            CannotWrite: The file could not be written.
        """
        file = beside(result, resume)
        if file is None or not file.exists():
            return cls(file, cls.data_type(settings=dict(settings)))
        kept = cls(file, cls._read(file))
        kept._compare({name: kept.data.settings.get(name) for name in settings}, settings)
        return kept

    def check(self, settings: Mapping[str, str]) -> None:
        """Note settings that are known later, such as those of a loaded engine. `ConfigError`: what is kept was
        measured with others."""
        known = self.data.settings
        self._compare({name: known.get(name, settings[name]) for name in settings}, settings)
        known.update(settings)

    def save(self) -> None:
        """Write all of it, whole or not at all. `CannotWrite`."""
        if self._file is not None:
            with write_errors(self._file):
                self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_whole(self._file, self.data.model_dump_json() + "\n")

    def done(self) -> None:
        """The result is written: take the file away."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    @classmethod
    def _read(cls, file: Path) -> Data:
        try:
            return cls.data_type.model_validate_json(file.read_bytes())
        except ValidationError:
            raise RecordBroken(file, f"was not written by {cls.by}", "delete it to measure everything again") from None

    def _compare(self, known: Mapping[str, str | None], settings: Mapping[str, str]) -> None:
        if other := [name for name in settings if known[name] != settings[name]]:
            told = "; ".join(f"{name} was {known[name]}, and is {settings[name]}" for name in other)
            raise ConfigError(
                f"{self._file} was measured with other settings: {told}. Use the same settings, or delete it"
            )


def beside(result: Path | None, resume: bool) -> Path | None:
    """The file in which what was measured for a result is kept, to begin it or to go on with it; None: nothing is kept,
    as beside a pipe.

    Raises:
        ConfigError: There is nothing to go on with, or something is in the way.
        CannotWrite: The file could not be written.
    """
    if result is None or (result.exists() and not result.is_file()):
        if resume:
            raise ConfigError(UNNAMED)
        return None
    file = result.with_name(result.name + END)
    check_file(file)
    if not resume and file.exists():
        raise ConfigError(f"{file} has an earlier measurement; continue it with --resume, or delete it")
    if resume and result.exists() and not file.exists():
        raise ConfigError(f"{result} is complete, so there is nothing to resume; leave out --resume to measure again")
    return file


def code_digest(folders: Sequence[str]) -> str:
    """A digest of all Python files under folders of the package, such as "lab/leaks": a measurement that was begun by
    other code is not gone on with.

    Raises:
        ValueError: The package has no such folder.
    """
    found = sha256()
    for folder in folders:
        files = sorted((PACKAGE / folder).rglob("*.py"))
        if not files:
            raise ValueError(f"the package has no folder {folder}")
        for file in files:
            found.update(file.relative_to(PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    return f"sha256 {found.hexdigest()[:16]}"

"""Keeps partial measurements in a file beside the result's, so that an interrupted measurement can be resumed.

All long measurements share this mechanism: begin or resume with the same settings, save the whole file after each
part, delete it once the result is written. Independent of what is measured.
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
"""The suffix of the file, appended to the name of the result file."""


class PartialData(BaseModel):
    """The content of the file.

    Attributes:
        format: The kind of measurement and its version; a subclass declares it as a `Literal` with a default.
        settings: Everything that the measured values depend on, by name.
    """

    model_config = ConfigDict(extra="forbid")
    format: str = ""
    settings: dict[str, str]


Data = TypeVar("Data", bound=PartialData)


class PartialResult(Generic[Data]):
    """A partial measurement and its file; without a file, nothing is saved. A subclass defines how parts are added.

    Attributes:
        data_type: The model of the file.
        by: The command that measures it, as named in errors.
        data: What was measured so far. Code that changes it calls `save`.
    """

    data_type: type[Data]
    by: str

    def __init__(self, file: Path | None = None, data: Data | None = None) -> None:
        self._file, self.data = file, data or self.data_type(settings={})

    @classmethod
    def begin(cls, result: Path | None, resume: bool, settings: Mapping[str, str]) -> Self:
        """Begin or resume a measurement.

        Args:
            result: The file of the result; None: nothing is saved.
            resume: Whether to continue from an existing partial file.
            settings: Everything that the measured values depend on.

        Raises:
            ConfigError: The partial file has other settings, is in the way, or is missing.
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
        """Add settings that become known later, such as those of a loaded engine. `ConfigError`: the saved values were
        measured with others."""
        known = self.data.settings
        self._compare({name: known.get(name, settings[name]) for name in settings}, settings)
        known.update(settings)

    def check_engine(self, fingerprint: Mapping[str, object]) -> None:
        """Add the fingerprint of the loaded engine to the settings; see `check`."""
        self.check({f"engine {name}": str(value) for name, value in fingerprint.items()})

    def save(self) -> None:
        """Write the file atomically. `CannotWrite`."""
        if self._file is not None:
            with write_errors(self._file):
                self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_whole(self._file, self.data.model_dump_json() + "\n")

    def done(self) -> None:
        """Delete the file, once the result is written."""
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
    """The file that keeps the partial measurement of a result; None if nothing is saved, as when the result goes to a
    pipe.

    Raises:
        ConfigError: There is nothing to resume, or a file is in the way.
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
    """A digest of all Python files in folders of the package, such as "lab/leaks". With it among the settings, a
    measurement is not resumed after the code has changed.

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

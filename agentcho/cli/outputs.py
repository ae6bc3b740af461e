"""The files that a command writes: checked before anything is played or measured, and written whole at the end."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer
from pydantic import BaseModel

from agentcho.audit.formats import WRITERS, WriteOptions
from agentcho.audit.formats.json import json_text
from agentcho.audit.report import AuditReport, FailOn
from agentcho.extras import require
from agentcho.records.files import write_output

if TYPE_CHECKING:
    from agentcho.audit.measurement import Plot

STDOUT, RUNS = Path("-"), Path("runs")
UNREAD = 141
"""Exit code of a command whose output is no longer read: that of a filter that ended by SIGPIPE."""


class Outputs(NamedTuple):
    """The files to write. JSON may go to standard output, as "-", where nothing else is printed then."""

    json: Path | None = None
    sarif: Path | None = None
    junit: Path | None = None
    html: Path | None = None
    csv: Path | None = None

    @property
    def piped(self) -> bool:
        """Whether standard output is used for JSON."""
        return self.json == STDOUT

    def check(self) -> None:
        """Raise a usage error for a file that could not be written. Leaves no file behind."""
        seen: dict[Path, str] = {}
        for name, path in self._asdict().items():
            if path is None or (name == "json" and path == STDOUT):
                continue
            option = f"--{name}"
            if path == STDOUT:
                raise typer.BadParameter("only --json can go to standard output; give a file", param_hint=option)
            twin = seen.setdefault(path.resolve(), option)
            if twin != option:
                raise typer.BadParameter(f"{path} is also the file of {twin}; give another file", param_hint=option)
            if (fault := fault_of(path)) is not None:
                raise typer.BadParameter(f"{path} cannot be written: {fault}", param_hint=option)

    def write(self, report: AuditReport, fail_on: FailOn) -> None:
        """Write every requested file of an audit."""
        self.write_each(self._makers(report, fail_on))

    def write_each(self, makers: Mapping[str, Callable[[], str]]) -> None:
        """Write every requested file. Each appears whole or not at all."""
        for name, text in makers.items():
            path: Path | None = getattr(self, name)
            if path == STDOUT:
                sys.stdout.write(text())
            elif path is not None:
                write_output(path, text())

    def json_of(self, found: BaseModel) -> str:
        """Return a value as JSON, in ASCII if a terminal may be reading."""
        return json_text(found, ascii=self.piped)

    def _makers(self, report: AuditReport, fail_on: FailOn) -> dict[str, Callable[[], str]]:
        options = WriteOptions(fail_on=fail_on, plot=None if self.html is None else _plot(report), ascii=self.piped)
        return {name: partial(write, report, options) for name, write in WRITERS.items()}


def _plot(report: AuditReport) -> Plot | None:
    """Return the function that draws the effects of a report, or None. Measuring already required its library."""
    if report.measurement is None:
        return None
    from agentcho.cli.extension import lab

    return lab().plot_effects


def unnamed(what: str, ending: str = "") -> Path:
    """Return a new path in runs/ for a command without a file name. Nothing is created here."""
    from agentcho.records.record import free_names

    return next(path for name in free_names(what, datetime.now(UTC)) if not (path := RUNS / f"{name}{ending}").exists())


def writable(path: Path | None) -> Path | None:
    """Check an option. Raises a usage error for a file that could not be written. Leaves no file behind."""
    if path is not None and (fault := fault_of(path)) is not None:
        raise typer.BadParameter(f"{path} cannot be written: {fault}")
    return path


def writable_log(path: Path | None) -> Path | None:
    """Check an option for a log. Raises a usage error unless its name ends as Inspect expects."""
    if path is not None and path.suffix != ".eval":
        raise typer.BadParameter(f"{path} must end with .eval, by which Inspect recognizes a log")
    return writable(path)


def drawable(path: Path | None) -> Path | None:
    """Check an option for a picture. Raises a usage error unless matplotlib can write files with its ending."""
    if path is not None:
        require("to draw", "lab")
        from matplotlib.backend_bases import FigureCanvasBase

        kinds = FigureCanvasBase.get_supported_filetypes()
        if path.suffix.removeprefix(".").lower() not in kinds:
            raise typer.BadParameter(
                f"{path} has no known picture format; use one of the endings {', '.join(f'.{k}' for k in kinds)}"
            )
    return writable(path)


def fault_of(path: Path) -> str | None:
    """Return why a file could not be written, or None. A file that does not exist is created and removed again."""
    if path.is_dir():
        return "it is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if path.exists() and not path.is_file():  # whoever reads a pipe would take it for ended if it was opened and closed
        return None if os.access(path, os.W_OK) else os.strerror(errno.EACCES)
    fresh = not path.exists()
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        return error.strerror or str(error)
    if fresh:
        path.resolve().unlink()
    return None

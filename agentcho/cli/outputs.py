"""The files that a command writes: checked before anything is played or measured, written whole when it is over.

Does not know: what is in a report, what was measured.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import typer

from agentcho.audit.report import AuditReport, FailOn

STDOUT = Path("-")


class Outputs(NamedTuple):
    """Where to write what. JSON may go to standard output, as "-"; nothing else is printed there then."""

    json: Path | None = None
    sarif: Path | None = None
    junit: Path | None = None
    html: Path | None = None

    @property
    def piped(self) -> bool:
        """Whether standard output is taken."""
        return self.json == STDOUT

    def check(self) -> None:
        """A usage error for a file that could not be written. Leaves no file behind."""
        seen: dict[Path, str] = {}
        for name, path in self._asdict().items():
            if path is None or (name == "json" and path == STDOUT):
                continue
            option = f"--{name}"
            if path == STDOUT:
                raise typer.BadParameter("only --json can go to standard output; give a file", param_hint=option)
            twin = seen.setdefault(path.resolve(), option)
            if twin != option:
                raise typer.BadParameter(f"{path} is the file of {twin} too; give another", param_hint=option)
            if (fault := _fault(path)) is not None:
                raise typer.BadParameter(f"{path} cannot be written: {fault}", param_hint=option)

    def write(self, report: AuditReport, fail_on: FailOn) -> None:
        """Write every file that was asked for; each appears whole or not at all."""
        for path, text in self._makers(report, fail_on):
            if path == STDOUT:
                sys.stdout.write(text())
            elif path is not None:
                _write(path, text())

    def _makers(self, report: AuditReport, fail_on: FailOn) -> tuple[tuple[Path | None, Callable[[], str]], ...]:
        from agentcho.audit.html import html
        from agentcho.audit.junit import junit
        from agentcho.audit.sarif import sarif

        return (
            (self.json, lambda: _ascii(report) if self.piped else report.model_dump_json(indent=2) + "\n"),
            (self.sarif, lambda: sarif(report, fail_on)),
            (self.junit, lambda: junit(report, fail_on)),
            (self.html, lambda: html(report)),
        )


def _ascii(report: AuditReport) -> str:
    """The same JSON where a terminal may be reading: nothing in it is more than its signs."""
    return json.dumps(report.model_dump(mode="json"), indent=2) + "\n"


def writable(path: Path | None) -> Path | None:
    """An option's callback: a usage error for a file that could not be written. Leaves no file behind."""
    if path is not None and (fault := _fault(path)) is not None:
        raise typer.BadParameter(f"{path} cannot be written: {fault}")
    return path


def drawable(path: Path | None) -> Path | None:
    """An option's callback for a picture: its ending has to say of a kind that can be drawn."""
    if path is not None:
        from matplotlib.backend_bases import FigureCanvasBase

        kinds = FigureCanvasBase.get_supported_filetypes()
        if path.suffix.removeprefix(".").lower() not in kinds:
            raise typer.BadParameter(f"{path} cannot be drawn: end it in one of {', '.join(f'.{k}' for k in kinds)}")
    return writable(path)


def silence(stream: IO[str]) -> None:
    """Nobody reads this any more: let what is still to come go nowhere, or the interpreter complains at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fault(path: Path) -> str | None:
    """Why a file could not be written. A file that is not there yet is made and taken away again."""
    if path.is_dir():
        return "it is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    fresh = not path.exists()
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        return error.strerror or str(error)
    if fresh:
        path.unlink()
    return None


def _write(path: Path, text: str) -> None:
    """Through a file beside it where that can be, so that a reader never sees half of it."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)

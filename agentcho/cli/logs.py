"""Sends the log of a command to a file or to standard error, at the requested level."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

import typer

from agentcho.cli.outputs import fault_of
from agentcho.display.safe import inline
from agentcho.games.play.game_faults import words

Level = Literal["debug", "info", "warning", "error"]
NOTES = "agentcho.notes"
FORM = "%(asctime)s %(levelname)s %(name)s %(message)s"


class _Safe(logging.Formatter):
    """Formats one line per record. Ids and paths cannot move the cursor or look like another line."""

    def format(self, record: logging.LogRecord) -> str:
        return inline(super().format(record))


class _Notes(logging.Handler):
    """Writes notes for the user of a command on standard error, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            print(f"agentcho: {inline(record.getMessage())}", file=sys.stderr, flush=True)


def notes(*, shown: bool) -> None:
    """Show notes from now on, or stop showing them because the log is on standard error too."""
    logger = logging.getLogger(NOTES)
    for handler in [each for each in logger.handlers if isinstance(each, _Notes)]:
        logger.removeHandler(handler)
    if shown:
        logger.addHandler(_Notes())


def log(level: Level | None, file: Path | None) -> None:
    """Send the log of agentcho to a file or to standard error. Without arguments there is no log; a file alone gets
    level "info"."""
    notes(shown=level is None or file is not None)
    logger = logging.getLogger("agentcho")
    for handler in [each for each in logger.handlers if isinstance(each.formatter, _Safe)]:
        logger.removeHandler(handler)
        handler.close()
    if level is None and file is None:
        return
    if file is not None and (fault := fault_of(file)) is not None:
        raise typer.BadParameter(f"{inline(str(file))} cannot be written: {fault}", param_hint="--log-file")
    fresh = logging.StreamHandler(sys.stderr) if file is None else logging.FileHandler(file, encoding="utf-8")
    fresh.setFormatter(_Safe(FORM))
    setattr(fresh, "handleError", partial(_end, fresh))  # noqa: B010
    logger.addHandler(fresh)
    logger.setLevel((level or "info").upper())


def _end(handler: logging.Handler, record: logging.LogRecord) -> None:
    """Stop logging when the log cannot be written any more, as on a full disk. The command continues."""
    logging.getLogger("agentcho").removeHandler(handler)
    print(f"logging stopped because the log cannot be written: {words(sys.exception() or OSError())}", file=sys.stderr)
    with suppress(OSError):  # closing writes the rest of the buffer, which can fail again
        handler.close()

"""The command line. Importing it does not import torch, and a model is loaded only after everything else was checked.

Each command calls the package and shows what it returns.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

__all__ = ["main"]


def main() -> None:
    """The `agentcho` command.

    An `AgentchoError` prints a line on stderr and exits with code 2, or 1 if something failed
    after it began. Ctrl-C exits with 130, SIGTERM with 143 and SIGHUP with 129.
    """
    from agentcho.extras import importing

    with importing():
        from agentcho.cli.app import app

    run(app())


def run(command: Callable[..., object]) -> None:
    """Run any typer application in the same way."""
    from agentcho.cli.signals import BusyNotice, TerminationAsInterrupt

    _open()
    out = sys.stdout
    _tolerate(out, sys.stderr)
    with TerminationAsInterrupt() as ends, BusyNotice():
        code = ends.code(_ended(command))
    sys.exit(_printed(out, code))


def _ended(command: Callable[..., object]) -> Any:
    """Run the command. Returns its exit code."""
    from agentcho.cli.error_text import error_text, one_line
    from agentcho.errors import AgentchoError

    try:
        command(standalone_mode=True)
    except AgentchoError as error:
        _tell(error_text(error))
        return error.code
    except OSError as error:  # such as a full disk, or a file without permission to read
        where = f"{error.filename}: " if error.filename else ""
        _tell(one_line(f"error: {where}{error.strerror or error}"))
        return 1
    except SystemExit as end:
        return end.code
    return 0


def _tell(words: str) -> None:
    """Print an error. A failure to print is ignored, because the terminal may be gone."""
    with suppress(OSError):
        print(words, file=sys.stderr)


def _open() -> None:
    """Open the null device in place of streams that the calling process has closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def _printed(out: TextIO, code: Any) -> Any:
    """Flush standard output, and return the exit code after that. If the reader has closed the pipe, as `head` does,
    nothing is printed; typer has then replaced standard output by another stream."""
    from agentcho.cli.outputs import UNREAD
    from agentcho.display.playing import silence

    try:
        out.flush()
    except BrokenPipeError:
        silence(out)
        return code or UNREAD
    except OSError as error:
        silence(out)
        if not code:
            print(f"error: standard output: {error.strerror or error}", file=sys.stderr)
        return code or 1
    return code if sys.stdout is out else UNREAD


def _tolerate(*streams: object) -> None:
    """Escape characters that the terminal's encoding lacks, so that printing them does not fail."""
    for stream in streams:
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")

"""The command line. Importing it imports no torch; a model is loaded once everything else has been checked.

Does not know: how anything is done; each command calls the package and shows what it returns.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """The `agentcho` command.

    Errors raised on purpose: a line on stderr and exit code 2, or 1 where something failed
    that was begun. Ctrl-C: 130; SIGTERM and SIGHUP end it in the same way, as 143 and 129.
    """
    from agentcho.cli.app import app
    from agentcho.cli.signals import Ends
    from agentcho.errors import AgentchoError

    _tolerate(sys.stdout, sys.stderr)
    with Ends() as ends:
        try:
            app()(standalone_mode=True)
        except AgentchoError as error:
            print(_told(error), file=sys.stderr)
            sys.exit(error.code)
        except OSError as error:  # a full disk, a file that may not be read
            where = f"{error.filename}: " if error.filename else ""
            print(f"error: {where}{error.strerror or error}", file=sys.stderr)
            sys.exit(1)
        except SystemExit as end:
            sys.exit(ends.code(end.code))


def _told(error: Exception) -> str:
    """An error in a line; games that failed in one each."""
    from agentcho.display.safe import visible
    from agentcho.errors import GamesFailed

    lines = error.lines if isinstance(error, GamesFailed) else (str(error),)
    return "\n  ".join(visible(" ".join(line.split())) for line in (f"error: {lines[0]}", *lines[1:]))


def _tolerate(*streams: object) -> None:
    """Never fail to print what the terminal's encoding lacks."""
    for stream in streams:
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")

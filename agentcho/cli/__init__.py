"""The command line. Importing it imports no torch; a model is loaded once everything else has been checked.

Does not know: how anything is done; each command calls the package and shows what it returns.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """The `agentcho` command. Errors raised on purpose: one line on stderr and exit code 2. Ctrl-C: 130."""
    from agentcho.cli.app import app
    from agentcho.errors import AgentchoError

    _tolerate(sys.stdout, sys.stderr)
    try:
        app()(standalone_mode=True)
    except AgentchoError as error:
        print(f"error: {_line(error)}", file=sys.stderr)
        sys.exit(2)


def _line(error: Exception) -> str:
    from agentcho.display.safe import visible

    return visible(" ".join(str(error).split()))


def _tolerate(*streams: object) -> None:
    """Never fail to print what the terminal's encoding lacks."""
    for stream in streams:
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")

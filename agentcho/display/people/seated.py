"""Opens the terminal for people who play agents, as a full screen or line by line."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from agentcho.config import RunConfig
from agentcho.display import Kind
from agentcho.errors import ConfigError
from agentcho.extras import require
from agentcho.games.play.people import People
from agentcho.message import cast_name

LINES = "with --display plain, one person can play line by line"


def seated(config: RunConfig, display: Kind | None, clear: Callable[[], None] = lambda: None) -> People:
    """Return the people who play in a run, all at this terminal. `clear` is called before anything is drawn. Raises
    `ConfigError` if they cannot be asked here, or not without others seeing it."""
    names = tuple(map(cast_name, config.people))
    if not names:
        return {}
    require("for people to play agents", "people")
    if display == "none":
        raise ConfigError(
            f"--display none shows nothing, but the person who plays {names[0]} needs a display; leave it out"
        )
    if display == "plain":
        return _lines(names, len(config.numbers))
    if not (_terminal(sys.stdin) and _terminal(sys.stdout)) or os.environ.get("TERM", "dumb") == "dumb":
        raise ConfigError(f"--as needs a terminal to show {names[0]} a screen, and this is not one; {LINES}")
    if any(_terminal(getattr(each, "stream", None)) for each in logging.getLogger("agentcho").handlers):
        raise ConfigError(
            "--as uses the whole terminal, but the log is written there too; send the log to a file with --log-file"
        )
    from agentcho.display.people.terminal import Terminal

    return Terminal(names, len(config.numbers), clear).people


def _lines(names: tuple[str, ...], games: int) -> People:
    from agentcho.display.people.lines import LineByLine

    if len(names) > 1:
        raise ConfigError(
            f"--display plain leaves everything on the screen, so {names[1]} would see what {names[0]} "
            "saw; leave it out and play at a terminal"
        )
    if sys.stdin is None or sys.stdin.closed:
        raise ConfigError(f"{names[0]} is played by a person, but standard input is closed; open it, or leave --as out")
    return LineByLine(names, games, sys.stdin.fileno(), sys.stdout).people


def _terminal(stream: object) -> bool:
    return bool(getattr(stream, "isatty", bool)())

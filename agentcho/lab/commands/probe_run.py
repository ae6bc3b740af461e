"""Runs `agentcho probe`: reads the keys, queries the server within bounds, judges, writes and shows.

Exit codes: 0 no sharing was seen, 1 callers share, 2 usage, 3 inconclusive. Keys come from the environment or from
files, and are sent only to the server.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from agentcho.cli.outputs import STDOUT, Outputs
from agentcho.cli.signals import INTERRUPTED
from agentcho.display import Kind
from agentcho.display.progress import progress
from agentcho.errors import ConfigError
from agentcho.extras import require

if TYPE_CHECKING:
    from agentcho.lab.probe.findings import Question

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ProbeOptions(NamedTuple):
    """The arguments of the command. `key`, `other`: names of environment variables, or files."""

    url: str
    model: str | None
    key: str | None
    other: str | None
    salts: bool
    trials: int
    requests: int
    seconds: float
    allowed: bool
    outputs: Outputs
    display: Kind | None


def probe(asked: ProbeOptions) -> int:
    """Query, judge, write and show. Returns the exit code."""
    require("to probe a server", "endpoints", "lab")
    from agentcho.lab.display.probe import show
    from agentcho.lab.probe import Plan, judged, measure
    from agentcho.lab.probe.endpoint import Bounds, Endpoint, checked_url
    from agentcho.lab.probe.sarif import sarif

    asked.outputs.check()
    url, keys = checked_url(asked.url, asked.allowed), _keys(asked)
    plan = Plan(_questions(asked), asked.trials)
    with progress("probe", sys.stderr) as told:
        server = Endpoint(url, keys, Bounds(asked.requests, asked.seconds), asked.model)
        try:
            report = judged(server, measure(server, plan, tell=told.tell))
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            server.close()
    asked.outputs.write_each({"json": lambda: asked.outputs.json_of(report), "sarif": lambda: sarif(report)})
    show(report, "none" if asked.outputs.json == STDOUT else asked.display, sys.stdout)
    return report.exit_code


def _questions(asked: ProbeOptions) -> tuple[Question, ...]:
    keys: tuple[Question, ...] = () if asked.other is None else ("keys",)
    salts: tuple[Question, ...] = ("salts",) if asked.salts else ()
    if not keys and not salts:
        raise typer.BadParameter("without --other-key there is nothing to test; add it, or leave out --no-salts")
    return (*keys, *salts, "beyond")


def _keys(asked: ProbeOptions) -> list[str | None]:
    if asked.other is None:
        return [None if asked.key is None else secret(asked.key, "--key")]
    if asked.key is None:
        raise typer.BadParameter("two keys are compared; give --key too", param_hint="--other-key")
    keys = [secret(asked.key, "--key"), secret(asked.other, "--other-key")]
    if keys[0] == keys[1]:
        raise typer.BadParameter("the key is the same as that of --key; give another one", param_hint="--other-key")
    return [*keys]


def secret(named: str, option: str) -> str:
    """The key in an environment variable or a file. Errors never contain `named`, which may be a key itself."""
    if VARIABLE.fullmatch(named) and named in os.environ:
        found = os.environ[named]
    elif _is_file(named):
        try:
            found = Path(named).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{option}: the file cannot be read ({type(error).__name__})") from None
    else:
        told = "give the name of an environment variable that is set, or of a file with the key, not the key itself"
        raise typer.BadParameter(told, param_hint=option)
    key = found.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise typer.BadParameter("no key found there; it must hold a single word of ASCII", param_hint=option)
    return key


def _is_file(named: str) -> bool:
    try:
        return Path(named).is_file()
    except (OSError, ValueError):
        return False

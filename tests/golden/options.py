"""Every option of every command, with its help text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from agentcho.cli.app import app
from tests.commands import commands

from .plays import Lines


def options() -> Lines:
    """One line for each option: the command, the spelling, and the help text with its default."""
    return [json.dumps(line) for line in sorted(_options("agentcho", get_command(app())))]


def _options(path: str, command: Any) -> Iterator[tuple[str, str, str]]:
    for name, inner in commands(command).items():
        yield from _options(f"{path} {name}", inner)
    context = command.make_context(path, [], resilient_parsing=True)
    for parameter in command.params:
        spelled, told = parameter.get_help_record(context) or ("", "")
        yield path, spelled.split(" <")[0], told

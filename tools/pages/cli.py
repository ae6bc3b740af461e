"""The reference of the command line, from the commands themselves: `python -m tools.pages.cli docs/cli.md`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from agentcho.cli.app import app

INTRODUCTION = """\
# Command line

Every command with its arguments and options, as `--help-all` has them. This page is made by `make cli`.
Every command exits with 0 when it is done, 2 if it was used wrongly, 1 if something failed after it began, and 130
after Ctrl-C (`serve`: after the second). Commands with further exit codes list them.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, *_commands(typer.main.get_command(app()), "agentcho")]
    return "\n".join(parts)


def _commands(group: Any, name: str) -> Iterator[str]:
    """The sections of a group's commands, including nested groups."""
    context = group.make_context(name, [], resilient_parsing=True)
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        if hasattr(command, "list_commands"):
            yield from _commands(command, f"{name} {each}")
        else:
            yield from _command(command, f"{name} {each}")


def _command(command: Any, name: str) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    yield f"## {name}\n\n```text\n{usage}\n```\n\n{_prose(command.help or '')}\n"
    for kind in ("argument", "option"):
        rows = [_row(each, context) for each in command.params if each.param_type_name == kind and not each.hidden]
        if rows:
            yield f"| {kind} | |\n| --- | --- |\n" + "\n".join(rows) + "\n"


def _row(parameter: Any, context: Any) -> str:
    """The row of a parameter: its syntax and its help."""
    written, told = parameter.get_help_record(context)
    return f"| `{_line(written)}` | {_line(told)} |"


def _line(text: str) -> str:
    """A text as a table cell."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def _prose(text: str) -> str:
    """Help text as paragraphs."""
    return "\n\n".join(re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n", text.strip()))


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="Write the reference of the command line.")
    parser.add_argument("page", type=Path)
    parser.parse_args().page.write_text(page())


if __name__ == "__main__":
    main()

"""What the lab adds to the command line, and the only place that imports the lab, on demand.

Games, audits and the server work without the lab, so it may be imported late, and is a layer above the command line.
Independent of which commands the lab has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from agentcho.audit.measurement import Measurement, Plot
    from agentcho.audit.report import Control
    from agentcho.protocol.progress import ProgressCallback
    from agentcho.records.trace import Workflow
    from agentcho.records.transcript import TranscriptEntry
    from agentcho.viewer.figures import PageFigures
    from agentcho.viewer.page_content import PageContent, PageSelection

LAB = "agentcho.lab.commands"
"""The module whose function `extension` returns an `Extension`."""
PANELS = {
    "Play": ("run", "ls", "cp", "new", "merge"),
    "Look at runs": ("show", "view", "audit", "prove"),
    "Compare and train": ("compare", "sweep", "paper", "trace", "tune"),
    "Serve": ("serve", "key", "probe"),
    "Models and machines": ("doctor", "bench", "plan"),
}
"""All commands by panel of the help, in the order in which it lists them."""
ORDER = tuple(name for names in PANELS.values() for name in names)
Played = Sequence["Sequence[TranscriptEntry] | Workflow"]
"""Finished games, or workflows of a trace."""


class Extension(NamedTuple):
    """What the lab adds.

    Attributes:
        commands: Commands and groups of commands by name.
        measure: Implements `audit --measure`: takes games, an engine, a seed and a progress callback, and returns the
            effects of leaks and their controls.
        plot_effects: Draws these effects for the page of an audit.
        figures: Returns the figures in a folder of games that were compared or swept, or None for another folder.
        result: Returns a file of such figures as a page, with a selection, or None for another file.
    """

    commands: Mapping[str, TyperCommand | TyperGroup]
    measure: Callable[[Played, Any, int, ProgressCallback], tuple[Measurement, tuple[Control, ...]]]
    plot_effects: Plot
    figures: Callable[[Path], PageFigures | None]
    result: Callable[[Path, PageSelection], PageContent | None]


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Remove the prefix that pydantic, with which typer checks values, puts before the message of an error."""
    try:
        yield
    except BadParameter as error:
        error.message = error.message.removeprefix("Value error, ")
        raise


@cache
def lab() -> Extension:
    """Return the extension of the lab. Importing it takes a while; its libraries are imported when it measures."""
    found: Extension = import_module(LAB).extension()
    return found


class Commands(TyperGroup):
    """The group of all commands: its own, and those of the lab, which is imported for help and for its own commands."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """See `click.Command.make_context`."""
        with _plain_errors():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """See `click.Command.invoke`."""
        with _plain_errors():
            return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """See `click.Group.get_command`."""
        return super().get_command(ctx, cmd_name) or self._all().get(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """See `click.Group.list_commands`."""
        return [*self._all()]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """See `click.Group.format_commands`: one section per panel."""
        found = self._all()
        room = formatter.width - 6 - max(map(len, found))
        for title, names in PANELS.items():
            with formatter.section(title):
                formatter.write_dl([(name, found[name].get_short_help_str(room)) for name in names])

    def _all(self) -> Mapping[str, Any]:
        """Return its commands and those of the lab.

        They are added to the group, so that a misspelled command is compared with all of them.
        """
        found = {**self.commands, **lab().commands}
        self.commands = {name: found[name] for name in sorted(found, key=ORDER.index)}
        return self.commands

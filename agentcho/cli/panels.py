"""The panels in which help lists the options of a large command, and the command class that prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from agentcho.config import RunConfig

FEW = 20
"""The maximum number of options that a command lists in one panel, without hiding any."""
OWN, HELP = "Options", "Help"
"""The panels of options that are in no other panel, and of options that print help."""
COMMON = (OWN, "Games", "Model", "Leakage", "Sampling", "Speed", "Training", "Cluster", "Output", HELP)
"""Panels that `--help` prints, in its order."""
RARE = {
    "More on games": "Games",
    "More on the model": "Model",
    "More on leakage": "Leakage",
    "More on speed": "Speed",
    "More on training": "Training",
    "More on the cluster": "Cluster",
    "More on output": "Output",
}
"""Panels that only `--help-all` prints, each with the panel that it follows."""
OF_COMMANDS = {
    "Games": ("set", "as", "resume"),
    "More on games": ("agents", "changed", "redo", "skip", "fail_fast", "retries", "final_of"),
    "Model": ("models",),
    "Speed": ("at_once",),
    "More on training": ("peft",),
    "Output": ("out", "json", "sarif", "junit", "html", "csv", "plot", "export", "display"),
    "More on output": ("telemetry",),
}
"""Panels of options that commands declare themselves, by parameter name."""
COLUMN = 30
"""The maximum width of an option next to which its help begins (`col_max` of `write_dl`)."""


def panel(name: str, field: FieldInfo | None = None) -> str:
    """Return the panel of an option: that of its field, or of the run's field of that name, or of the command."""
    for each in (field, RunConfig.model_fields.get(name)):
        extra = None if each is None else each.json_schema_extra
        if isinstance(extra, dict) and "panel" in extra:
            return str(extra["panel"])
    return next((title for title, names in OF_COMMANDS.items() if name.rstrip("_") in names), OWN)


def show_all(ctx: typer.Context, wanted: bool) -> None:
    """Print the help with all panels, and exit."""
    if wanted and not ctx.resilient_parsing:
        ctx.meta[show_all.__qualname__] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


class PanelCommand(TyperCommand):
    """A command whose help lists options by panel if there are many, and whose line in a list is a whole sentence."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """See `click.Command.get_short_help_str`. Nothing is cut off: a list of commands wraps its lines."""
        first = " ".join((self.help or "").partition("\n\n")[0].split())
        return first.partition(". ")[0].rstrip(".") + "."

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """See `click.Command.format_options`."""
        if sum(each.param_type_name == "option" for each in self.params) <= FEW:
            super().format_options(ctx, formatter)
            return
        everything = ctx.meta.get(show_all.__qualname__, False)
        panels = dict(self._panels(ctx))
        shown = {title: rows for title, rows in panels.items() if everything or title not in RARE}
        width = min(COLUMN, max(len(option) for rows in shown.values() for option, _ in rows))
        for title, ((option, told), *rows) in shown.items():
            with formatter.section(title):
                formatter.write_dl([(option.ljust(width), told), *rows], col_max=COLUMN)
        if hidden := sum(len(rows) for title, rows in panels.items() if title not in shown):
            formatter.write_paragraph()
            formatter.write_text(f"{hidden} more options: {ctx.command_path} --help-all")

    def _panels(self, ctx: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield the title and lines of each panel that is not empty."""
        found = dict[str, list[tuple[str, str]]]()
        for each in self.get_params(ctx):
            is_option = each.param_type_name == "option"
            title = getattr(each, "rich_help_panel", None) or HELP if is_option else "Arguments"
            if (row := each.get_help_record(ctx)) is not None:
                found.setdefault(title, []).append(row)
        for title in ("Arguments", *COMMON):
            following = (more for more, first in RARE.items() if first == title)
            yield from ((each, found[each]) for each in (title, *following) if each in found)

"""Adds the lab to the command line: its commands, what `audit --measure` measures, and comparisons and sweeps as pages
of `view`.

`extension` is the only entry point. Options are declared here and in modules that import nothing heavy; a command
imports what it measures with when it is called. Must not contain any measuring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from agentcho.cli.extension import Extension, Played
from agentcho.cli.options import spread_options
from agentcho.cli.panels import PanelCommand
from agentcho.lab.commands.bench import bench
from agentcho.lab.commands.compare import compare
from agentcho.lab.commands.paper import paper
from agentcho.lab.commands.plan import plan
from agentcho.lab.commands.probe import probe
from agentcho.lab.commands.prove import prove
from agentcho.lab.commands.sweep import sweep
from agentcho.lab.commands.tune import trace, tune

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agentcho.audit.measurement import Effect, Measurement
    from agentcho.audit.report import Control
    from agentcho.protocol.progress import ProgressCallback
    from agentcho.viewer.figures import PageFigures
    from agentcho.viewer.page_content import PageContent, PageSelection


def extension() -> Extension:
    """Everything that the lab adds to the command line."""
    return Extension(
        commands=_commands(),
        measure=_measure,
        plot_effects=_plot_effects,
        figures=_figures,
        result=_result,
    )


def _commands() -> dict[str, TyperCommand | TyperGroup]:
    group = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    group.callback()(lambda: None)
    for command in (compare, sweep, paper, trace, tune, prove, probe, plan):
        group.command(cls=PanelCommand)(spread_options(command))
    group.add_typer(bench(), name="bench")
    found: Any = typer.main.get_group(group).commands
    return dict(found)


def _measure(games: Played, engine: Any, seed: int, tell: ProgressCallback) -> tuple[Measurement, tuple[Control, ...]]:
    from agentcho.lab.measure.controls import controls
    from agentcho.lab.measure.whole import asked_pairs, measure

    found = measure(games, engine, seed=seed, tell=tell)
    return found, controls(found, asked_pairs(games, engine))


def _plot_effects(effects: Sequence[Effect], measurement: Measurement) -> str:
    from agentcho.lab.plots import plot_effects

    return plot_effects(effects, measurement)


def _figures(folder: Path) -> PageFigures | None:
    from agentcho.lab.display.viewer import of_folder

    return of_folder(folder)


def _result(file: Path, chosen: PageSelection) -> PageContent | None:
    from agentcho.lab.display.viewer import of_result

    return of_result(file, chosen)

"""Tables of scenarios, agents and runs, and of the doctor's report on a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from agentcho.display.safe import inline, visible
from agentcho.display.text_table import TextTable, plain
from agentcho.errors import RecordError, ScenarioNotFound
from agentcho.games.runs import discovery
from agentcho.games.runs.discovery import Found, Section, Unreadable
from agentcho.integrations.textarena import listing as environments
from agentcho.integrations.textarena.names import PREFIX, check_refused, is_arena
from agentcho.integrations.textarena.scenario import Arena
from agentcho.records.record import SavedRun, folders

if TYPE_CHECKING:
    from agentcho.runner.doctor import DoctorReport

SECTIONS: tuple[Section, ...] = ("scenarios", "agents")


def library_listing() -> str:
    """Return scenarios and agents with their first lines, from their sources alone."""
    return "\n\n".join(plain(_section(which)) for which in SECTIONS)


def _section(which: Section) -> TextTable:
    rows = tuple(_row(item) for item in discovery.listing(which))
    return TextTable(which, ("name", "from", "what"), rows, words=3)


def _row(item: Found | Unreadable) -> tuple[str, str, str]:
    if isinstance(item, Unreadable):
        return item.path.stem, "(broken)", str(item.error)
    return item.name, str(item.path) if item.origin == "here" else item.origin, item.summary


def find_any(name: str) -> Found:
    """Return the scenario, or else the agent, of that name."""
    path = discovery.path_of(name)
    if path is not None and path.is_file():
        return discovery.find(discovery.section_of(name), name)
    known = []
    for which in SECTIONS:
        try:
            return discovery.find(which, name)
        except ScenarioNotFound:
            known += [item.name for item in discovery.listing(which) if isinstance(item, Found)]
    raise ScenarioNotFound(name, known, discovery.same_name(name))


def one_listing(name: str) -> str:
    """Return the docstring and options of one scenario or agent, from its source alone.

    `textarena` lists the environments that can be played as `textarena:NAME`.
    """
    if name == PREFIX.removesuffix(":"):
        return plain(_environments())
    if is_arena(name):
        return _environment(name)
    found = find_any(name)
    docstring, settings = discovery.details(found)
    head = f"{inline(found.name)}: {visible(docstring)}\n\n  {inline(str(found.path))}"
    if not settings:
        return head
    rows = tuple((setting.name, setting.default, setting.description) for setting in settings)
    return f"{head}\n\n" + plain(TextTable("options, for --set KEY=VALUE", ("key", "default", "what"), rows, words=3))


def _environments() -> TextTable:
    """Return TextArena's environments, one line per family: a game in several sizes, or games that cannot be played."""
    rows = tuple(
        (PREFIX + each.name, each.refused or ", ".join(id.removeprefix(f"{each.name}-") for id in each.variants))
        for each in environments.families()
    )
    return TextTable("environments of TextArena", ("name", "variants, or why it cannot be played"), rows, words=2)


def _environment(name: str) -> str:
    """Return one environment with its options, the common ones first."""
    check_refused(name)
    own = [(key, str(field.default), field.description or "") for key, field in Arena.Options.model_fields.items()]
    its = [(key, default, "option of the environment") for key, default in environments.settings(name)]
    head = f"{inline(name)}: {visible(Arena.__doc__ or '').rpartition(' Subclass')[0]}"
    return f"{head}\n\n" + plain(
        TextTable("options, for --set KEY=VALUE", ("key", "default", "what"), (*own, *its), words=3)
    )


def run_listing(folder: Path) -> str:
    """Return the recorded runs, oldest first."""
    if not folder.is_dir() and folder != Path("runs"):
        raise typer.BadParameter(f"there is no folder {inline(str(folder))}", param_hint="--runs-dir")
    rows = tuple(_run_row(path) for path in folders(folder))
    if not rows:
        return f"no runs in {inline(str(folder))}; `agentcho run SCENARIO` records one"
    return plain(TextTable(f"runs in {folder}", ("id", "status", "model", "games"), rows, words=3))


def _run_row(path: Path) -> tuple[str, ...]:
    """Return a run as one line, or that it is broken if it cannot be read."""
    try:
        run = SavedRun(path)
        return run.info.id, run.status, run.info.config.model, f"{len(run.finished())}/{len(run.info.config.numbers)}"
    except RecordError:
        return path.name, "(broken)", "", ""


def check_game(run: SavedRun, game: int | None) -> None:
    """Raise a usage error if the run has no such game."""
    if game is not None and game not in run.games():
        raise typer.BadParameter(f"run {inline(run.info.id)} has no game {game}", param_hint="--game")


def doctor_table(report: DoctorReport, *, verbose: bool = False, served: str = "") -> str:
    """Return what the gate proved, in one line, or with `verbose` one line per layer.

    `served` names the other engine that computes the model, if there is one.
    """
    rows = tuple(
        (row.check if row.layer is None else f"{row.check} {row.layer}", row.result, row.detail)
        for row in (report.rows if verbose else report.short)
    )
    found = "can share encodings" if report.layers else "what prompts look like; without weights nothing is proved"
    found = f"can be computed by {served}" if served else found
    table = plain(TextTable(f"{report.model}: {found}", ("check", "result", "detail"), rows, words=3))
    return "\n".join([table, *(f"  note: {inline(note)}" for note in report.notes)])

"""Declares the commands and their options, and calls the part of the package that does the work."""

from __future__ import annotations

import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from agentcho.audit.report import FailOn
from agentcho.cli import completion
from agentcho.cli.extension import Commands
from agentcho.cli.logs import Level, log
from agentcho.cli.options import GivenOptions, fields, spread_options
from agentcho.cli.outputs import writable, writable_log
from agentcho.cli.panels import PanelCommand
from agentcho.cli.serve import key, serve
from agentcho.cli.shared_options import (
    AGENTS,
    AUDITED,
    BESIDE,
    CALL,
    CHANGED,
    EARLIER,
    EYES,
    FILE,
    INSPECT,
    LIVE,
    MISSING,
    MODELS,
    PARTS,
    REDO,
    RESUME,
    SCENARIO,
    SKIP,
    SUPPRESS,
    TARGET,
    TELEMETRY,
    VIEW,
    VIEWED,
    As,
    AtOnce,
    Display,
    FailFast,
    Placing,
    Playing,
    Retries,
    Runs,
    Set,
    Where,
)
from agentcho.config import LOCAL
from agentcho.games.runs.resume import Changed
from agentcho.games.runs.run_shards import Missing
from agentcho.integrations.opentelemetry.traced import Spans


def app() -> typer.Typer:
    """The command line as an object."""
    cli = typer.Typer(
        name="agentcho",
        cls=Commands,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Societies of language-model agents on one shared cache of messages.",
        epilog="Start with: agentcho run debate; agentcho audit last; agentcho view last.",
    )
    cli.callback()(_agentcho)
    for command in (run, merge, audit, serve, key, ls, cp, show, view, doctor):
        cli.command(cls=PanelCommand)(spread_options(command))
    made = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Create something of your own.")
    made.callback()(_new)
    made.command("scenario")(new_scenario)
    cli.add_typer(made, name="new")
    return cli


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("agentcho"))
        raise typer.Exit


def _agentcho(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    log_level: Annotated[Level | None, typer.Option(help="Log to standard error, or to --log-file.")] = None,
    log_file: Annotated[
        Path | None, typer.Option(metavar=FILE, help="Log to this file. Logs never contain the text of messages.")
    ] = None,
) -> None:
    log(log_level, log_file)


def run(
    scenario: Annotated[
        str | None, typer.Argument(metavar="SCENARIO", help=SCENARIO, autocompletion=completion.scenarios)
    ] = None,
    *,
    how: Playing,
    set_: Set = None,
    as_: As = None,
    agents: Annotated[str | None, typer.Option(metavar="NAMES", help=AGENTS, show_default=False)] = None,
    at_once: AtOnce = None,
    fail_fast: FailFast = False,
    retries: Retries = None,
    models: Annotated[Path | None, typer.Option(metavar=FILE, help=MODELS, show_default=False)] = None,
    where: Where,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help=RESUME, show_default=False)] = None,
    changed: Annotated[Changed, typer.Option(help=CHANGED)] = "refuse",
    redo: Annotated[list[str] | None, typer.Option(metavar=CALL, help=REDO, show_default=False)] = None,
    skip: Annotated[list[str] | None, typer.Option(metavar=CALL, help=SKIP, show_default=False)] = None,
    telemetry: Annotated[Spans | None, typer.Option(help=TELEMETRY, show_default=False)] = None,
    display: Display = None,
    out: Runs = Path("runs"),
) -> None:
    """Play a scenario and record it.

    Exit codes: 0 done, 1 errors ended games, 2 wrong usage, 130 after Ctrl-C.
    """
    from agentcho.cli.cluster import cluster
    from agentcho.cli.play import RunArguments, play_scenario
    from agentcho.games.runs.model_file import read_models
    from agentcho.games.runs.request import OnFailure

    typed = how.typed if models is None else read_models(models, how.typed)
    typed |= {"people": tuple(dict.fromkeys(as_))} if as_ else {}
    asked = RunArguments(
        scenario=scenario,
        how=typed,
        given=fields("--set", [*(set_ or []), *_set("agents", agents)]),
        display=display,
        out=out,
        at_once=at_once,
        on_failure=OnFailure(fail_fast, retries or 0),
        resume=resume,
        changed=changed,
        redo=tuple(redo or ()),
        skip=tuple(skip or ()),
        on=cluster(where, retries),
        telemetry=telemetry,
    )
    raise typer.Exit(play_scenario(asked))


def _set(option: str, value: str | None) -> list[str]:
    """Return an option of the scenario that has its own option on the command line, as `--set` takes it."""
    return [] if value is None else [f"{option}={value}"]


def merge(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help=PARTS)],
    missing: Annotated[Missing, typer.Option(help=MISSING)] = "refuse",
    out: Runs = Path("runs"),
) -> None:
    """Merge the parts of a run (`run --part`) into the record that one process would have written."""
    from agentcho.cli.merge import merge_parts

    typer.echo(merge_parts(runs, out, missing))


def audit(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=TARGET, autocompletion=completion.played)],
    measure: Annotated[
        bool, typer.Option("--measure", help="Also measure how much each leak changes what readers say.")
    ] = False,
    fail_on: Annotated[
        FailOn, typer.Option(help="Exit with code 1 if there is a finding of this level or above.")
    ] = "error",
    json: Annotated[
        Path | None, typer.Option(metavar=FILE, help="Write the report as JSON; '-' means standard output.")
    ] = None,
    sarif: Annotated[Path | None, typer.Option(metavar=FILE, help="Write it as SARIF 2.1.0.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar=FILE, help="Write the report as JUnit XML.")] = None,
    html: Annotated[Path | None, typer.Option(metavar=FILE, help="Write the report as one HTML page.")] = None,
    csv: Annotated[Path | None, typer.Option(metavar=FILE, help="Write the findings as CSV.")] = None,
    baseline: Annotated[Path | None, typer.Option(metavar=FILE, help=EARLIER)] = None,
    suppress: Annotated[Path | None, typer.Option(metavar=FILE, help=SUPPRESS)] = None,
    reveal: Annotated[bool, typer.Option("--reveal", help="Include the text of messages in the report.")] = False,
    *,
    how: Annotated[GivenOptions, AUDITED],
    set_: Set = None,
    display: Display = None,
    out: Runs = Path("runs"),
) -> None:
    """Report who can learn what about whom through shared encodings, and how serious it is.

    Exit codes: 0 clean, 1 findings at or above --fail-on, 2 wrong usage, 3 inconclusive, 4 internal error.
    """
    from agentcho.cli.audit import AuditArgs
    from agentcho.cli.audit import audit as audit_target
    from agentcho.cli.outputs import Outputs

    given, outputs = fields("--set", set_ or []), Outputs(json, sarif, junit, html, csv)
    asked = AuditArgs(target, how.typed, given, out, outputs, measure, reveal, baseline, suppress, fail_on, display)
    raise typer.Exit(audit_target(asked))


def ls(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Show what this scenario or agent does, and its options.",
            autocompletion=completion.scenarios_and_agents,
        ),
    ] = None,
    runs: Annotated[bool, typer.Option("--runs", help="List recorded runs instead of scenarios and agents.")] = False,
    out: Runs = Path("runs"),
) -> None:
    """List scenarios and agents without executing them."""
    from agentcho.cli.listing import library_listing, one_listing, run_listing

    if runs and name is not None:
        raise typer.BadParameter(f"--runs lists recorded runs; leave {name} out", param_hint="--runs")
    if not runs and out != Path("runs"):
        raise typer.BadParameter(
            "has no effect without --runs; give --runs too, or leave it out", param_hint="--runs-dir"
        )
    typer.echo(run_listing(out) if runs else library_listing() if name is None else one_listing(name))


def cp(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of a scenario or agent from `agentcho ls`.",
            autocompletion=completion.scenarios_and_agents,
        ),
    ],
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="Default: ./scenarios, ./agents or ./mine.")
    ] = None,
) -> None:
    """Copy a scenario or agent here, to edit it. The copy is found before the original. In a clone of the repository,
    it is written to ./mine and run by its path."""
    from agentcho.cli.listing import find_any
    from agentcho.display.safe import inline
    from agentcho.games.runs.discovery import copy, place

    found = find_any(name)
    typer.echo(inline(str(copy(found, folder or place(found)))))


def _new() -> None:
    """Create something of your own."""


def new_scenario(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Lower-case words joined by hyphens, such as night-watch.")
    ],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="FOLDER", help="Folder to create it in. Default: the current one; ./mine in a clone."),
    ] = None,
) -> None:
    """Write a scenario with its agent, test and tasks, which work at once and are meant to be changed."""
    from agentcho.cli import new
    from agentcho.display.safe import inline
    from agentcho.games.runs.discovery import MINE, in_clone

    folder = folder or (MINE if in_clone("scenarios") else Path())
    for path in new.new_scenario(name, folder):
        typer.echo(inline(str(path)))
    entered = "" if folder.absolute() == Path.cwd() else f"cd {shlex.quote(inline(str(folder)))} · "
    typer.echo(f"{entered}agentcho run {name} --model fake · pytest tests/test_{name.replace('-', '_')}.py")


def show(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", autocompletion=completion.runs, help="Run: its id, the beginning of it, its path, or 'last'."
        ),
    ],
    game: Annotated[int | None, typer.Option(help="Show only this game.", show_default=False)] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Export the run as traces (agentcho-trace/1) instead.", show_default=False, callback=writable
        ),
    ] = None,
    inspect: Annotated[
        Path | None, typer.Option(metavar="FILE", help=INSPECT, show_default=False, callback=writable_log)
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Write an SVG picture instead.", show_default=False, callback=writable)
    ] = None,
    ids: Annotated[
        bool, typer.Option("--ids", help="Print the id of each message, as used in audit findings.")
    ] = False,
    display: Display = None,
    out: Runs = Path("runs"),
) -> None:
    """Show a recorded run again, or export it. For a run that died or is not over, show what was said so far.

    This prints to the terminal; `agentcho view` makes a page. With --trace it exports what was played; `agentcho trace`
    plays new games.
    """
    from agentcho.audit.wording import cut_short
    from agentcho.cli.listing import check_game
    from agentcho.display.safe import inline
    from agentcho.display.saved import Replay
    from agentcho.display.saved import show as show_run
    from agentcho.records.record import find
    from agentcho.records.trace import write_traces

    if ids and (trace is not None or inspect is not None):
        raise typer.BadParameter("an export always has them; leave it out", param_hint="--ids")
    saved = find(run, out)
    check_game(saved, game)
    if trace is not None:
        found = saved.export(None if game is None else {game})
        write_traces(trace, found)
        if note := cut_short([one.id for one in found if one.unfinished], len(found)):
            typer.echo(f"note: {inline(note)}", err=True)
    if inspect is not None:
        from agentcho.integrations.inspect.eval_log import write_inspect

        write_inspect(saved, inspect, game)
    if svg is not None:
        Replay(saved, game, ids).svg(svg)
    if trace is None and svg is None and inspect is None:
        show_run(saved, game, display, sys.stdout, ids=ids)


def view(
    target: Annotated[
        str, typer.Argument(metavar="[RUN|FOLDER|FILE]", help=VIEWED, autocompletion=completion.runs)
    ] = "last",
    eyes: Annotated[str | None, typer.Option(metavar="NAME", help=EYES, show_default=False)] = None,
    game: Annotated[int | None, typer.Option(help="Show only this game.", show_default=False)] = None,
    beside: Annotated[str | None, typer.Option(metavar="RUN", help=BESIDE, show_default=False)] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar=FILE, help=VIEW, show_default=False),
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help=LIVE)] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port for --serve; 0 picks a free one.")] = 0,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    out: Runs = Path("runs"),
) -> None:
    """Show a run as one page: the messages, who could read them, what reached whom, and what it cost.

    The page holds all messages, private ones included; with --eyes only those that one agent may read. `agentcho show`
    prints to the terminal instead.
    """
    from agentcho.cli.view import ViewArgs
    from agentcho.cli.view import view as view_target

    view_target(ViewArgs(target, eyes, game, html, serve, port, browse, out, beside))


def doctor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=LOCAL, autocompletion=completion.models)] = "understudy",
    verbose: Annotated[bool, typer.Option("--verbose", help="Print one line per layer instead of a summary.")] = False,
    *,
    where: Placing,
) -> None:
    """Prove that a model can share encodings, or report why it cannot. Without weights, show its prompts."""
    from agentcho.cli.listing import doctor_table
    from agentcho.config import VLLM, EngineOptions, RunConfig, check_model, checked
    from agentcho.display.progress import progress
    from agentcho.runner.doctor import doctor as examine

    place = dict(where)
    computed = checked(EngineOptions, **{name: place.pop(name) for name in EngineOptions.model_fields})
    if computed.engine == VLLM:
        given = {name: value for name, value in where.items() if value != RunConfig.model_fields[name].default}
        try:
            check_model(model, given)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--engine") from None
        from agentcho.integrations.vllm.doctor import doctor as examine_vllm
        from agentcho.protocol.variables import of_option

        variables = of_option(place["chat_template_kwargs"])
        served = examine_vllm(model, place["dtype"], variables, options=computed.division, context=place["context"])
        typer.echo(doctor_table(served, verbose=verbose, served="vLLM"))
        return
    with progress("doctor", sys.stderr) as told:
        report = examine(model, **place, tell=told.tell)
    typer.echo(doctor_table(report, verbose=verbose))

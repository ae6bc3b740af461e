"""`agentcho audit`: find what to audit, play it if necessary, assemble the report, write it and show it.

Exit codes: 0 clean, 1 findings at or above --fail-on, 2 usage, 3 inconclusive, 4 an internal error. Independent of how
a verdict is found.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import typer

from agentcho import audit as auditing
from agentcho.audit.judgement import Suppression
from agentcho.audit.report import AuditReport, FailOn
from agentcho.cli.extension import lab
from agentcho.cli.options import run_config
from agentcho.cli.outputs import UNREAD, Outputs
from agentcho.cli.play import play_recorded, progress_of
from agentcho.cli.shared_options import AUDITED
from agentcho.cli.signals import INTERRUPTED
from agentcho.config import RunConfig, again, served
from agentcho.display import Kind
from agentcho.display.audit import show
from agentcho.display.playing import silence
from agentcho.display.progress import Progress
from agentcho.display.safe import visible
from agentcho.engine.lora_adapter import find_adapter
from agentcho.errors import AdapterError, AgentchoError, ConfigError, RecordNotFound, ScenarioNotFound
from agentcho.extras import require
from agentcho.games.play.game_faults import words
from agentcho.games.runs import library
from agentcho.games.runs.discovery import find as on_shelf
from agentcho.games.runs.resume import loading_config
from agentcho.games.runs.runtime import tasks_of
from agentcho.integrations.textarena.names import is_arena
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.environment import source_digests
from agentcho.records.record import SavedRun, find
from agentcho.records.trace import read_traces

INTERNAL = 4
Nature = Literal["scenario", "trace", "run"]

TAKES: dict[Nature, frozenset[str]] = {
    "scenario": frozenset(AUDITED.fields(())) | {"set"},
    "trace": frozenset({"mode", "leakage", "deterministic", "repair", "reuse", "model", "adapter", "seed"}),
    "run": frozenset({"seed"}),
}
"""The options that each kind of target takes. A run was already played, so it takes no options of playing."""


class AuditArgs(NamedTuple):
    """The arguments of the command. `how` are the run options that were given, `given` those of the scenario."""

    target: str
    how: Mapping[str, Any]
    given: Mapping[str, str]
    out: Path
    outputs: Outputs
    measure: bool
    reveal: bool
    baseline: Path | None
    suppress: Path | None
    fail_on: FailOn
    display: Kind | None


class Prepared(NamedTuple):
    """Everything that can be checked before anything is played."""

    earlier: AuditReport | None
    suppressions: tuple[Suppression, ...]


def audit(asked: AuditArgs) -> int:
    """Audit, write and show, and return the exit code.

    `AgentchoError` and usage errors are raised. Any other error is printed in one line, with its traceback in a file.
    """
    try:
        return _audit(asked)
    except (AgentchoError, typer.BadParameter, typer.Exit):
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has closed standard output: end, as any filter does
        silence(sys.stdout)
        return UNREAD
    except Exception as error:
        print(_internal(error), file=sys.stderr)
        return INTERNAL


def _audit(asked: AuditArgs) -> int:
    nature = nature_of(asked.target, asked.out)
    _check_options(asked, nature)
    asked.outputs.check()
    prepared = _prepare(asked)
    with progress_of("audit", _playing(asked)) as told:
        report = {"scenario": _of_scenario, "trace": _of_trace, "run": _of_run}[nature](asked, told)
    if report is None:
        return INTERRUPTED
    report = _finished(report, prepared)
    asked.outputs.write(report, asked.fail_on)
    show(report, "none" if asked.outputs.piped else asked.display, sys.stdout)
    return report.exit_code(asked.fail_on)


def nature_of(target: str, out: Path) -> Nature:
    """Return the kind of a target: a trace (by its ending), a run (by folder, id or beginning of it), or a scenario."""
    if target.endswith(".jsonl"):
        return "trace"
    if target.endswith(".py") or is_arena(target):
        return "scenario"
    try:
        find(target, out)
    except RecordNotFound as error:
        missing = error
    else:
        return "run"
    try:
        on_shelf("scenarios", target)
    except ScenarioNotFound as error:
        if target == "last" or missing.several or Path(target).is_dir():
            raise missing from None
        what = f"neither a run in {out} nor a trace (.jsonl); {error}"
        raise typer.BadParameter(what, param_hint="TARGET") from None
    return "scenario"


def check_local(run: SavedRun) -> None:
    """Raise `ConfigError` if effects cannot be measured on the models of a run.

    The keys and values of models behind APIs cannot be measured, and a measurement uses one model.
    """
    if run.info.models.endpoints:
        raise ConfigError(
            f"{run.info.id} used a model behind an API, whose keys and values cannot be measured; "
            "`agentcho audit` without --measure checks its prompts"
        )
    if run.info.engines:
        raise ConfigError(
            f"{run.info.id} used {1 + len(run.info.engines)} models, and only a run on a single model can "
            "be measured; `agentcho audit` without --measure checks it"
        )


def _check_options(asked: AuditArgs, nature: Nature) -> None:
    """Raise a usage error for an option that would have no effect."""
    named = {"set": asked.given, **asked.how}
    for name, value in named.items():
        if value in (None, {}) or name in TAKES[nature]:
            continue
        why = "it was played with the options in its record" if nature == "run" else "it is not played again"
        raise typer.BadParameter(
            f"has no effect on a {nature}: {why}; leave it out", param_hint=f"--{name.replace('_', '-')}"
        )
    for name in ("model", "adapter", "seed"):
        if nature != "scenario" and asked.how.get(name) is not None and not asked.measure:
            raise typer.BadParameter(
                f"has no effect on a {nature} without --measure; give --measure too, or leave it out",
                param_hint=f"--{name}",
            )


def _prepare(asked: AuditArgs) -> Prepared:
    if asked.measure:
        require("to measure what leaks", "lab")
    earlier = None if asked.baseline is None else auditing.read_report(asked.baseline)
    return Prepared(earlier, () if asked.suppress is None else auditing.read_suppressions(asked.suppress))


def _of_scenario(asked: AuditArgs, told: Progress) -> AuditReport | None:
    """Play a scenario, record it, and audit the record. Returns None if it was interrupted."""
    config = run_config(**asked.how)
    scenario = library.chosen(asked.target, asked.given)
    tasks_of(scenario, config)
    engine = _engine(config, told.tell) if asked.measure else None
    run = play_recorded(asked.target, scenario, config, engine, asked.out, _playing(asked), told)
    if run is None:
        return None
    report = auditing.audit_run(run, asked.reveal)
    environment = report.subject.environment | {
        "played by": again(("agentcho", "audit", asked.target), config, AUDITED.fields(()), asked.given)
    }
    subject = report.subject.model_copy(update={"environment": environment})
    report = report.model_copy(update={"subject": subject})
    return _measured(report, run, engine, config, told.tell) if asked.measure else report


def _of_run(asked: AuditArgs, told: Progress) -> AuditReport:
    run = find(asked.target, asked.out)
    if asked.measure:
        check_local(run)
    report = auditing.audit_run(run, asked.reveal)
    config = run.info.config.model_copy(update=asked.how)
    if (
        asked.measure
        and config.adapter is not None
        and find_adapter(config.adapter).digest != run.info.engine.get("adapter")
    ):
        raise AdapterError(Path(config.adapter), "it has changed since this run was played")
    if not asked.measure:
        return report
    engine = _engine(loading_config(run, config), told.tell)
    _check_engine(run, engine.fingerprint)
    return _measured(report, run, engine, config, told.tell)


def _check_engine(run: SavedRun, fingerprint: Mapping[str, str]) -> None:
    """Raise `ConfigError` if a run was played on other weights, or with another tokenizer."""
    then = run.info.engine
    if changed := [name for name in ("weights", "tokenizer") if then.get(name) not in (None, fingerprint.get(name))]:
        raise ConfigError(
            f"the {' and the '.join(changed)} of {run.info.config.model} changed after {run.info.id} was played; "
            "restore the model, or play again and measure that run"
        )


def _of_trace(asked: AuditArgs, told: Progress) -> AuditReport:
    """Audit a trace, which does not say how it was played.

    It is treated as if encodings were reused without enforcement, unless options say otherwise.
    """
    path, config = Path(asked.target), run_config(**{"leakage": "audit", **asked.how})
    report = auditing.audit_traces(
        path,
        config.mode,
        config.leakage,
        asked.reveal,
        config.deterministic,
        repair=config.repair,
        reuse=config.reuse,
    )
    return _measured(report, path, _engine(config, told.tell), config, told.tell) if asked.measure else report


def _finished(report: AuditReport, prepared: Prepared) -> AuditReport:
    """Return the report compared with an earlier one, with the findings that somebody has accepted."""
    if prepared.earlier is not None:
        report = auditing.against(report, prepared.earlier)
    if prepared.suppressions:
        report = auditing.suppress(report, prepared.suppressions, datetime.now(UTC).date())
    return report


def _measured(
    report: AuditReport, source: SavedRun | Path, engine: Any, config: RunConfig, tell: ProgressCallback
) -> AuditReport:
    """Return the report with measured effects of leaks, always in the deterministic profile."""
    games = read_traces(source) if isinstance(source, Path) else [said for said in source.games().values() if said]
    found, controls = lab().measure(games, engine, config.seed, tell)
    ran = report.subject.model_copy(update={"environment": report.subject.environment | source_digests()})
    return auditing.measured(report.model_copy(update={"subject": ran}), found, controls)


def _engine(config: RunConfig, tell: ProgressCallback) -> Any:
    """Return the engine to measure on. The fake engine computes no distributions, so it is refused."""
    from agentcho.games.runs import runtime

    if config.model == "fake":
        raise typer.BadParameter("the fake model has nothing to measure; give another model", param_hint="--measure")
    if served(config.model):
        raise typer.BadParameter(
            "a model behind an API cannot be measured; give a model that is loaded here", param_hint="--measure"
        )
    return runtime.load_engine(config, tell)


def _playing(asked: AuditArgs) -> Kind | None:
    """Return the display during play: none if standard output is for JSON, or no display was asked for."""
    return "none" if asked.outputs.piped or asked.display in (None, "none") else asked.display


def _internal(error: Exception) -> str:
    """Return one line about an unexpected error. The traceback is written to a file."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="agentcho-", suffix=".traceback.txt", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.writelines(traceback.format_exception(error))
    what = visible(" ".join(f"{type(error).__name__}: {words(error)}".split()))
    return f"internal error: {what}; the traceback is in {file.name}. Please report it"

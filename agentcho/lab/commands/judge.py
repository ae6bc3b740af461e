"""`agentcho bench judge`: whether a judge of others' messages picks the same one when encodings are reused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agentcho.cli.options import GivenOptions
from agentcho.display.progress import progress
from agentcho.extras import require
from agentcho.lab.commands import workflows as speed
from agentcho.reuse.registry import usual_repairs

if TYPE_CHECKING:
    from agentcho.lab.judging.measured import JudgeOptions
    from agentcho.lab.judging.result import JudgeResult

TASK = "One or more of votes, slips, answers, merges; default: all."
WAY = (
    f"One or more repairs of the judged messages, such as {', '.join(usual_repairs()[:3])}; default: six. "
    "Baseline and plain reuse are always included."
)
LEAKAGE = "What is reused: the author's encodings, or those for the audience. All messages here are for everyone."
Names = list[str] | None


def judge(
    *,
    model: speed.Model = speed.UNDERSTUDY,
    dtype: speed.Dtype = "auto",
    checked: speed.Checked,
    task: Annotated[Names, typer.Option(help=TASK, show_default=False)] = None,
    way: Annotated[Names, typer.Option(help=WAY, show_default=False)] = None,
    n: Annotated[int, typer.Option("-n", "--choices", min=2, help="Number of choices per task.")] = 1000,
    leakage: Annotated[Literal["audit", "enforce"], typer.Option(help=LEAKAGE)] = "audit",
    seed: speed.Seed = 1,
    json_: speed.Json = None,
    resume: speed.Resume = False,
) -> None:
    """Measure how often a judge of four close candidates picks the same one when encodings are reused."""
    require("to compare choices", "lab")
    from agentcho.lab.display.judge import sheets, verdict
    from agentcho.lab.judging.cases import TASKS
    from agentcho.lab.judging.measured import WAYS, JudgeOptions

    asked = JudgeOptions.of(task or TASKS, way or WAYS, n, seed, leakage)
    file = speed.result_file(json_, "judge", resume)
    with speed.going_on(file):
        found = _measured(model=model, dtype=dtype, asked=asked, file=file, resume=resume, checked=checked)
    typer.echo(speed.text(sheets(found)))
    typer.echo(f"\n{verdict(found)}")


def _measured(
    model: str, dtype: str, asked: JudgeOptions, file: Path, resume: bool, checked: GivenOptions
) -> JudgeResult:
    """Play, keeping a partial file beside the result, and write the result."""
    from agentcho.lab.judging.measured import PartialJudge, digest, measure, rows, target
    from agentcho.lab.judging.result import JudgeResult
    from agentcho.lab.judging.second import seconds
    from agentcho.records.environment import machine_info, source_digests, versions
    from agentcho.runner.engine import Engine

    kept = PartialJudge.begin(
        file, resume, asked.settings | {"model": model, "dtype": dtype, "digest": digest()} | versions()
    )
    with progress("bench judge", sys.stderr) as told:
        engine = Engine.load(model, dtype=dtype, **checked, tell=told.tell)
        kept.check_engine(engine.fingerprint)
        measure(engine, asked, kept, told.tell)
    compared = rows(asked, kept)
    found = JudgeResult(
        model=engine.fingerprint["model"],
        dtype=engine.fingerprint["dtype"],
        device=engine.fingerprint["device"],
        digest=digest(),
        machine=machine_info() | versions() | source_digests(),
        command=speed.repeating("judge"),
        seed=asked.seed,
        leakage=asked.settings["leakage"],
        n=asked.n,
        rows=compared,
        target=target(compared),
        second=seconds(asked, kept),
    )
    speed.finished(file, found.model_dump_json(indent=1) + "\n")
    kept.done()
    return found

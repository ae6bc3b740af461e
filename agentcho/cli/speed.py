"""`agentcho bench workflows`, and the options that every benchmark of speed has: what is measured, where it goes.

Does not know: how anything is measured.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from agentcho.cli.outputs import drawable, writable
from agentcho.config import EIGHT_BITS, FEW_BITS, Bits, KvDtype
from agentcho.display.progress import progress
from agentcho.extras import require
from agentcho.progress import Tell

if TYPE_CHECKING:
    from agentcho.display.sheet import Sheet
    from agentcho.lab.bench.plans import Workload
    from agentcho.lab.bench.result import Figures, Kind, Result

UNDERSTUDY = "understudy"
SWEEP = "Instead of the paper's workflows: branches by voters of a tree of thoughts, or agents of a parallel debate."
ARM = "One or more, such as choreographed:enforce:deterministic; default: the five that are fast."
FIRST = "Time first tokens alone: after its first each text is fed 16 tokens a step, by stock arms at once."
NAMED = "'understudy', a folder, a GGUF file, or a Hugging Face id."
Model = Annotated[str, typer.Option(help=NAMED)]
SHAPES = "Random weights of a known shape: qwen3-0.6b, llama-3.2-1b, llama-3.1-8b."
Shape = Annotated[str | None, typer.Option(help=SHAPES, show_default=False)]
Dtype = Annotated[str, typer.Option(help="auto: bfloat16 for a shape, the model's own for others.")]

Weights = Annotated[Bits | None, typer.Option(help=FEW_BITS, show_default=False)]
Kept = Annotated[KvDtype | None, typer.Option(help=EIGHT_BITS, show_default=False)]


def _countable(repeats: int) -> int:
    """An option's callback: `ExtraMissing` where what makes intervals of so many is not installed."""
    from agentcho.lab.stats import FEW

    if repeats >= FEW:
        require(f"for an interval of {FEW} repeats and more", "lab")
    return repeats


REPEATS = "Times each arm is measured, after a warm-up; 5 and more need agentcho[lab]."
Repeats = Annotated[int, typer.Option(help=REPEATS, min=1, callback=_countable)]
Seed = Annotated[int, typer.Option(help="Of the random words.")]
SCALED = "Lengths of texts, of those that a model of 8B writes; at 0.1 most are too short for a shadow."
Workflows = Annotated[
    list[str] | None, typer.Option(help="One or more of the paper's; default: all six.", show_default=False)
]
Scale = Annotated[float, typer.Option(help=SCALED, min=0.01)]
JSON = typer.Option("--json", help="Write the figures here.", show_default=False, callback=writable)
Json = Annotated[Path | None, JSON]
Plot = Annotated[Path | None, typer.Option(help="Draw a picture here.", show_default=False, callback=drawable)]


Where = Mapping[str, str | None]
"""A model, its dtype, its weights and its keys and values if these are in few bits, and its device."""


class Files(NamedTuple):
    """Where the figures go, and a picture of them."""

    json: Path | None
    plot: Path | None = None


class Benchmark(NamedTuple):
    """What is asked for in every benchmark of speed; `program` is what was typed before its name."""

    bench: Kind
    model: str
    dtype: str
    repeats: int
    seed: int
    files: Files
    device: str = "auto"
    program: str = "agentcho bench"
    weights: Bits | None = None
    kv_dtype: KvDtype | None = None

    def measured(self, measure: Callable[[Any, Tell], list[Figures]], **how: Any) -> Result:
        """Load the model, measure, and say what was found: `how` beside what is here."""
        with progress(f"bench {self.bench}", sys.stderr) as told:
            engine = self._engine(told.tell)
            found = measure(engine, told.tell)
        return self._result(engine, found, how)

    def _engine(self, tell: Tell) -> Any:
        from agentcho.runner.engine import Engine

        dtype = "bfloat16" if self.dtype == "auto" and self.model.startswith("shape:") else self.dtype
        return Engine.load(self.model, self.device, dtype, weights=self.weights, kv_dtype=self.kv_dtype, tell=tell)

    def _result(self, engine: Any, found: list[Figures], how: dict[str, Any]) -> Result:
        from agentcho.runner.device import hardware

        where = {key: engine.fingerprint[key] for key in ("model", "dtype", "device")}
        where |= {"weights": self.weights, "kv_dtype": self.kv_dtype}
        return self.result(where, hardware(engine.network.device), found, **how)

    def result(self, where: Where, there: dict[str, str], found: list[Figures], **how: Any) -> Result:
        """What was found, on this machine: `there` beside what every result says."""
        from agentcho.lab.bench.result import Result
        from agentcho.records.environment import machine, versions

        asked: dict[str, Any] = {"bench": self.bench, "repeats": self.repeats, "seed": self.seed, **where}
        on = machine() | there | versions()
        return Result(**asked, **how, command=self._command(), machine=on, figures=tuple(found))

    def _command(self) -> str:
        """The command that finds it again, of each path its last name alone."""
        given = sys.argv[sys.argv.index(self.bench) :]
        words = (Path(word).name if "/" in word else word for word in given)
        return f"{self.program} {shlex.join(words)}"

    def finish(self, result: Result, table: str) -> None:
        """Print the table; write what was asked for."""
        typer.echo(table)
        if self.files.json is not None:
            self.files.json.write_text(result.model_dump_json(indent=1) + "\n")
        if self.files.plot is not None:
            from agentcho.lab.plots import plot_result

            plot_result(result, self.files.plot)


def named(model: str, shape: str | None) -> str:
    """The model of a benchmark: a shape, if one is given."""
    return model if shape is None else f"shape:{shape}"


def workflows(
    model: Model = UNDERSTUDY,
    shape: Shape = None,
    dtype: Dtype = "auto",
    weights: Weights = None,
    kv_dtype: Kept = None,
    workflow: Workflows = None,
    arm: Annotated[list[str] | None, typer.Option(help=ARM, show_default=False)] = None,
    traces: Annotated[
        Path | None, typer.Option(help="Workflows of a trace file instead of random words.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many of the trace file.", min=1)] = 1,
    sweep: Annotated[Literal["branches", "agents"] | None, typer.Option(help=SWEEP, show_default=False)] = None,
    first: Annotated[bool, typer.Option("--first", help=FIRST)] = False,
    scale: Scale = 1.0,
    repeats: Repeats = 3,
    seed: Seed = 1,
    json_: Json = None,
    plot: Plot = None,
) -> None:
    """The paper's workflows in all arms, which take turns on the same words and weights."""
    from agentcho.display import bench
    from agentcho.lab.bench.arms import USUAL
    from agentcho.lab.bench.measure import workflows as play

    if sum(bool(given) for given in (workflow, traces, sweep)) > 1:
        raise typer.BadParameter("give one of --workflow, --traces and --sweep")
    if traces is not None:
        subjects = traced(traces, limit, scale)
    else:
        subjects = paper(workflow, seed, scale) if sweep is None else swept(sweep, seed, scale)
    asked = Benchmark("workflows", named(model, shape), dtype, repeats, seed, Files(json_, plot))
    asked = asked._replace(weights=weights, kv_dtype=kv_dtype)
    found = asked.measured(
        lambda engine, tell: play(engine, subjects, arm or USUAL, repeats, not first, tell),
        scale=scale,
        stepwise=not first,
        sweep=sweep,
    )
    asked.finish(found, text(bench.workflows(found)))


def text(sheets: Iterable[Sheet]) -> str:
    """Tables, an empty line between two."""
    from agentcho.display.sheet import plain

    return "\n\n".join(map(plain, sheets))


def paper(named: Sequence[str] | None, seed: int, scale: float) -> Sequence[Workload]:
    """Workflows of the paper; None: all of them."""
    from agentcho.lab.bench import plans
    from agentcho.lab.bench.recorded import KINDS

    return plans.paper(named or list(KINDS), seed, scale)


def swept(sweep: str, seed: int, scale: float) -> Sequence[Workload]:
    """A sweep by its name."""
    from agentcho.lab.bench import plans

    return plans.branches(seed, scale) if sweep == "branches" else plans.agents(seed, scale)


def traced(file: Path, limit: int, scale: float) -> Sequence[Workload]:
    """Workflows of a trace file."""
    from agentcho.lab.bench import plans
    from agentcho.records.trace import read_traces

    return plans.traced(read_traces(file)[:limit], scale)

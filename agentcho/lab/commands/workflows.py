"""`agentcho bench workflows`, and the options shared by all speed benchmarks: what is measured, where results go."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from agentcho.cli.options import GivenOptions, OptionsFrom
from agentcho.cli.outputs import drawable, unnamed, writable
from agentcho.cli.signals import INTERRUPTED
from agentcho.config import LOCAL, VLLM, EngineOptions, QuantizationOptions, TemplateChecks, check_model
from agentcho.config import checked as checked_options
from agentcho.display.progress import progress
from agentcho.display.safe import inline
from agentcho.errors import ConfigError, asking
from agentcho.extras import require
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.files import write_output
from agentcho.records.trained_adapters import called

if TYPE_CHECKING:
    from agentcho.display.text_table import TextTable
    from agentcho.lab.bench.plans import Workload
    from agentcho.lab.bench.result import Figures, Kind, Result, Sweep

UNDERSTUDY = "understudy"
SWEEP = (
    "Instead of the paper's workflows: branches by voters of a tree of thoughts, agents of a parallel debate, or "
    "readers of long documents."
)
ARM = (
    "One or more, such as choreographed:enforce:deterministic; default: choreographed:audit, choreographed:enforce, "
    "baseline, generate, generate_batch."
)
FIRST = "Time only first tokens: after its first token, each text is fed 16 tokens per step, or at once in stock arms."
Model = Annotated[str, typer.Option(help=LOCAL)]
SHAPES = "Random weights of a known shape: qwen3-0.6b, llama-3.2-1b, llama-3.1-8b."
Shape = Annotated[str | None, typer.Option(help=SHAPES, show_default=False)]
DTYPES = "auto: for a shape bfloat16 where the processor supports it, else float32; for other models their own."
Dtype = Annotated[str, typer.Option(help=DTYPES)]
QUANTIZED = OptionsFrom(QuantizationOptions)
Quantized = Annotated[GivenOptions, QUANTIZED]
Checked = Annotated[GivenOptions, OptionsFrom(TemplateChecks, only=("template_differs",))]
Computed = Annotated[GivenOptions, OptionsFrom(EngineOptions)]


def _countable(repeats: int) -> int:
    """An option's callback: `ExtraMissing` if the library for intervals of this many repeats is not installed."""
    from agentcho.lab.stats import FEW

    if repeats >= FEW:
        require(f"for confidence intervals of {FEW} or more repeats", "lab")
    return repeats


REPEATS = "Number of timed repeats per arm, after one warm-up. 5 or more need agentcho[lab]."
Repeats = Annotated[int, typer.Option(help=REPEATS, min=1, callback=_countable)]
Seed = Annotated[int, typer.Option(help="Seed of the random words.")]
TRACES = "Workflows of these trace files instead of random words; with --workflow, both."
GUESSES = "Run each arm of ours without and with speculation, and report the gain."
AGAIN = "Continue the interrupted benchmark of --json FILE from FILE.part."
Resume = Annotated[bool, typer.Option("--resume", help=AGAIN)]
SCALED = "Lengths of texts, relative to those that an 8B model writes; at 0.1 most are too short for a shadow."
Workflows = Annotated[
    list[str] | None, typer.Option(help="One or more of the paper's workflows; default: all six.", show_default=False)
]
Swept = Annotated[
    Literal["branches", "agents", "readers"] | None, typer.Option("--sweep", help=SWEEP, show_default=False)
]
Scale = Annotated[float, typer.Option(help=SCALED, min=0.01)]
JSON = typer.Option(
    "--json", help="Write the figures here.  [default: a new file in runs/]", show_default=False, callback=writable
)
Json = Annotated[Path | None, JSON]
Plot = Annotated[Path | None, typer.Option(help="Write a plot to this file.", show_default=False, callback=drawable)]

Where = Mapping[str, str | None]
"""A model, its dtype, its weights and KV cache if quantized, and its device."""


def kind_of(model: str, dtype: str) -> str:
    """The dtype to load a model in. "auto" for a shape: bfloat16, but float32 where bfloat16 would be emulated."""
    if dtype != "auto" or not model.startswith("shape:"):
        return dtype
    from agentcho.runner.model.device import device_of, has_bfloat16

    return "bfloat16" if device_of("auto").type == "cuda" or has_bfloat16() else "float32"


def repeating(command: str, program: str = "agentcho bench") -> str:
    """Return the command line that repeats this one, from the name of its command on.

    Folders of this machine are left out: of a path, also in a list of columns with adapters, only the last name stands.
    """
    given = sys.argv[sys.argv.index(command) :] if command in sys.argv else [command]
    return f"{program} {shlex.join(_without_folders(word) for word in given if word != '--resume')}"


def _without_folders(word: str) -> str:
    """Return a word of a command line with its paths and addresses as their last names. Ids of models stay."""
    if "://" in word:
        return Path(word).name
    return "".join(called(part) if _is_path(part) else part for part in re.split("([,@=])", word))


def _is_path(part: str) -> bool:
    if "/" not in part or part.startswith(("/", "~", ".")):
        return "/" in part
    try:
        return Path(part).exists() or Path(part).parent.is_dir()
    except OSError:
        return True


def result_file(given: Path | None, bench: str, resume: bool = False) -> Path:
    """The file of the figures: the given one, else a new one in runs/. `ConfigError`: `resume` without a file."""
    if given is None and resume:
        from agentcho.lab.partial import UNNAMED

        raise ConfigError(UNNAMED)
    return unnamed(f"bench-{bench}", ".json") if given is None else given


@contextmanager
def going_on(file: Path) -> Iterator[None]:
    """On Ctrl-C, print how to resume; the partial results are beside the file."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"interrupted; to continue, repeat the command with --json {inline(str(file))} --resume", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def finished(file: Path, text: str) -> None:
    """Write a result, and print where it is."""
    write_output(file, text)
    print(f"written: {inline(str(file))}", file=sys.stderr)


class Files(NamedTuple):
    """The files of the figures and of their plot."""

    json: Path | None
    plot: Path | None = None


class Benchmark(NamedTuple):
    """The options that all speed benchmarks share. `program`: the command line before the benchmark's name;
    `store_tokens`: a bound of the store, beyond which encodings are dropped, not moved to host memory."""

    bench: Kind
    model: str
    dtype: str
    repeats: int
    seed: int
    files: Files
    device: str = "auto"
    program: str = "agentcho bench"
    quantized: QuantizationOptions = QuantizationOptions()
    store_tokens: int | None = None
    checked: TemplateChecks = TemplateChecks()
    computed: EngineOptions = EngineOptions()

    @property
    def settings(self) -> dict[str, Any]:
        """The options that figures depend on."""
        apart = ("files", "program", "quantized", "checked", "computed")
        said = {name: value for name, value in self._asdict().items() if name not in apart}
        return said | self.quantized.quantization | self.computed.model_dump()

    def measured(self, measure: Callable[[Any, ProgressCallback], list[Figures]], **how: Any) -> Result:
        """Load the model, measure, and return the result; `how` are further fields of it."""
        with progress(f"bench {self.bench}", sys.stderr) as told:
            engine = self.engine(told.tell)
            found = measure(engine, told.tell)
        return self.found(engine, found, {}, **how)

    @property
    def kind(self) -> str:
        """The dtype; see `kind_of`."""
        return kind_of(self.model, self.dtype)

    def engine(self, tell: ProgressCallback) -> Any:
        """Load the model."""
        from agentcho.runner.engine import Engine

        sizes: dict[str, Any] = {} if self.store_tokens is None else {"store_tokens": self.store_tokens}
        sizes |= {"host_tokens": 0} if sizes else {}
        few, differs = self.quantized.quantization, self.checked.template_differs
        if self.computed.engine == VLLM:
            divided = self.computed.division
            return Engine.load(
                self.model, engine="vllm", dtype=self.kind, **sizes, template_differs=differs, options=divided
            )
        return Engine.load(self.model, self.device, self.kind, **few, **sizes, template_differs=differs, tell=tell)

    def found(self, engine: Any, found: list[Figures], there: Mapping[str, str], **how: Any) -> Result:
        """The result with this engine; `there` describes the machine further, `how` are further fields."""
        from agentcho.runner.model.device import device_of, gpu_name

        where = {key: engine.fingerprint[key] for key in ("model", "dtype", "device")}
        where |= self.quantized.quantization
        there = {"vllm": engine.fingerprint["engine"], **there} if self.computed.engine == VLLM else there
        return self.result(where, {**gpu_name(device_of(where["device"])), **there}, found, **how)

    def result(self, where: Where, there: dict[str, str], found: list[Figures], **how: Any) -> Result:
        """The result on this machine; `there` describes the machine further, `how` are further fields."""
        from agentcho.lab.bench.result import Result
        from agentcho.records.environment import machine_info, source_digests, versions

        asked: dict[str, Any] = {"bench": self.bench, "repeats": self.repeats, "seed": self.seed, **where}
        on = machine_info() | there | versions() | source_digests()
        return Result(**asked, **how, command=repeating(self.bench, self.program), machine=on, figures=tuple(found))

    def finish(self, result: Result, table: str) -> None:
        """Print the table and write the requested files."""
        typer.echo(table)
        if self.files.json is not None:
            finished(self.files.json, result.model_dump_json(indent=1) + "\n")
        if self.files.plot is not None:
            from agentcho.lab.plots import plot_result

            plot_result(result, self.files.plot)


def named(model: str, shape: str | None) -> str:
    """The model of a benchmark: a shape, if one is given."""
    return model if shape is None else f"shape:{shape}"


def workflows(
    *,
    model: Model = UNDERSTUDY,
    shape: Shape = None,
    dtype: Dtype = "auto",
    quantized: Quantized,
    computed: Computed,
    checked: Checked,
    workflow: Workflows = None,
    arm: Annotated[list[str] | None, typer.Option(help=ARM, show_default=False)] = None,
    traces: Annotated[list[Path] | None, typer.Option(help=TRACES, show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of workflows read from each trace file.", min=1)] = 1,
    speculate: Annotated[bool, typer.Option("--speculate", help=GUESSES)] = False,
    sweep: Swept = None,
    first: Annotated[bool, typer.Option("--first", help=FIRST)] = False,
    scale: Scale = 1.0,
    repeats: Repeats = 3,
    seed: Seed = 1,
    json_: Json = None,
    resume: Resume = False,
    plot: Plot = None,
) -> None:
    """Time the paper's workflows, or those of trace files, in all arms in turn, on the same words and weights."""
    from agentcho.lab.bench.arms import OURS, USUAL, with_guesses
    from agentcho.lab.bench.arms import arm as arm_of

    if sweep is not None and (workflow or traces):
        raise typer.BadParameter("--sweep cannot be combined with --workflow or --traces; leave one out")
    if speculate and first:
        raise typer.BadParameter("--speculate times whole workflows; give it without --first")
    subjects = traced(traces or (), limit, scale)
    if workflow or not subjects:
        subjects += paper(workflow, seed, scale) if sweep is None else swept(sweep, seed, scale)
    on_vllm = computed["engine"] == VLLM
    usual = tuple(OURS) if on_vllm else USUAL
    arms = with_guesses(arm or usual) if speculate else [*(arm or usual)]
    for each in arms:
        arm_of(each)  # ConfigError before anything is loaded
    if on_vllm:
        _check_vllm(named(model, shape), quantized, arms)
    asked = Benchmark(
        bench="workflows",
        model=named(model, shape),
        dtype=dtype,
        repeats=repeats,
        seed=seed,
        files=Files(result_file(json_, "workflows", resume), plot),
    )
    _played(
        asked=asked._replace(
            quantized=QuantizationOptions(**quantized),
            checked=TemplateChecks(**checked),
            computed=checked_options(EngineOptions, **computed),
        ),
        subjects=subjects,
        arms=arms,
        lengths=Lengths(scale, not first, sweep),
        resume=resume,
    )


def _check_vllm(model: str, quantized: Mapping[str, Any], arms: Iterable[str]) -> None:
    """`ConfigError`: engine vllm cannot run this model, these bits, or one of these arms."""
    from agentcho.lab.bench.arms import OURS

    given = {name: value for name, value in quantized.items() if value is not None}
    try:
        check_model(model, {"engine": VLLM, **given})
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if wrong := next((arm for arm in arms if arm not in OURS), None):
        raise ConfigError(f"arm {wrong} cannot be run on engine vllm; give one or more of {', '.join(OURS)}")


class Lengths(NamedTuple):
    """The scale of texts, whether they are fed token by token, and what is swept."""

    scale: float
    stepwise: bool
    sweep: Sweep | None


def _played(
    asked: Benchmark, subjects: Sequence[Workload], arms: Sequence[str], lengths: Lengths, resume: bool
) -> None:
    """Measure, keeping a partial file beside the result, and write and print the result with its targets."""
    from agentcho.lab.bench.aims import aims
    from agentcho.lab.bench.measure import workflows as play
    from agentcho.lab.bench.partial import PartialWorkflows, digest
    from agentcho.lab.display import bench
    from agentcho.lab.yardstick import worst
    from agentcho.records.environment import machine_info, versions

    settings = {name: str(value) for name, value in (asked.settings | lengths._asdict()).items()}
    settings |= {"arms": ", ".join(arms), "workflows": digest(subjects), **machine_info(), **versions()}
    kept = PartialWorkflows.begin(asked.files.json, resume, settings)

    def measure(engine: Any, tell: ProgressCallback) -> list[Figures]:
        kept.check_engine(engine.fingerprint)
        return play(
            engine=engine,
            subjects=subjects,
            named=arms,
            repeats=asked.repeats,
            stepwise=lengths.stepwise,
            tell=tell,
            kept=kept,
        )

    with going_on(asked.files.json or Path()):
        found = asked.measured(measure, **lengths._asdict())
    judged = aims(found, lambda named, arm: worst(found.words(subject, arm) for subject in named))
    found = found.model_copy(update={"targets": tuple(judged)})
    sheets = (*bench.workflows(found), *bench.guesses(found), *bench.targets(found))
    asked.finish(found, text(sheets))
    kept.done()


def text(sheets: Iterable[TextTable]) -> str:
    """Tables as text, with an empty line between them."""
    from agentcho.display.text_table import plain

    return "\n\n".join(map(plain, sheets))


def paper(named: Sequence[str] | None, seed: int, scale: float) -> Sequence[Workload]:
    """Workflows of the paper; None: all of them."""
    from agentcho.lab.bench import plans
    from agentcho.lab.bench.recorded import KINDS

    for name in named or ():
        if name not in KINDS:
            raise ConfigError(f"unknown workflow {name!r}; give one of {', '.join(KINDS)}{asking(name, KINDS)}")
    return plans.paper(named or list(KINDS), seed, scale)


def swept(sweep: Sweep, seed: int, scale: float) -> Sequence[Workload]:
    """The workloads of a sweep by its name."""
    from agentcho.lab.bench.plans import SWEEPS

    return SWEEPS[sweep](seed, scale)


def traced(files: Iterable[Path], limit: int, scale: float) -> list[Workload]:
    """The first `limit` workflows of each trace file."""
    from agentcho.lab.bench import plans
    from agentcho.records.trace import read_traces

    return plans.traced([each for file in files for each in read_traces(file)[:limit]], scale)

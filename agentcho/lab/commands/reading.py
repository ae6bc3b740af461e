"""`agentcho bench fidelity` and `agentcho bench decisions`: recorded conversations, read in every mode of reuse."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from agentcho.cli.options import GivenOptions
from agentcho.cli.shared_options import MODES
from agentcho.config import RunConfig
from agentcho.display.progress import progress
from agentcho.errors import ConfigError
from agentcho.extras import require
from agentcho.lab.commands import workflows as speed
from agentcho.protocol.progress import ProgressCallback, counted, heard
from agentcho.reuse.registry import DEFAULT, compared_repairs, usual_ways

if TYPE_CHECKING:
    from agentcho.lab.compare.columns import Column
    from agentcho.lab.partial import PartialResult
    from agentcho.lab.reading.fidelity import Conversation
    from agentcho.records.frozen import Frozen

T = TypeVar("T")
PLAIN = "baseline,choreographed:audit,choreographed:enforce"
EVERY = ",".join(
    (
        PLAIN,
        *(f"choreographed:audit:{way}" for way in usual_ways() if way != DEFAULT),
        *(f"choreographed:audit+{repair}" for repair in compared_repairs()),
    )
)
TRACES = "Recorded conversations, as `agentcho trace` and `agentcho show --trace` write them; each file is a set."
LIMIT = "Maximum number of conversations read from each file."
CHOICES = "The reader's possible answers, separated by commas; the first one is measured. Default: the answers it gave."
MORE = "Add --traces of games with another one (`agentcho trace --set strategy=…`)."
BEHIND = "Also measure the paper's Figure 8: the owner's words encoded over its system prompt alone, or its plan alone."
Traces = Annotated[list[Path], typer.Option(help=TRACES)]
Limit = Annotated[int | None, typer.Option(help=LIMIT, min=1, show_default=False)]
Seed = Annotated[int, typer.Option(help="Seed of the bootstrap.")]
Modes = Annotated[str, typer.Option(metavar="COLUMNS", help=MODES)]


def fidelity(
    *,
    traces: Traces,
    limit: Limit = None,
    modes: Modes = EVERY,
    model: speed.Model = speed.UNDERSTUDY,
    dtype: speed.Dtype = "auto",
    checked: speed.Checked,
    seed: Seed = 1,
    json_: speed.Json = None,
    resume: speed.Resume = False,
    plot: speed.Plot = None,
) -> None:
    """Compare ways of reusing encodings with the baseline on recorded conversations: KL divergence, agreement of the
    likeliest token, likelihood of the recorded words, tokens encoded."""
    require("to make intervals", "lab")
    from agentcho.lab.display.reading import fidelity_sheets
    from agentcho.lab.reading.fidelity import PartialFidelity, measure, rows, steps
    from agentcho.lab.reading.result import FidelityResult

    asked = _Asked.of(traces=traces, limit=limit, modes=modes, model=model, dtype=dtype, seed=seed)
    file = speed.result_file(json_, "fidelity", resume)
    kept = PartialFidelity.begin(file, resume, asked.settings)

    def read(engine: Any, tell: ProgressCallback) -> FidelityResult:
        from agentcho.lab.compare.fidelity import Arm

        kept.check_engine(engine.fingerprint)
        arms = {name: Arm(policy, own) for name, (policy, own) in asked.arms(engine).items()}
        told = counted(tell, "conversations", len(asked.conversations))
        reads = measure(conversations=asked.conversations, arms=arms, kept=kept, tell=told)
        return FidelityResult(
            **asked.where(engine, "fidelity"),
            rows=rows(reads, seed),
            steps=steps(reads, asked.pairs, seed),
            reads=reads,
        )

    with speed.going_on(file):
        found = asked.measured("bench fidelity", checked, read)
    _finish(found, file, kept)
    if plot is not None:
        from agentcho.lab.plots import plot_readings

        plot_readings(found, plot)
    typer.echo(speed.text(fidelity_sheets(found)))


def decisions(
    *,
    traces: Traces,
    limit: Limit = None,
    reader: Annotated[
        str, typer.Option(help="Agent whose decision is measured. Its last answer must be one of a few words.")
    ] = "bob",
    owner: Annotated[str, typer.Option(help="Agent that keeps something private from the reader.")] = "alice",
    choices: Annotated[str | None, typer.Option(metavar="WORDS", help=CHOICES, show_default=False)] = None,
    behind: Annotated[bool, typer.Option("--behind", help=BEHIND)] = False,
    modes: Modes = PLAIN,
    model: speed.Model = speed.UNDERSTUDY,
    dtype: speed.Dtype = "auto",
    checked: speed.Checked,
    seed: Seed = 1,
    json_: speed.Json = None,
    resume: speed.Resume = False,
) -> None:
    """Measure how one agent's private messages change another agent's decision while all public words stay the
    same."""
    require("to make intervals", "lab")
    from agentcho.lab.display.reading import decisions_sheets
    from agentcho.lab.measure.play import Pair
    from agentcho.lab.reading.decisions import (
        PartialDecisions,
        effects,
        games,
        measure,
        moved,
        said_choices,
        spelled,
        ways,
    )
    from agentcho.lab.reading.result import DecisionsResult

    asked = _Asked.of(traces=traces, limit=limit, modes=modes, model=model, dtype=dtype, seed=seed)
    pair = Pair(reader, owner)
    words = (
        said_choices(asked.conversations, reader)
        if choices is None
        else spelled(asked.conversations, reader, _words(choices))
    )
    settings = {"reader": reader, "owner": owner, "behind": str(behind), "choices": ",".join(words)}
    settings |= {"modes": ", ".join(each.name for each in asked.columns)} | asked.settings
    file = speed.result_file(json_, "decisions", resume)
    kept = PartialDecisions.begin(file, resume, settings)

    def read(engine: Any, tell: ProgressCallback) -> DecisionsResult:
        kept.check_engine(engine.fingerprint)
        found = games(asked.conversations, engine, pair, words)
        told = counted(tell, "conversations", len(found))
        answers = measure(found=found, read=ways(asked.arms(engine), behind), pair=pair, kept=kept, tell=told)
        return DecisionsResult(
            **asked.where(engine, "decisions"),
            reader=reader,
            owner=owner,
            choice=words[0],
            effects=effects(answers, seed),
            moved=moved(answers, seed),
            answers=answers,
            left_out=kept.data.left_out + Counter(_undecided(asked.conversations, found)),
        )

    with speed.going_on(file):
        found = asked.measured("bench decisions", checked, read)
    _finish(found, file, kept)
    typer.echo(speed.text(decisions_sheets(found)))
    if not found.moved:
        typer.echo(f"\nNothing could be exchanged, because {owner} has the same strategy in all of these games. {MORE}")


def _words(text: str) -> tuple[str, ...]:
    """The words of `--choices`. A usage error: fewer than two."""
    found = tuple({word.strip().upper(): word.strip() for word in text.split(",") if word.strip()}.values())
    if len(found) < 2:
        raise typer.BadParameter(f"{text!r} leaves no choice; give two or more words, separated by commas")
    return found


def _undecided(conversations: Sequence[Conversation], found: Sequence[Any]) -> dict[str, int]:
    count = len(conversations) - len(found)
    return {"the last answer is none of the choices": count} if count else {}


class _Asked(NamedTuple):
    """What is read, and by which columns and model."""

    conversations: tuple[Conversation, ...]
    columns: tuple[Column, ...]
    model: str
    dtype: str
    seed: int
    digest: str

    @classmethod
    def of(cls, traces: Sequence[Path], limit: int | None, modes: str, model: str, dtype: str, seed: int) -> _Asked:
        """Read the files. `ConfigError`: two sets have the same name, or the first column is not the baseline.
        `RecordNotFound`, `RecordBroken`: a file is missing or damaged."""
        from hashlib import sha256

        from agentcho.lab.compare.columns import columns
        from agentcho.lab.reading.fidelity import BASELINE, named_apart
        from agentcho.records.trace import read_traces

        named = columns(modes)
        if named[0].name != BASELINE:
            told = f"must be {BASELINE!r}, which the others are compared with"
            raise ConfigError(f"the first column of --modes {told}; got {named[0].name!r}")
        twins = [name for name, count in Counter(file.stem for file in traces).items() if count > 1]
        if twins:
            told = "results are listed by file name, so rename one of them"
            raise ConfigError(f"two files of --traces are named {twins[0]!r}: {told}")
        found = [each for file in traces for each in named_apart(file.stem, read_traces(file)[:limit])]
        if not found:
            raise ConfigError("the files given by --traces contain no conversations")
        text = "\n".join(each.workflow.model_dump_json() for each in found)
        digest = sha256(text.encode()).hexdigest()[:16]
        return cls(conversations=tuple(found), columns=named, model=model, dtype=dtype, seed=seed, digest=digest)

    @property
    def settings(self) -> dict[str, str]:
        """Everything that the figures of a conversation depend on."""
        from agentcho.lab.partial import code_digest
        from agentcho.lab.reading.fidelity import FOLDERS
        from agentcho.records.environment import versions

        asked = {"model": self.model, "dtype": self.dtype, "conversations": self.digest}
        asked["adapters"] = ", ".join(f"{each.name} {each.digest}" for each in self.columns if each.adapter)
        return asked | {"code": code_digest(FOLDERS)} | versions()

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of columns that are compared for nearness to the baseline."""
        plain = [each.name for each in self.columns if each.plain and each.adapter is None]
        return [(plain[0], other) for other in plain[1:]]

    def arms(self, engine: Any) -> Mapping[str, tuple[Any, Any]]:
        """The policy and the engine of each column. `AdapterError`: an adapter has changed since then."""
        base = RunConfig(model=self.model)
        adapters = dict.fromkeys(each.adapter for each in self.columns)
        own = {adapter: engine if adapter is None else engine.adapted(adapter) for adapter in adapters}
        for each in self.columns:
            each.check_adapter()
        return {each.name: (each.config(base).policy, own[each.adapter]) for each in self.columns}

    def measured(self, name: str, checked: GivenOptions, work: Callable[[Any, ProgressCallback], T]) -> T:
        """Load the model and measure; Ctrl-C ends it after the current reading."""
        from agentcho.lab.timing import stoppable
        from agentcho.runner.engine import Engine

        with progress(name, sys.stderr) as told:
            engine = Engine.load(self.model, dtype=self.dtype, **checked, tell=told.tell)
            return stoppable(lambda check: work(engine, heard(told.tell, check)))

    def where(self, engine: Any, command: str) -> dict[str, Any]:
        """The origin that every result states."""
        from agentcho.records.environment import machine_info, source_digests, versions

        return {key: engine.fingerprint[key] for key in ("model", "dtype", "device")} | {
            "machine": machine_info() | versions() | source_digests(),
            "command": speed.repeating(command),
            "seed": self.seed,
        }


def _finish(found: Frozen, file: Path, kept: PartialResult[Any]) -> None:
    speed.finished(file, found.model_dump_json(indent=1) + "\n")
    kept.done()

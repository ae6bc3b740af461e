"""Runs one measurement from the request to the result, and summarizes it in a few lines.

Independent of the command line.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from agentcho.errors import ConfigError
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.environment import machine_info, source_digests, versions
from agentcho.records.trace import read_traces
from tools.bench.agentleak.kept import PartialOffices
from tools.bench.agentleak.result import AgentLeakResult, Office


class Asked(NamedTuple):
    """The workflows to measure, the model, and how often first tokens are timed. `games` None: all of them."""

    file: Path
    games: int | None = None
    model: str = "understudy"
    repeats: int = 1
    seed: int = 1


def begin(asked: Asked, result: Path | None, resume: bool) -> PartialOffices:
    """The measurements kept so far for this request. `ConfigError`, `RecordNotFound`: see `PartialOffices.begin`, or
    the file does not exist."""
    read_traces(asked.file)
    settings = {
        "file": _digest(asked.file),
        "workflows": str(asked.games or "all"),
        "model": asked.model,
        "repeats": str(asked.repeats),
        "seed": str(asked.seed),
    }
    return PartialOffices.begin(result, resume, settings)


def measured(asked: Asked, kept: PartialOffices, program: str, tell: ProgressCallback) -> AgentLeakResult:
    """Measure what is not kept, and assemble the whole result."""
    import torch

    from agentcho.runner.engine import Engine
    from tools.bench.agentleak.measure import checked, measure

    workflows = read_traces(asked.file)[: asked.games]
    if len(workflows) < 2:
        raise ConfigError(f"{asked.file} has {len(workflows)} workflow: a vault is swapped for another's; give two")
    engine = Engine.load(asked.model, "cpu", "float32")
    measure(checked(workflows, engine), engine, asked.repeats, asked.seed, kept, tell)
    order = [workflow.id for workflow in workflows]
    return AgentLeakResult(
        command=_command(program, asked),
        source=asked.file.name,
        digest=_digest(asked.file),
        model=asked.model,
        seed=asked.seed,
        repeats=asked.repeats,
        threads=torch.get_num_threads(),
        seconds=kept.seconds,
        environment=versions() | machine_info() | source_digests(),
        workflows=tuple(kept.offices[id] for id in order if id in kept.offices),
        skipped={id: kept.skipped[id] for id in order if id in kept.skipped},
    )


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()


def _command(program: str, asked: Asked) -> str:
    """The command as typed, without the folder of the file."""
    own = Asked(asked.file)
    words = [program, asked.file.name]
    words += [f"-n {asked.games}"] if asked.games is not None else []
    named = {"model": asked.model, "repeats": asked.repeats, "seed": asked.seed}
    return " ".join([*words, *(f"--{name} {value}" for name, value in named.items() if value != getattr(own, name))])


def lines(found: AgentLeakResult) -> Iterator[str]:
    """The result in a few lines."""
    for way in ("audit", "enforce"):
        swaps = [swap for office in found.workflows for swap in office.swaps if swap.way == way]
        leaking = sum(_leaks(office, way) for office in found.workflows)
        same = sum(swap.same for swap in swaps)
        yield f"{way}: {leaking} of {len(found.workflows)} workflows leak; {same} of {len(swaps)} swaps change no bit"
    yield f"{found.seconds:.0f} s; {len(found.skipped)} workflows do not fit the model"


def _leaks(office: Office, way: str) -> bool:
    return any(verdict != "clean" for name, own in office.verdicts.items() if name == way for verdict in own.values())

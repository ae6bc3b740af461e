"""The commands of `python -m tools.bench`: which benchmarks run on this machine, and where the figures go."""

from __future__ import annotations

import inspect
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints

import typer

from agentcho.config import QuantizationOptions
from agentcho.display.progress import progress
from agentcho.lab.bench.plans import Workload
from agentcho.lab.bench.result import Figures, Kind, Result
from agentcho.lab.commands.workflows import (
    QUANTIZED,
    UNDERSTUDY,
    Benchmark,
    Dtype,
    Files,
    Json,
    Model,
    Plot,
    Repeats,
    Scale,
    Seed,
    Shape,
    named,
    paper,
)
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.environment import machine_info, source_digests, versions
from tools.bench import GPU_DAY, PROGRAM

Measure = Callable[[Any, ProgressCallback], list[Figures]]
"""Measures on an engine, and reports its progress."""
Context = Annotated[int, typer.Option(help="Tokens that each row has behind it.", min=16)]
COMMANDS: dict[str, Callable[..., None]] = {}


def app() -> typer.Typer:
    """The command line as an object."""
    cli = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Measure this machine, one thing at a time.",
    )
    cli.callback()(lambda: None)
    for command in (*COMMANDS.values(), *OTHERS):
        cli.command()(command)
    passed_on = {"ignore_unknown_options": True, "allow_extra_args": True}
    cli.command(GPU_DAY, context_settings=passed_on, add_help_option=False)(gpu_day)
    return cli


def benchmark(usual: int, plot: bool = True) -> Callable[[Callable[..., Measure]], Callable[..., Measure]]:
    """Make a command from a function. The command has the options of all benchmarks (`usual`: the default number of
    repeats; `plot`: whether there is a plot) and those of the function, which also gets `repeats` and `seed`, and
    returns the function that measures."""
    before: dict[str, tuple[Any, Any]] = {"model": (Model, UNDERSTUDY), "shape": (Shape, None)}
    before |= {"dtype": (Dtype, "auto")}
    quantized = {name: QUANTIZED.option(name) for name in QUANTIZED.fields(())}
    before |= {name: (option.annotation, option.default) for name, option in quantized.items()}
    after = {"repeats": (Repeats, usual), "seed": (Seed, 1), "json_": (Json, None)}
    after |= {"plot": (Plot, None)} if plot else {}

    def made(function: Callable[..., Measure]) -> Callable[..., Measure]:
        hints, given = get_type_hints(function, include_extras=True), inspect.signature(function).parameters
        own = {name: (hints[name], each.default) for name, each in given.items() if name not in after}

        def command(**words: Any) -> None:
            model, shape, dtype = (words.pop(name) for name in ("model", "shape", "dtype"))
            few = QuantizationOptions(**{name: words.pop(name) for name in quantized})
            json = words.pop("json_")
            files, repeats, seed = Files(json, words.pop("plot", None)), words["repeats"], words["seed"]
            measure = function(**words)
            bench = cast(Kind, function.__name__)
            asked = Benchmark(
                bench=bench,
                model=named(model, shape),
                dtype=dtype,
                repeats=repeats,
                seed=seed,
                files=files,
                program=PROGRAM,
                quantized=few,
                store_tokens=words.get("store"),
            )
            _finish(asked, asked.measured(measure, scale=words.get("scale", 1.0)))

        options = before | own | after
        kind = inspect.Parameter.KEYWORD_ONLY
        signed = [inspect.Parameter(name, kind, annotation=a, default=d) for name, (a, d) in options.items()]
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__annotations__ = {name: annotation for name, (annotation, _) in options.items()}
        vars(command)["__signature__"] = inspect.Signature(signed)
        COMMANDS[function.__name__] = command
        return function

    return made


def _finish(asked: Benchmark, found: Result) -> None:
    from tools.bench.tables import table
    from tools.bench.targets import with_targets

    result = with_targets(found)
    asked.finish(result, table(result))


Played = Annotated[
    list[str] | None, typer.Option(help="One or more of the paper's; default: three.", show_default=False)
]


@benchmark(5, plot=False)
def cost(repeats: int, seed: int, workflow: Played = None, scale: Scale = 1.0) -> Measure:
    """Measure the cost of enforcing and of the deterministic profile: four interleaved arms, token by token."""
    from agentcho.lab.bench.measure import workflows
    from tools.bench.cost import ARMS, PLAYED

    subjects = paper(workflow or PLAYED, seed, scale)
    return lambda engine, tell: workflows(engine, subjects, ARMS, repeats, True, tell)


@benchmark(7)
def step(repeats: int, seed: int, context: Context = 512) -> Measure:
    """Time one decode step with one row and with eight (over one message, and "apart": over one each), against a
    cached forward pass of transformers."""
    from tools.bench.step import step as measure

    return lambda engine, tell: measure(engine, context, repeats, seed, tell)


@benchmark(5)
def overhead(
    repeats: int,
    seed: int,
    agents: Annotated[int, typer.Option(help="Agents that talk at once on the model.", min=1)] = 64,
    crowd: Annotated[int, typer.Option(help="Agents that ask a fake engine.", min=1)] = 1000,
    each: Annotated[int, typer.Option(help="Requests of each of them.", min=1)] = 20,
) -> Measure:
    """Measure the choreographer's own cost: its share of wall time, and requests per second on a fake engine."""
    from tools.bench.overhead import requests, share

    return lambda engine, tell: [
        *share(engine, agents, repeats, seed, tell),
        *requests(crowd, each, repeats, tell),
    ]


Sizes = Annotated[
    list[int] | None, typer.Option(help="Tokens read; default: 1024, doubled up to 8192.", show_default=False)
]


Agents = Annotated[
    list[int] | None,
    typer.Option(help="Instead: of societies of so many agents, time and memory a message.", show_default=False, min=1),
]


@benchmark(3)
def growth(
    repeats: int,
    seed: int,
    size: Sizes = None,
    agents: Agents = None,
    rounds: Annotated[int, typer.Option(help="Of these societies.", min=1)] = 20,
    store: Annotated[
        int | None,
        typer.Option(help="Tokens that the store holds; default: 4 GiB of them.", min=1024, show_default=False),
    ] = None,
) -> Measure:
    """Measure how the time to the first token grows with the number of tokens that are read, and how the time and
    memory of a message grow with the number of agents."""
    if agents:
        from tools.bench.society import society

        return lambda engine, tell: society(engine, sorted(set(agents)), rounds, repeats, seed, tell)
    from agentcho.lab.bench.arms import OURS
    from tools.bench.growth import growth as measure
    from tools.bench.growth import sizes_of

    return lambda engine, tell: measure(
        engine, sorted(size or sizes_of(engine.context)), list(OURS), repeats, seed, tell
    )


Budgets = Annotated[
    list[int] | None,
    typer.Option(help="Tokens of it in a step; default: those that the engine takes, 8, 32, 64, 128.", min=1),
]


@benchmark(3)
def stall(
    repeats: int,
    seed: int,
    tokens: Annotated[int, typer.Option(help="Of the prefill.", min=512)] = 4096,
    budget: Budgets = None,
) -> Measure:
    """Time the tokens of eight speakers, undisturbed and during a long prefill, and that prefill, for several sizes
    of its chunks."""
    from tools.bench.stall import BUDGETS
    from tools.bench.stall import stall as measure

    return lambda engine, tell: measure(engine, tokens, budget or BUDGETS, repeats, seed, tell)


@benchmark(5)
def roofline(repeats: int, seed: int, context: Context = 512) -> Measure:
    """Time steps, and compare with the least time that they can take on this machine."""
    from tools.bench.roofline import roofline as measure

    return lambda engine, tell: measure(engine, context, repeats, seed, tell)


@benchmark(3, plot=False)
def room(
    repeats: int,
    seed: int,
    store: Annotated[int, typer.Option(help="Tokens that the store holds, in every arm.", min=1024)] = 8192,
    words: Annotated[int, typer.Option(help="Of the document that all agents read.", min=1)] = 100,
    limit: Annotated[
        float | None,
        typer.Option(help="Seconds; default: twice the first token of 16 agents with the baseline.", min=0.0),
    ] = None,
) -> Measure:
    """Count the agents whose first tokens arrive in time, with stores of equal size in bytes."""
    from agentcho.lab.bench.arms import OURS
    from tools.bench.room import room as measure

    return lambda engine, tell: measure(engine, list(OURS), words, limit, repeats, seed, tell)


@benchmark(9, plot=False)
def stream(
    repeats: int,
    seed: int,
    tokens: Annotated[int, typer.Option(help="Of the prompt, at least.", min=16)] = 1440,
    pieces: Annotated[int, typer.Option(help="In which it comes.", min=2)] = 12,
) -> Measure:
    """Time the first token after a prompt that arrives in pieces, and after one that arrives at once."""
    from tools.bench.stream import stream as measure

    return lambda engine, tell: measure(engine, tokens, pieces, repeats, seed, tell)


def gpu_day(ctx: typer.Context) -> None:
    """Measure one GPU in ten minutes, into one file."""
    from tools.bench.gpu_day.program import main

    raise typer.Exit(main(ctx.args))


PEER_PYTHON = "The Python of an environment with transformers[serving]; default: the command `transformers`, if any."
CLIENTS_PYTHON = "The Python of an environment with AutoGen; default: the one that `make clients` makes."


def talk(
    model: Model = UNDERSTUDY,
    dtype: Annotated[str, typer.Option(help="The same for all servers.")] = "float32",
    peer_python: Annotated[Path | None, typer.Option(help=PEER_PYTHON, show_default=False)] = None,
    clients_python: Annotated[Path | None, typer.Option(help=CLIENTS_PYTHON, show_default=False)] = None,
    repeats: Repeats = 9,
    seed: Seed = 1,
    json_: Json = None,
) -> None:
    """Time a conversation of three AutoGen agents on `transformers serve` and on `agentcho serve`."""
    from agentcho.lab.bench.servers import version_of
    from tools.bench import talk as talking

    clients = clients_python or talking.CLIENTS
    asked = Benchmark("talk", model, dtype, repeats, seed, Files(json_), program=PROGRAM)
    with progress("bench talk", sys.stderr) as told:
        measured = talking.Asked(model, dtype, repeats, seed, peer_python, clients)
        found = talking.talks(measured, told.tell)
    there = {"peer": version_of(peer_python), "client": talking.version_of(clients)}
    _finish(asked, asked.result({"model": model, "dtype": dtype, "device": "cpu"}, there, found))


def cluster(
    games: Annotated[int, typer.Option(help="Of the understudy, by two workers and by two processes.", min=4)] = 40,
    short: Annotated[int, typer.Option(help="Short games of the fake engine.", min=100)] = 10_000,
    repeats: Repeats = 3,
    seed: Seed = 1,
    json_: Json = None,
) -> None:
    """Compare two Ray workers with two plain processes, and measure the driver's cost of many short games."""
    from tools.bench.cluster import overhead, pace

    with progress("bench cluster", sys.stderr) as told:
        found, taken = pace(games, repeats, seed, told.tell), overhead(short, seed, told.tell)
    measured = {"pace": found._asdict() | {"ratio": found.ratio}, "driver": taken._asdict() | {"share": taken.share}}
    typer.echo(f"two workers reach {found.ratio:.2f} of what two plain processes reach, at {games} games")
    typer.echo(f"the driver took {taken.share:.1%} of its workers' processor time at {short} short games,")
    typer.echo(f"and {taken.early:.0f} MiB of memory after a tenth of them, {taken.late:.0f} MiB at the end")
    if json_ is not None:
        json_.write_text(json.dumps(machine_info() | versions() | source_digests() | measured, indent=1) + "\n")


def agentdojo(
    benchmark: Annotated[
        list[str] | None, typer.Option(help="Versions of its tasks; default: two.", show_default=False)
    ] = None,
    json_: Json = None,
) -> None:
    """Play AgentDojo's tasks and attacks without a model: how many tasks still work, and how many attacks succeed."""
    from tools.bench.dojo import installed

    installed()
    from tools.bench.dojo.cases import VERSIONS
    from tools.bench.dojo.measure import measure

    versions_asked = benchmark or list(VERSIONS)
    command = " ".join([PROGRAM, "agentdojo", *(f"--benchmark {each}" for each in benchmark or ())])
    with warnings.catch_warnings(), progress("bench agentdojo", sys.stderr) as told:
        warnings.simplefilter("ignore")
        found = measure(versions_asked, command, told.tell)
    for version in found.benchmarks:
        tasks, attacks = sum(version.tasks.values()), sum(version.attacks.values())
        for arm in version.arms:
            kept, through = sum(arm.kept.values()), sum(arm.through.values())
            typer.echo(f"{version.version}, {arm.arm}: {kept} of {tasks} tasks, {through} of {attacks} attacks through")
    if json_ is not None:
        json_.write_text(found.model_dump_json(indent=1) + "\n")


def kv(
    scenario: Annotated[str, typer.Argument(help="Whose games are played and forced.")] = "prisoners-dilemma",
    games: Annotated[int, typer.Option(help="How many.", min=1)] = 200,
    model: Model = UNDERSTUDY,
    dtype: Annotated[str, typer.Option(help="Of the model, and of what is compared with 8 bits.")] = "float32",
    seed: Seed = 1,
    json_: Json = None,
) -> None:
    """Measure what 8-bit keys and values change: nats per token on forced words, and scores. 2 bits are the positive
    control, whose effect must be visible."""
    from tools.bench import kv as measuring

    asked = measuring.Asked(scenario, games, seed, model, dtype)
    with progress("bench kv", sys.stderr) as told:
        found = measuring.measure(asked, told.tell)
    typer.echo("\n".join(found.lines()))
    if json_ is not None:
        how = {"command": f"{PROGRAM} kv {scenario} --games {games} --seed {seed}", "asked": asked._asdict()}
        json_.write_text(
            json.dumps(how | machine_info() | versions() | source_digests() | dict(measuring.to_json(found)), indent=1)
            + "\n"
        )


def delta(
    traces: Annotated[
        list[Path], typer.Option(help="Recorded conversations with private messages; one or more files.")
    ],
    limit: Annotated[int, typer.Option(help="How many of each file are replayed.", min=1)] = 8,
    model: Model = UNDERSTUDY,
    dtype: Annotated[str, typer.Option(help="Of the model.")] = "float32",
    json_: Json = None,
) -> None:
    """Measure how far the two encodings of a message differ under `enforce`, and what storing one as its difference
    from the other would save."""
    from agentcho.runner.engine import Engine
    from tools.bench import delta as measuring

    with progress("bench delta", sys.stderr) as told:
        found = measuring.measure(Engine.load(model, "cpu", dtype), traces, limit, told.tell)
    for each in found:
        typer.echo("\n".join(each.lines()))
    if json_ is not None:
        files = " ".join(f"--traces {file.name}" for file in traces)
        how = {"command": f"{PROGRAM} delta --model {model} --dtype {dtype} {files} --limit {limit}", "model": model}
        sets = {"sets": measuring.to_json(found)}
        json_.write_text(json.dumps(how | machine_info() | versions() | source_digests() | sets, indent=1) + "\n")


def agentleak(
    file: Annotated[Path, typer.Argument(help="AgentLeak's recorded workflows, as a file of traces.")],
    games: Annotated[int | None, typer.Option("-n", help="The first so many; default: all.", min=2)] = None,
    model: Model = UNDERSTUDY,
    repeats: Annotated[int, typer.Option(help="How often first tokens are timed.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Of which workflow's vault takes whose place.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is kept in FILE.part.")] = False,
    json_: Json = None,
) -> None:
    """Replay recorded office workflows: audit verdicts, bits that change after a vault is swapped, next tokens, first
    tokens."""
    from tools.bench import agentleak as offices

    asked = offices.Asked(file, games, model, repeats, seed)
    with progress("bench agentleak", sys.stderr) as told:
        kept = offices.begin(asked, json_, resume)
        found = offices.measured(asked, kept, f"{PROGRAM} agentleak", told.tell)
    typer.echo("\n".join(offices.lines(found)))
    if json_ is not None:
        json_.write_text(found.model_dump_json(indent=1) + "\n")
        kept.done()


def threads(
    scenario: Annotated[str, typer.Argument(help="What is played.")] = "prisoners-dilemma",
    model: Model = UNDERSTUDY,
    max_tokens: Annotated[int, typer.Option(help="Sampled tokens a message at most.", min=16)] = 60,
    busy: Annotated[
        int | None, typer.Option(help="Cores that others keep busy; default: all.", min=0, show_default=False)
    ] = None,
    repeats: Repeats = 5,
    json_: Json = None,
) -> None:
    """Time a whole `agentcho run` while all cores are busy: with the number of threads that agentcho chooses, with one
    thread, and with all, interleaved."""
    from tools.bench import threads as measuring

    cores, arms = busy if busy is not None else os.cpu_count() or 1, measuring.of_machine()
    with progress("bench threads", sys.stderr) as told:
        found = measuring.measure(arms, measuring.playing(scenario, model, max_tokens), repeats, cores, told.tell)
    typer.echo("\n".join(found.lines()))
    if json_ is not None:
        how = {"command": f"{PROGRAM} threads {scenario} --model {model} --repeats {repeats}", "busy": cores}
        seconds = {"arms": arms, "seconds": found.seconds}
        json_.write_text(json.dumps(how | machine_info() | versions() | source_digests() | seconds, indent=1) + "\n")


def vllm(
    model: Model = "smollm2",
    dtype: Dtype = "float32",
    workflow: Played = None,
    traces: Annotated[
        list[Path] | None, typer.Option(help="Files of recorded workflows; with --workflow, both.", show_default=False)
    ] = None,
    games: Annotated[int, typer.Option("-n", help="So many of each file.", min=1)] = 1,
    scale: Scale = 0.3,
    repeats: Repeats = 3,
    seed: Seed = 1,
    json_: Json = None,
) -> None:
    """Compare engine vllm under enforce and audit with plain vLLM and its prefix cache, with agentcho's own engine, and
    with `generate` of transformers, on equal weights and forced words. Needs an environment with vLLM."""
    from agentcho.integrations.vllm.versions import installed
    from tools.bench.vllm.arms import engines
    from tools.bench.vllm.measure import compare

    subjects = beside_vllm(workflow or (), traces or (), games, seed, scale)
    asked = Benchmark("vllm", model, dtype, repeats, seed, Files(json_), program=PROGRAM)
    with progress("bench vllm", sys.stderr) as told, engines(model, dtype, context=4096) as on:
        found = compare(on, subjects, repeats, seed, told.tell)
        where = {key: on.own.fingerprint[key] for key in ("model", "dtype", "device")}
        there = {"vllm": installed()}
    _finish(asked, asked.result(where, there, found, scale=scale))


def beside_vllm(
    named: Sequence[str], traces: Sequence[Path], games: int, seed: int, scale: float
) -> Sequence[Workload]:
    """The workloads of `vllm`: workflows of the paper by name, and the first `games` of each file of traces. Three of
    the paper if none of them is given."""
    from itertools import islice

    from agentcho.lab.bench.plans import traced
    from agentcho.records.trace import read_traces

    recorded = (each for file in traces for each in islice(read_traces(file), games))
    chosen = named or (() if traces else ("prisoners-dilemma", "tree-of-thoughts", "parallel-debate"))
    return [*(paper(chosen, seed, scale) if chosen else ()), *traced(recorded, scale)]


OTHERS: tuple[Callable[..., None], ...] = (talk, cluster, agentdojo, agentleak, delta, kv, threads, vllm)
"""Commands that do not measure one engine."""

"""`agentcho bench peers`: our engine beside llama.cpp's server, or a user's own server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from agentcho.config import QuantizationOptions, TemplateChecks
from agentcho.display.progress import progress
from agentcho.lab.commands import workflows as speed

if TYPE_CHECKING:
    from agentcho.lab.bench.plans import Workload

OURS = (
    "'understudy', 'smollm2', a folder, or a Hugging Face id; default: understudy. With --server: one of our models "
    "to measure beside it, or none."
)
BINARY = "llama.cpp's llama-server; default: that of `make llama`, or the one on the search path."
TYPE = "llama.cpp's type of weights, such as Q4_K_M; default: the type with the same bits as --weights."
FLOWS = "One or more of the paper's workflows; default: a parallel debate of --agents, and with --server {}."
TRACES = "Workflows of these trace files instead of random words."
SCALED = "Lengths of texts, relative to those that an 8B model writes; default: 0.25, and 1 for trace files."
RECORDED = ("prisoners-dilemma", "tree-of-thoughts")
Server = Annotated[
    str | None, typer.Option(metavar="URL", help="Measure this OpenAI-compatible server instead.", show_default=False)
]
ServerModel = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Model of the server. Default: the first one it lists.", show_default=False),
]
ServerKey = Annotated[
    str | None,
    typer.Option(metavar="VARIABLE", help="Environment variable that holds the server's API key.", show_default=False),
]


class Own(NamedTuple):
    """A user's own server, and the number of tokens per answer."""

    url: str
    model: str | None
    key_env: str | None
    tokens: int


class Beside(NamedTuple):
    """llama.cpp's server, its type of weights, and its number of slots."""

    server: Path | None
    kind: str | None
    slots: int


def peers(
    *,
    model: Annotated[str | None, typer.Option(help=OURS, show_default=False)] = None,
    shape: speed.Shape = None,
    dtype: speed.Dtype = "auto",
    quantized: speed.Quantized,
    checked: speed.Checked,
    agents: Annotated[
        int, typer.Option(help="Number of agents in the debate. The peer gets one slot for each.", min=2, max=64)
    ] = 8,
    workflow: Annotated[
        list[str] | None, typer.Option(help=FLOWS.format(" and ".join(RECORDED)), show_default=False)
    ] = None,
    traces: Annotated[list[Path] | None, typer.Option(help=TRACES, show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of workflows read from each trace file.", min=1)] = 1,
    scale: Annotated[float | None, typer.Option(help=SCALED, min=0.01, show_default=False)] = None,
    llama_server: Annotated[Path | None, typer.Option(metavar="FILE", help=BINARY, show_default=False)] = None,
    peer_type: Annotated[str | None, typer.Option(metavar="TYPE", help=TYPE, show_default=False)] = None,
    server: Server = None,
    server_model: ServerModel = None,
    server_key_env: ServerKey = None,
    tokens: Annotated[
        int, typer.Option(help="With --server: number of tokens per answer when measuring speed.", min=2)
    ] = 64,
    repeats: speed.Repeats = 3,
    seed: speed.Seed = 1,
    json_: speed.Json = None,
) -> None:
    """Compare the engine with llama.cpp's server on the same weights, bits and threads.

    It times one row, a prompt of 512 tokens and eight agents; or workflows on a server of your own."""
    if workflow and traces:
        raise typer.BadParameter("give --workflow or --traces, not both")
    scale = scale or (1.0 if traces else 0.25)
    recorded = speed.traced(traces or (), limit, scale)
    named = model if shape is None else speed.named("", shape)
    asked = speed.Benchmark(
        bench="peers",
        model=named or "",
        dtype=dtype,
        repeats=repeats,
        seed=seed,
        files=speed.Files(speed.result_file(json_, "peers")),
        device="cpu",
    )
    if server is not None:
        if bits := [name.replace("_", "-") for name, value in quantized.items() if value is not None]:
            raise typer.BadParameter("cannot be combined with --server; leave it out", param_hint=f"--{bits[0]}")
        own = Own(server, server_model, server_key_env, tokens)
        asked = asked._replace(checked=TemplateChecks(**checked))
        _own(asked, own, recorded or speed.paper(workflow or RECORDED, seed, scale), scale)
        return
    if server_model is not None or server_key_env is not None:
        raise typer.BadParameter("--server-model and --server-key-env need --server; add it")
    asked = asked._replace(
        model=named or speed.UNDERSTUDY,
        quantized=QuantizationOptions(**quantized),
        checked=TemplateChecks(**checked),
    )
    drawn = cache(partial(_subjects, workflow, agents, seed, scale))
    _llama(asked, (lambda _: recorded) if recorded else drawn, Beside(llama_server, peer_type, agents), scale)


def _llama(asked: speed.Benchmark, subjects: Callable[[int], Sequence[Workload]], beside: Beside, scale: float) -> None:
    from agentcho.lab.bench.peers.llama import Peer
    from agentcho.lab.bench.peers.measured import PeersOptions
    from agentcho.lab.bench.peers.measured import peers as measure
    from agentcho.lab.bench.peers.targets import targets
    from agentcho.lab.display import peers as tables

    peer = Peer.found(beside.server)
    with progress("bench peers", sys.stderr) as told:
        how = PeersOptions(
            model=asked.model,
            dtype=asked.kind,
            weights=asked.quantized.weights,
            workloads=subjects,
            repeats=asked.repeats,
            seed=asked.seed,
            slots=beside.slots,
            kind=beside.kind,
        )
        engine, found = measure(how, peer, partial(asked.engine, told.tell), told.tell)
    result = asked.found(engine, found.figures, found.peer, scale=scale)
    result = result.model_copy(update={"targets": tuple(targets(result))})
    asked.finish(result, speed.text(tables.peers(result)))


def _subjects(workflow: list[str] | None, agents: int, seed: int, scale: float, number: int) -> Sequence[Workload]:
    """The workloads of one repeat, with texts of its own."""
    from agentcho.lab.bench import plans

    drawn = 1000 * seed + number
    return plans.paper(workflow, drawn, scale) if workflow else plans.debate(agents, drawn, scale)


def _own(asked: speed.Benchmark, own: Own, subjects: Sequence[Workload], scale: float) -> None:
    from agentcho.lab.bench.remote import beside, reached
    from agentcho.lab.bench.serving import ServingOptions
    from agentcho.lab.display import peers as tables

    remote = reached(own.url, own.model, own.key_env)
    with progress("bench peers", sys.stderr) as told:
        how = ServingOptions(
            model=asked.model,
            dtype=asked.dtype,
            tokens=own.tokens,
            quote="recorded",
            repeats=asked.repeats,
            seed=asked.seed,
            checked=asked.checked,
        )
        found = beside(remote=remote, asked=how, own=bool(asked.model), subjects=subjects, tell=told.tell)
    where = {"model": remote.model, "dtype": "as served", "device": "as served"}
    there = {"tokens": str(own.tokens)} | ({"beside": asked.model} if asked.model else {})
    result = asked.result(where, there, found, scale=scale)
    asked.finish(result, speed.text(tables.servers(result)))

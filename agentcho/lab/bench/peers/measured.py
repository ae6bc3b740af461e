"""Measures our engine and llama.cpp's server in turns, with the same weights, bits and number of threads.

The weights are written to a GGUF file, and both are verified to compute the same network at float32 before anything is
timed. The peer runs with its best settings, with and without n-gram drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from agentcho.config import Bits
from agentcho.lab.bench.arms import AUDIT, BASELINE, ENFORCE
from agentcho.lab.bench.arms import arm as arm_of
from agentcho.lab.bench.measure import Timed, measure, runs_of
from agentcho.lab.bench.peers import rows, same
from agentcho.lab.bench.peers.gguf import check_writable, write_gguf
from agentcho.lab.bench.peers.llama import GUESSES, Peer, Served, Setting, complete, serving
from agentcho.lab.bench.peers.slots import empty_slots, play_slots, slot_calls, speakers, spoken
from agentcho.lab.bench.peers.targets import GUESSING, LLAMA, OURS, ROW
from agentcho.lab.bench.plans import Workload
from agentcho.lab.bench.prompts import prompts
from agentcho.lab.bench.result import Figures
from agentcho.lab.bench.words import with_words
from agentcho.lab.timing import alone
from agentcho.protocol.progress import ProgressCallback, part
from agentcho.records.trace import Workflow
from agentcho.runner.model.device import DevicePlacement
from agentcho.runner.model.model import Model, ModelSource, find

FEW: Mapping[str, str] = {"int8": "Q8_0", "int4": "Q4_0"}
WHOLE: Mapping[str, str] = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""llama.cpp's types for our quantized weights, and for unquantized ones."""
ATTENTION = ("on", "off")
"""The peer's fused attention: both settings are timed, and the faster one is used."""
UNCOPIED = ("--cache-ram", "0")
PAGE, STAGES = 256, 3


class PeersOptions(NamedTuple):
    """What is measured: a model in a dtype and bits; `workloads` by the number of the repeat, each repeat with words of
    its own, the warm-up first; the number of slots; `kind`: llama.cpp's type (None: the one with the same bits)."""

    model: str
    dtype: str
    weights: Bits | None
    workloads: Callable[[int], Sequence[Workload]]
    repeats: int
    seed: int
    slots: int = 8
    kind: str | None = None

    @property
    def source(self) -> ModelSource:
        """The source of the weights, after checking that they can be written. `ConfigError`."""
        source = find(self.model)
        check_writable(source.config, self.model)
        return source

    def type_of(self, dtype: str) -> str:
        """llama.cpp's type for weights that our engine has in this dtype and these bits."""
        return self.kind or (WHOLE[dtype] if self.weights is None else FEW[self.weights])


class Written(NamedTuple):
    """The peer's file, and what writing it found: whether it computes the same, its type, and the system that the peer
    was built for."""

    file: Path
    same: same.Same
    kind: str
    system: str


class Found(NamedTuple):
    """All figures, and the description of the peer for the result."""

    figures: list[Figures]
    peer: Mapping[str, str]


def peers(asked: PeersOptions, peer: Peer, load: Callable[[], Any], tell: ProgressCallback) -> tuple[Any, Found]:
    """Write the weights, verify them, load our engine with `load`, and measure; also returns our engine. `ConfigError`:
    the peer does not run here, or computes something else."""
    source = asked.source
    with TemporaryDirectory(prefix="agentcho-peers-") as folder, ExitStack() as stack:
        tell("stages (writing the peer's file, and proving it)", 0, STAGES)
        written = write(asked, source, peer, Path(folder))
        tell("stages (loading)", 1, STAGES)
        engine = load()
        tell("stages (choosing the peer's attention)", 2, STAGES)
        setting = _setting(asked, engine.framing)
        setting = quickest(peer, written.file, setting, engine.framing)
        started = {LLAMA: stack.enter_context(serving(peer, written.file, setting))}
        if peer.knows(GUESSES):
            started[GUESSING] = stack.enter_context(serving(peer, written.file, setting._replace(guesses=True)))
        found = _rows(asked, engine, started, tell)
        found += _workflows(asked, engine, started, tell)
    _, *options = peer.command(Path(f"{written.kind}.gguf"), 0, setting)
    port = options.index("--port")
    said = {
        "peer": peer.version,
        "peer build": peer.flags,
        "peer type": written.kind,
        "peer options": " ".join(options[:port] + options[port + 2 :]),
        "peer system": written.system,
        "same network": f"{written.same.agree:.0%} of {written.same.tokens} likeliest tokens, "
        f"log-probabilities within {written.same.apart:.1e} nats at float32",
    }
    return engine, Found(found, said)


@alone
def write(asked: PeersOptions, source: ModelSource, peer: Peer, folder: Path) -> Written:
    """Write the weights in the peer's type, after verifying at float32 that both compute the same."""
    network: Any = Model.load(source, DevicePlacement("cpu", asked.dtype)).network
    kind = asked.type_of(str(next(network.parameters()).dtype).removeprefix("torch."))
    network = network.float()
    whole, made = folder / "whole.gguf", folder / f"{kind}.gguf"
    write_gguf(network, asked.model, whole)
    prompt = same.prompt_of(source.config.vocab_size, asked.seed)
    setting = Setting(torch.get_num_threads(), 1, PAGE, wishes=same.EXACT)
    with serving(peer, whole, setting) as served:
        peeked = same.peek(served.port, prompt)
    found = same.compared(network, peeked)
    same.check_same(found, asked.model)
    if kind == WHOLE["float32"]:
        return Written(whole, found, kind, served.system)
    peer.quantize(whole, kind, made, torch.get_num_threads())
    whole.unlink()
    return Written(made, found, kind, served.system)


def quickest(peer: Peer, file: Path, setting: Setting, framing: Any) -> Setting:
    """The setting with or without fused attention, whichever takes less time for a prompt and a quarter as many
    steps."""
    taken = {}
    for fused in ATTENTION:
        tried = setting._replace(wishes=(*setting.wishes, ("-fa", fused)))
        with serving(peer, file, tried) as served:
            texts = rows.Rows(framing, -1)
            both = [rows.theirs(served.port, texts) for _ in range(2)]
        taken[tried] = both[-1]["prefill"] + rows.PREFILL / 4 * both[-1]["step"]
    return min(taken, key=lambda tried: taken[tried])


def _setting(asked: PeersOptions, framing: Any) -> Setting:
    """Room in each slot for the longest prompt and its text, or one row, in whole pages. If each agent has its own
    slot, the server's cache of prompts in RAM is turned off, because no request would use it."""
    flows = [each.workflow for number in range(asked.repeats) for each in asked.workloads(number)]
    calls = (call for flow in flows for call in prompts(flow, framing).values())
    most = max((len(call.prompt) + len(call.text) for call in calls), default=0)
    room = -(-max(most, rows.PREFILL + rows.STEPS) // PAGE) * PAGE + PAGE
    own = all(len(speakers(flow)) <= asked.slots for flow in flows)
    return Setting(torch.get_num_threads(), asked.slots, room, wishes=(UNCOPIED,) if own else ())


def _rows(asked: PeersOptions, engine: Any, started: Mapping[str, Served], tell: ProgressCallback) -> list[Figures]:
    takes = {OURS: partial(rows.ours, engine.adapted(None), rows.Rows(engine.framing, asked.seed))}
    for name, served in started.items():
        takes[name] = partial(rows.theirs, served.port, rows.Rows(engine.framing, asked.seed))
    timed = {name: Timed(take, take) for name, take in takes.items()}
    return measure(ROW, timed, asked.repeats, tell)


def _workflows(
    asked: PeersOptions, engine: Any, started: Mapping[str, Served], tell: ProgressCallback
) -> list[Figures]:
    names, found = (AUDIT, ENFORCE, BASELINE, *started), list[Figures]()
    subjects, each = asked.workloads(0), runs_of((AUDIT, ENFORCE, BASELINE, *started), asked.repeats)
    for place, subject in enumerate(subjects):
        timed = {}
        for name in names:
            play = (
                partial(_theirs, started[name].port, engine, asked.slots)
                if name in started
                else partial(_ours, name, engine)
            )
            timed[name] = Timed(partial(play, subject.warm), partial(next, _plays(asked, place, play)))
        told = part(tell, place * each, len(subjects) * each)
        found += with_words(engine, subject.workflow, measure(subject.name, timed, asked.repeats, told))
    return found


def _plays(
    asked: PeersOptions, place: int, play: Callable[[Workflow], Mapping[str, float]]
) -> Iterator[Mapping[str, float]]:
    """The plays of all repeats of one subject."""
    for number in range(asked.repeats):
        yield play(asked.workloads(number)[place].workflow)


def _ours(name: str, engine: Any, workflow: Workflow) -> Mapping[str, float]:
    taken = arm_of(name)(engine, workflow, True).figures()
    return taken | spoken(sum(len(each.text) for each in prompts(workflow, engine.framing).values()), taken["seconds"])


def _theirs(port: int, engine: Any, slots: int, workflow: Workflow) -> Mapping[str, float]:
    calls, ask = slot_calls(workflow, engine.framing, slots), partial(complete, port)
    empty_slots(calls, slots, ask)
    return play_slots(calls, ask).figures()

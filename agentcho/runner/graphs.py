"""Steps of running rows alone on CUDA, captured once as a graph and replayed, so that Python and kernel launches cost
nothing.

A graph serves every step with as many rows in the tensors of the same pools. What differs from step to step is written
into one small tensor before each replay. The first step of a kind runs without a graph. So does the second, which is
then captured. The third runs both ways, and its logits must agree. Does not know: calls, what comes of logits.
"""

from __future__ import annotations

import gc
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from agentcho.engine.call_layout import Segment
from agentcho.errors import EngineFailed
from agentcho.runner.batch import Batch, DecodeGroup, Layers, grouped
from agentcho.runner.kv.decode_kv import Slot, SlotPool
from agentcho.runner.model.model import Model

MOST = 16
"""How many graphs are kept. The one that was not used for longest goes first."""
NOTED = 256
"""Kinds of steps that are remembered to have been, before any is forgotten."""
CLOSE = 1 / 64
"""How far logits of a graph may be from those that were computed without, as a share of the largest."""

Forward = Callable[[], Tensor]
Capture = Callable[[Forward], Forward]
"""Takes a forward over tensors that stay where they are, and returns what does all its work again and gives its logits,
in a tensor that the next replay overwrites."""


Kind = tuple[tuple[int, ...], ...]
"""Of each pool: itself, its rows and slots, how many of them feed a token, how far their slots are read, and which
tensors of pages, where it reads those. Equal where the same graph serves."""


@dataclass(eq=False)
class _Graph:
    """One kind of step: the table that says where its rows are, what replays it, and whether its logits were
    compared."""

    table: Tensor
    run: Forward
    proved: bool = False


class CudaGraphs:
    """The graphs of one engine. `capture` is CUDA's own, except in tests. `broken`: why no more graphs are made."""

    def __init__(self, model: Model, layers: Layers, capture: Capture | None = None) -> None:
        self._model, self._layers = model, layers
        self._capture = _Cuda(model.device) if capture is None else capture
        self._seen: set[Kind] = set()
        self._failed: set[Kind] = set()
        self._graphs: OrderedDict[Kind, _Graph] = OrderedDict()
        self.broken: str | None = None

    def run(self, pools: dict[SlotPool, list[Segment]]) -> tuple[list[Segment], Tensor]:
        """One forward of single tokens of running rows. Returns the segments in the order of their rows of logits, and
        these rows. `EngineFailed`: a graph gave other logits than its step; what the step wrote must not be used."""
        groups, columns = grouped(pools)
        order = [segment for group in groups for segment in group.segments]
        kind = tuple(_kind(group, self._layers.pages.moved) for group in groups)
        logits = self._logits(kind, order, torch.tensor(columns))
        for segment in order:
            assert isinstance(segment.slot, Slot)
            segment.slot.length += 1
        wanted = [place for place, segment in enumerate(order) if segment.wanted]
        return order, logits[torch.tensor(wanted, device=logits.device, dtype=torch.long)]

    def _logits(self, kind: Kind, segments: Sequence[Segment], table: Tensor) -> Tensor:
        """The logits of every row, `[rows, vocab]`."""
        graph = self._graphs.get(kind)
        if graph is not None and graph.proved:
            self._graphs.move_to_end(kind)
            graph.table.copy_(table)
            return graph.run()
        there = table.to(self._model.device)
        logits = self._forward(segments, there)
        if graph is not None:
            self._prove(graph, there, logits)
        elif kind in self._seen and kind not in self._failed and self.broken is None:
            self._keep(kind, segments, there)
        self._note(kind)
        return logits

    def _forward(self, segments: Sequence[Segment], table: Tensor) -> Tensor:
        batch = Batch(segments, self._layers, table=table)
        return self._model.forward(batch.ids, batch.positions, batch.wanted, batch)

    def _note(self, kind: Kind) -> None:
        if len(self._seen) == NOTED:
            self._seen.clear()
        self._seen.add(kind)

    def _keep(self, kind: Kind, segments: Sequence[Segment], table: Tensor) -> None:
        """Capture this step, for later steps of its kind. What fails is tried once more: something else may have used
        the device meanwhile. Where that fails too, steps of this kind go without a graph."""
        forward = partial(self._forward, segments, table)
        try:
            try:
                run = self._capture(forward)
            except RuntimeError:
                run = self._capture(forward)
        except RuntimeError as error:
            if not self._failed:
                why = f"this model's forward cannot be captured ({str(error).splitlines()[0]})"
                warnings.warn(f"steps of this kind go without a CUDA graph, and are slower: {why}", stacklevel=2)
            self._failed.add(kind)
            return
        self._graphs[kind] = _Graph(table, run)
        while len(self._graphs) > MOST:
            self._graphs.popitem(last=False)

    def _prove(self, graph: _Graph, table: Tensor, expected: Tensor) -> None:
        """Replay a step that is not the captured one, and compare its logits."""
        graph.table.copy_(table)
        gap = float((graph.run() - expected).abs().max() / expected.abs().max())
        if not gap <= CLOSE:
            self._break(f"a captured step gave other logits, by {gap:.2g} of the largest")
            raise EngineFailed(
                f"a captured CUDA graph gave logits that are off by {gap:.2g} of the largest; this engine uses no "
                "graphs from now on. Run it again, and report it"
            )
        graph.proved = True

    def _break(self, why: str) -> None:
        self.broken = why
        self._graphs.clear()
        warnings.warn(f"steps go without CUDA graphs, and are slower: {why}", stacklevel=2)


def _kind(group: DecodeGroup, moved: int) -> tuple[int, ...]:
    pool = group.pool
    pages = moved if pool.tables is not None else 0
    return pool.serial, len(pool.positions), len(pool.slots), len(group.segments), group.reach(fixed=True), pages


class _Cuda:
    """Captures forwards on one device, which have run there before. All graphs of an engine share a stream and a pool
    of memory, because only one runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._shared: tuple[Any, Any] | None = None

    def __call__(self, forward: Forward) -> Forward:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            stream, pool = self._shared or _stream_and_pool()
            self._shared = None  # what a capture that failed leaves of both is not used again
            with (
                torch.cuda.stream(stream),
                _uncollected(),
                torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"),
            ):
                logits = forward()
        self._shared = stream, pool

        def replay() -> Tensor:
            with torch.cuda.device(self._device):
                graph.replay()
            return logits

        return replay


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector: it may free a graph, which no stream may do while another is captured."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _stream_and_pool() -> tuple[Any, Any]:
    return torch.cuda.Stream(), torch.cuda.graph_pool_handle()  # type: ignore[no-untyped-call]

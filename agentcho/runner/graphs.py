"""Captures forwards of running rows on CUDA as graphs and replays them, without the cost of Python and kernel launches.

A graph serves rows that read their contexts where they are stored, whatever they contain and whatever else runs in the
same step: the number of tokens is padded to a power of two, and what differs between steps is written into one small
table before each replay. Graphs for few tokens are captured when a model is loaded, others when they are first needed.
The first step of each kind runs both ways, and its logits must agree. Independent of calls and of how logits are used.
"""

from __future__ import annotations

import gc
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentcho.engine.call_layout import Segment
from agentcho.errors import EngineFailed
from agentcho.runner.batch import LaneBatch, LaneRows, Layers, in_lanes, in_place
from agentcho.runner.kv.lanes import LANE, LanePool
from agentcho.runner.model.model import Model

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of tokens for which graphs are captured when a model is loaded."""
LARGEST = 256
"""The most tokens in a step that uses a graph. Larger steps compute so much that launches cost little in comparison."""
NARROWEST = 256
"""The number of stored tokens that a graph reads is padded to this number times a power of four, and the number of
tokens in lanes to the size of a block times a power of four."""
MOST = 64
"""The most graphs that are kept. The least recently used one is dropped first."""
CLOSE = 1 / 64
"""The largest allowed difference between the logits of a graph and those of an ordinary forward, as a share of the
largest logit."""

Forward = Callable[[], Tensor]
Capture = Callable[[Forward], Forward]
"""Takes a forward over tensors that stay in place, and returns a function that replays all its work and returns its
logits, in a tensor that the next replay overwrites."""


class Kind(NamedTuple):
    """Equal kinds share one graph: the number of tokens, the most tokens that each reads where they are stored and in
    its lanes, and which tensors hold the lanes, tables and pages."""

    tokens: int
    stored: int
    own: int
    lanes: int
    pages: int


@dataclass(eq=False)
class _Graph:
    """The captured forward of one kind: the table of its tokens, the function that replays it, and whether its logits
    were compared."""

    table: Tensor
    run: Forward
    proved: bool = False


class CudaGraphs:
    """The graphs of one engine. `capture` is CUDA's own, except in tests. `broken`: why graphs are no longer used, or
    None."""

    def __init__(self, model: Model, layers: Layers, capture: Capture | None = None) -> None:
        self._model, self._layers = model, layers
        self._capture = _Cuda(model.device) if capture is None else capture
        self._graphs: OrderedDict[Kind, _Graph] = OrderedDict()
        self._failed: set[Kind] = set()
        self.broken: str | None = None

    def taken(self, segments: Sequence[Segment]) -> list[Segment]:
        """The segments that a graph serves; none if they have too many tokens in total."""
        if self.broken is not None:
            return []
        found = [each for each in segments if in_place(each) and not each.adapter]
        return found if sum(len(each.ids) for each in found) <= LARGEST else []

    def prepare(self, pool: LanePool, captured: Callable[[int], object] = lambda count: None) -> None:
        """Capture the graphs of few tokens that read little, over a pool in which no row runs. This also compiles
        missing kernels. `captured` is called after each graph with the number of `SIZES` done so far."""
        for count, tokens in enumerate(SIZES, 1):
            kind = self._kind(pool, tokens, 0, 0)
            self._forward(pool, kind, self._empty(tokens))
            self._keep(pool, kind)
            captured(count)

    def run(self, segments: Sequence[Segment]) -> tuple[list[Segment], Tensor]:
        """Run one forward of segments that were `taken`. Returns them in the order of their rows of logits, and the
        rows of the wanted tokens. Slots are not updated. Raises `EngineFailed` if a graph gave other logits than its
        step; what the step wrote must then not be used."""
        pool = segments[0].slot.pool  # type: ignore[union-attr]
        group, columns, wanted = in_lanes(pool, segments)
        count = len(columns[0])
        kind = self._kind(pool, count, group.stored, group.width)
        table = torch.zeros(len(columns), kind.tokens, dtype=torch.long)
        table[:, :count] = torch.tensor(columns)
        logits = self._logits(pool, kind, table)
        if wanted == [*range(len(wanted))]:
            return group.segments, logits[: len(wanted)].clone()
        return group.segments, logits[torch.tensor(wanted, dtype=torch.long).to(logits.device)]

    def _logits(self, pool: LanePool, kind: Kind, table: Tensor) -> Tensor:
        """The logits of every token, `[tokens, vocab]`."""
        graph = self._graphs.get(kind)
        if graph is not None and graph.proved:
            self._graphs.move_to_end(kind)
            graph.table.copy_(table)
            return graph.run()
        logits = self._forward(pool, kind, table.to(self._model.device))
        graph = graph or self._keep(pool, kind)
        if graph is not None:
            self._prove(graph, table, logits)
        return logits

    def _kind(self, pool: LanePool, tokens: int, stored: int, own: int) -> Kind:
        return Kind(
            tokens=_filled(1, tokens, 2),
            stored=_filled(NARROWEST, stored, 4),
            own=_filled(LANE, own, 4),
            lanes=pool.serial,
            pages=self._layers.pages.moved,
        )

    def _empty(self, tokens: int) -> Tensor:
        """A table of padding tokens."""
        return torch.zeros(4, tokens, device=self._model.device, dtype=torch.long)

    def _forward(self, pool: LanePool, kind: Kind, table: Tensor) -> Tensor:
        batch = LaneBatch(LaneRows(pool, *kind[:3]), self._layers, table)
        return self._model.forward(batch.ids, batch.positions, batch.wanted, batch)

    def _keep(self, pool: LanePool, kind: Kind) -> _Graph | None:
        """Capture the forward of a kind, which has run before, over padding tokens. A failed capture is tried once
        more, since something else may have used the device meanwhile. If that fails too, steps of this kind run without
        a graph."""
        if kind in self._failed:
            return None
        table = self._empty(kind.tokens)
        forward = partial(self._forward, pool, kind, table)
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
            return None
        for other in [each for each in self._graphs if each[3:] != kind[3:]]:  # their tensors were replaced
            del self._graphs[other]
        self._graphs[kind] = graph = _Graph(table, run)
        while len(self._graphs) > MOST:
            self._graphs.popitem(last=False)
        return graph

    def _prove(self, graph: _Graph, table: Tensor, expected: Tensor) -> None:
        """Replay a step that is not the captured one, and compare its logits. Rows that are not finite, whose calls
        fail by themselves, prove nothing."""
        known = expected.isfinite().all(-1)
        if not known.any():
            return
        graph.table.copy_(table)
        gap = float((graph.run() - expected)[known].abs().max() / expected[known].abs().max())
        if not gap <= CLOSE:
            self._break(f"a captured step gave other logits, by {gap:.2g} of the largest")
            raise EngineFailed(
                f"logits of a captured CUDA graph are off by {gap:.2g} of the largest; this engine no longer uses "
                "graphs. Run it again, and report it"
            )
        graph.proved = True

    def _break(self, why: str) -> None:
        self.broken = why
        self._graphs.clear()
        warnings.warn(f"steps go without CUDA graphs, and are slower: {why}", stacklevel=2)


def _filled(least: int, number: int, by: int) -> int:
    """The first number of the form `least` times a power of `by` that is no smaller than `number`."""
    while least < number:
        least *= by
    return least


class _Cuda:
    """Captures forwards on one device, which have run there before. All graphs of an engine share a stream and a memory
    pool, because only one runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._shared: tuple[Any, Any] | None = None

    def __call__(self, forward: Forward) -> Forward:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            stream, pool = self._shared or _stream_and_pool()
            self._shared = None  # after a failed capture neither is used again
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
    """Disable the garbage collector: it may free a graph, which is not allowed on any stream during a capture."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _stream_and_pool() -> tuple[Any, Any]:
    return torch.cuda.Stream(), torch.cuda.graph_pool_handle()  # type: ignore[no-untyped-call]

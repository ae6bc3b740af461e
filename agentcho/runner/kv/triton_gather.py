"""Gathers and rotates contexts with one kernel per layer, for any number of pieces, where Triton compiles for a GPU.

The layout of tokens is planned once per forward, in blocks of tokens of one piece; the cosines and sines of every shift
are computed once per rotation. Before use, the kernel is compared with the equivalent torch operations (see `trial`),
which replace it where it is refused. It is compiled while a model loads, since the gate gathers in every layer.
Independent of segments and masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentcho.runner.attention.trial import Trial
from agentcho.runner.kv.rope import Rotation

BLOCK = 32
"""The number of tokens that one program copies."""
Pair = tuple[Tensor, Tensor]


class Part(NamedTuple):
    """Consecutive tokens with the same shift: `tokens` of them go to `place` and after. They begin at `first` among the
    rows that are read or, if `new`, among the tokens of this forward."""

    first: int
    place: int
    tokens: int
    shift: int
    new: bool = False


class Layout:
    """Where the tokens of a context lie: in `rows` of pools, part by part. It is planned once per forward."""

    def __init__(self, rows: Tensor, parts: Sequence[Part]) -> None:
        self.rows, self._shifts = rows, list(dict.fromkeys(part.shift for part in parts))
        nth = {shift: number for number, shift in enumerate(self._shifts)}
        found = [
            (part.first + start, part.place + start, min(BLOCK, part.tokens - start), nth[part.shift], part.new)
            for part in parts
            for start in range(0, part.tokens, BLOCK)
        ]
        self.blocks = torch.tensor(found, dtype=torch.int32).view(-1, 5).to(rows.device)
        self._waves = dict[Rotation, Tensor]()

    def waves(self, rotation: Rotation) -> Tensor:
        """The cosines and sines of every shift, `[shifts, 2, pairs]`, float32."""
        if rotation not in self._waves:
            self._waves[rotation] = rotation.waves(self._shifts).to(self.rows.device)
        return self._waves[rotation]


class Request(NamedTuple):
    """What is gathered in one layer: from `pools` `[rows, heads, dim]` and from `new` tokens `[tokens, heads, dim]`, to
    `out` `[heads, length, dim]`; keys and values each."""

    pools: Pair
    new: Pair
    out: Pair
    layout: Layout


class GatherKind(NamedTuple):
    """Equal kinds share one kernel."""

    device: torch.device
    dtype: torch.dtype
    heads: int
    dim: int
    value_dim: int
    rotation: Rotation

    @property
    def form(self) -> Any:
        """The compile-time constants of the kernel: see `gather_kernel.GatherForm`."""
        from agentcho.runner.kv.gather_kernel import GatherForm

        pairs, begin, step, gap = self.rotation.pairs
        return GatherForm(
            heads=self.heads,
            dim=self.dim,
            value_dim=self.value_dim,
            pairs=pairs,
            begin=begin,
            step=step,
            gap=gap,
            block=BLOCK,
            pair_block=_power(pairs),
            dim_block=_power(self.dim),
            value_block=_power(self.value_dim),
        )


def _power(size: int) -> int:
    return 1 << (size - 1).bit_length() if size else 1


def serves(device: torch.device) -> bool:
    """Whether a kernel may gather on a device, as far as is known."""
    return device.type == "cuda" and find_spec("triton") is not None and device not in TRIAL.refused


def gather_by_kernel(rotation: Rotation, given: Request, slowly: Callable[[], None]) -> None:
    """Gather with the kernel, or with `slowly` where it is refused."""
    keys, values = given.pools
    kind = GatherKind(
        device=keys.device,
        dtype=keys.dtype,
        heads=keys.shape[1],
        dim=keys.shape[2],
        value_dim=values.shape[2],
        rotation=rotation,
    )
    TRIAL.run(kind, given, slowly)


def fits(*out: Tensor) -> bool:
    """Whether the kernel can write to these tensors `[heads, length, dim]`: the tokens of each head must be
    contiguous."""
    return all(each.stride(1) == each.shape[2] and each.stride(2) == 1 for each in out)


def _by_kernel(kind: GatherKind, given: Request, slowly: Callable[[], None]) -> Tensor:
    layout, (keys, values) = given.layout, given.out
    tensors = *given.pools, *given.new, layout.rows, layout.blocks, layout.waves(kind.rotation), keys, values
    _launch((len(layout.blocks), kind.heads), tensors, (_room(keys), _room(values)), kind.form)
    return keys


def _room(out: Tensor) -> int:
    """The distance between heads of a tensor, in tokens."""
    return out.stride(0) // out.shape[2]


def _launch(grid: tuple[int, ...], tensors: tuple[Tensor, ...], rooms: tuple[int, int], form: Any) -> None:
    """Run the kernel."""
    from agentcho.runner.kv.gather_kernel import gather as kernel

    device = tensors[0].device
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel[grid](*tensors, *rooms, form)


def _by_torch(given: Request, slowly: Callable[[], None]) -> Tensor:
    slowly()
    return given.out[0]


def _gaps(kind: GatherKind) -> Iterator[float]:
    """The error of rotated keys against those that torch rotates, as a share of the largest; and whether values are the
    same. Parts are longer and shorter than a block, lie apart, and go next to each other, between other tokens."""
    dice, count = torch.Generator(kind.device).manual_seed(0), 4 * BLOCK

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=dice, device=kind.device, dtype=kind.dtype)

    pools, new = ((drawn(count, kind.heads, kind.dim), drawn(count, kind.heads, kind.value_dim)) for _ in range(2))
    rows = torch.randperm(count, generator=dice, device=kind.device)
    parts = [
        Part(0, 3, BLOCK + 5, 70_000),
        Part(BLOCK + 9, BLOCK + 8, 1, 0),
        Part(7, BLOCK + 9, 2, -3, new=True),
        Part(2 * BLOCK, BLOCK + 11, 2 * BLOCK, -1_234),
        Part(0, 3 * BLOCK + 11, 9, 0, new=True),
    ]
    out = drawn(kind.heads, count, kind.dim), drawn(kind.heads, count, kind.value_dim)
    expected = [each.clone() for each in out]
    for part in parts:
        source = slice(part.first, part.first + part.tokens)
        there = torch.arange(count, device=kind.device)[source] if part.new else rows[source]
        keys, values = ((new if part.new else pools)[i][there].transpose(0, 1) for i in range(2))
        goal = slice(part.place, part.place + part.tokens)
        expected[0][:, goal] = kind.rotation.turn(keys, part.shift)
        expected[1][:, goal] = values
    _by_kernel(kind, Request(pools, new, out, Layout(rows, parts)), lambda: None)
    yield float((out[0].float() - expected[0].float()).abs().max() / expected[0].float().abs().max())
    yield 0.0 if torch.equal(out[1], expected[1]) else math.inf


TRIAL = Trial(
    name="Triton's gather",
    without="gather contexts by operations of torch",
    kernel=_by_kernel,
    dense=_by_torch,
    gaps=_gaps,
)

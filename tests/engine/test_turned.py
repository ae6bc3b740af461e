"""Gathered and rotated keys and values against a rotation in float64, token by token and pair by pair: as computed on
a CPU and on a GPU, by torch and by a kernel. On a CPU Triton's interpreter runs the kernel; with
AGENTCHO_TEST_DEVICE=cuda it is compiled and run there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from agentcho.runner.kv import gather, rope, triton_gather
from agentcho.runner.kv.gather import Gather, Source
from agentcho.runner.kv.kv_pool import LayerShape, PagePool
from agentcho.runner.kv.rope import Rotation, Workspace
from agentcho.runner.kv.triton_gather import TRIAL

from ..device import PLACE
from .compiled import printed

HEADS, DIM, PAIRS = 2, 12, 4
FREQUENCIES = torch.tensor([5e2 ** (-pair / PAIRS) for pair in range(PAIRS)], dtype=torch.float64)
ROTATIONS = {
    "half": Rotation("half", FREQUENCIES),
    "half, the last dimensions": Rotation("half", FREQUENCIES, DIM - 2 * PAIRS),
    "interleaved": Rotation("interleaved", FREQUENCIES),
    "none": Rotation("none"),
}
LENGTHS, SHIFTS = (5, 1, 70, 3), (7, -40_000, 3, 0)


@pytest.fixture(params=["cpu", "gpu", "kernel"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a CPU, in several parts; as on a GPU, by torch; and as on a GPU, by the kernel (interpreted on a CPU)."""
    monkeypatch.setattr(gather, "AT_ONCE", 16 * HEADS * DIM)
    monkeypatch.setattr(gather, "serves", lambda _: False)
    for module in (gather, rope):
        monkeypatch.setattr(module, "few_launches", lambda _: request.param == "gpu")
    if request.param == "kernel":
        by_kernel(monkeypatch)
    yield
    assert not TRIAL.refused


def by_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the kernel gather, and forget its trials."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton, on Linux")
    monkeypatch.setattr(gather, "few_launches", lambda _: True)
    monkeypatch.setattr(gather, "serves", lambda _: True)
    monkeypatch.setattr(TRIAL, "refused", {})
    monkeypatch.setattr(TRIAL, "_works", {})


def slowly(rotation: Rotation, key: Tensor, by: int) -> list[float]:
    """Move one key `[dim]`, in Python numbers."""
    out = [float(number) for number in key]
    for pair in range(0 if rotation.form == "none" else PAIRS):
        one = rotation.first + (pair if rotation.form == "half" else 2 * pair)
        other = one + (PAIRS if rotation.form == "half" else 1)
        angle = by * float(FREQUENCIES[pair])
        cos, sin = math.cos(angle), math.sin(angle)
        first, second = float(key[one]), float(key[other])
        out[one], out[other] = first * cos - second * sin, second * cos + first * sin
    return out


def stored(pages: PagePool) -> tuple[list[Any], list[Tensor], list[Tensor]]:
    """Pieces of random keys and values `[heads, length, dim]`, and the tensors themselves."""
    dice, pieces, keys, values = torch.Generator().manual_seed(3), list[Any](), list[Tensor](), list[Tensor]()
    for length, shift in zip(LENGTHS, SHIFTS, strict=True):
        keys.append(torch.randn(HEADS, length, DIM, generator=dice).to(pages.dtype))
        values.append(torch.randn(HEADS, length, DIM, generator=dice).to(pages.dtype))
        block = pages.allocate(length)
        pages.write(block, 0, keys[-1].to(PLACE), values[-1].to(PLACE))
        entry = SimpleNamespace(block=block, length=length, segment=None)
        pieces.append(SimpleNamespace(entry=_Hashed(entry), shift=shift, offset=0))
    return pieces, keys, values


class _Hashed:
    """An entry that can be a dictionary key."""

    def __init__(self, entry: SimpleNamespace) -> None:
        self.block, self.length, self.segment = entry.block, entry.length, entry.segment


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ROTATIONS)
def test_what_is_gathered_is_what_a_slow_rotation_gives(name: str, dtype: torch.dtype) -> None:
    rotation, pages = ROTATIONS[name], PagePool([LayerShape(HEADS, DIM, DIM)], 256, PLACE, dtype)
    pieces, keys, values = stored(pages)
    given = Gather(pieces, PLACE)
    found = [torch.full((HEADS, given.length + 2, DIM), math.nan, dtype=dtype, device=PLACE) for _ in range(2)]
    nothing = torch.empty(HEADS, 0, DIM, dtype=dtype, device=PLACE)
    source = Source(pages, 0, rotation, nothing, nothing, {}, Workspace())
    given.write(source, found[0][:, 1:-1], found[1][:, 1:-1])
    found = [each.cpu() for each in found]
    assert torch.equal(found[1][:, 1:-1], torch.cat(values, 1))
    expected = [
        [slowly(rotation, key, shift) for part, shift in zip(keys, SHIFTS, strict=True) for key in part[head]]
        for head in range(HEADS)
    ]
    exact = torch.tensor(expected, dtype=torch.float64)
    once = torch.finfo(dtype).eps * exact.abs() if dtype == torch.bfloat16 else 0  # the interpreter truncates
    assert bool(((found[0][:, 1:-1].double() - exact).abs() <= once + 2e-6).all())
    assert all(bool(each[:, end].isnan().all()) for each in found for end in (0, -1))


def test_both_ways_round_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rotation, keys = (
        ROTATIONS["half"],
        torch.randn(HEADS, 50, DIM, generator=torch.Generator().manual_seed(1)).to(PLACE),
    )
    angles = rotation.angles_of_pieces([9, -800], [20, 30], PLACE)
    turned = list[Tensor]()
    for few in (False, True):
        monkeypatch.setattr(rope, "few_launches", lambda _, few=few: few)
        turned.append(torch.empty(HEADS, 50, DIM, dtype=torch.bfloat16, device=PLACE))
        rotation.turn_into(turned[-1], keys.bfloat16(), angles, Workspace())
    assert torch.allclose(turned[0].float(), turned[1].float(), atol=1e-6, rtol=2**-8)


@pytest.mark.parametrize("form", ["half", "interleaved"])
def test_angles_of_pieces_are_those_of_their_tokens_to_the_bit(form: Any) -> None:
    rotation = Rotation(form, torch.tensor([5e5 ** (-pair / 61) for pair in range(61)], dtype=torch.float64))
    shifts = [*range(-70_000, 70_000, 1_999), 1, -1]
    lengths = [1 + number % 9 for number in range(len(shifts))]
    each = torch.tensor(shifts).repeat_interleave(torch.tensor(lengths))
    for found, expected in zip(
        rotation.angles_of_pieces(shifts, lengths, PLACE), rotation.angles(each, PLACE), strict=True
    ):
        assert torch.equal(found, expected)


def test_a_gpu_is_asked_for_as_many_operations_for_a_long_context_as_for_a_short_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (gather, rope):
        monkeypatch.setattr(module, "few_launches", lambda _: True)
    parts, turn = list[int](), Rotation.turn_into

    def spied(rotation: Rotation, out: Tensor, *given: Any) -> None:
        parts.append(out.shape[1])
        turn(rotation, out, *given)

    monkeypatch.setattr(Rotation, "turn_into", spied)
    monkeypatch.setattr(gather, "serves", lambda _: False)
    monkeypatch.setattr(gather, "AT_ONCE", 1)
    pages = PagePool([LayerShape(HEADS, DIM, DIM)], 256, PLACE, torch.float32)
    given = Gather(stored(pages)[0], PLACE)
    out = torch.empty(HEADS, given.length, DIM, device=PLACE)
    given.write(Source(pages, 0, ROTATIONS["half"], out, out, {}, Workspace()), out, out.clone())
    assert parts == [sum(LENGTHS[:3])]


@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize("dims", [(12, 12), (16, 40)])
def test_the_kernel_is_tried_on_what_torch_turns(name: str, dims: tuple[int, int]) -> None:
    rotation = ROTATIONS[name]
    if rotation.first:
        rotation = Rotation("half", FREQUENCIES, dims[0] - 2 * PAIRS)
    gaps = list(triton_gather._gaps(triton_gather.GatherKind(PLACE, torch.float32, 3, *dims, rotation)))
    assert max(gaps) < 1e-5
    assert gaps[1] == 0


def test_one_launch_a_layer_gathers_whatever_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Own tokens included."""
    by_kernel(monkeypatch)
    pages = PagePool([LayerShape(HEADS, DIM, DIM)], 256, PLACE, torch.float32)
    given, own = Gather(stored(pages)[0], PLACE), torch.randn(6, HEADS, DIM, device=PLACE).transpose(0, 1)
    out = [torch.empty(HEADS, given.length + 6, DIM, device=PLACE) for _ in range(2)]
    source, grids = Source(pages, 0, ROTATIONS["half"], own, own, {}, Workspace()), list[tuple[int, ...]]()
    given.write(source, out[0], out[1], (own, own))  # this runs the kernel's trial
    launch = triton_gather._launch

    def spied(grid: tuple[int, ...], *rest: Any) -> None:
        grids.append(grid)
        launch(grid, *rest)

    monkeypatch.setattr(triton_gather, "_launch", spied)
    given.write(source, out[0], out[1], (own, own))
    assert grids == [(sum(-(-length // triton_gather.BLOCK) for length in (*LENGTHS, 6)), HEADS)]
    assert all(torch.equal(each[:, given.length :], own) for each in out)


def broken(*_: object) -> None:
    raise RuntimeError("no compiler was found")


def unturned(grid: Any, tensors: tuple[Tensor, ...], *rest: Any) -> None:
    waves = torch.zeros_like(tensors[6])
    waves[:, 0] = 1
    LAUNCH(grid, (*tensors[:6], waves, *tensors[7:]), *rest)


LAUNCH = triton_gather._launch


@pytest.mark.parametrize(("kernel", "why"), [(broken, "fails here"), (unturned, "gives values that are off")])
def test_a_kernel_that_fails_or_is_off_is_not_used(kernel: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_kernel(monkeypatch)
    monkeypatch.setattr(triton_gather, "_launch", kernel)
    pages = PagePool([LayerShape(HEADS, DIM, DIM)], 256, PLACE, torch.float32)
    pieces, found = stored(pages)[0], list[list[Tensor]]()
    for _ in range(2):
        given = Gather(pieces, PLACE)
        found.append([torch.empty(HEADS, given.length, DIM, device=PLACE) for _ in range(2)])
        source = Source(pages, 0, ROTATIONS["half"], found[0][0], found[0][0], {}, Workspace())
        if len(found) == 1:
            with pytest.warns(UserWarning, match=f"gather contexts by operations of torch.*{why}"):
                given.write(source, found[-1][0], found[-1][1])
            monkeypatch.setattr(gather, "serves", lambda _: False)
        else:
            given.write(source, found[-1][0], found[-1][1])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


VARIANTS = """
import torch
from agentcho.runner.kv import triton_gather
from agentcho.runner.kv.gather_kernel import gather
from agentcho.runner.kv.rope import Rotation
from agentcho.runner.kv.triton_gather import GatherKind, Layout, Part, Request
triton_gather._launch = lambda grid, tensors, rooms, form: gather.warmup(*tensors, *rooms, form, grid=grid)
rotation = Rotation("half", torch.ones(64, dtype=torch.float64))
kind = GatherKind(torch.device("cpu"), torch.bfloat16, 8, 128, 128, rotation)
def some(*shape):
    return torch.empty(shape, dtype=torch.bfloat16), torch.empty(shape, dtype=torch.bfloat16)
def variants(lengths, spare):
    whole = some(8, sum(lengths) + spare, 128)
    out = tuple(each[:, spare:] for each in whole)
    layout = Layout(torch.zeros(sum(lengths), dtype=torch.long), [Part(0, 0, n, n - 1) for n in lengths])
    triton_gather._by_kernel(kind, Request(some(4, 8, 128), some(9, 8, 128), out, layout), None)
    return sum(len(cache[0]) for cache in gather.device_caches.values())
loaded = variants([1], 0)
for how in (([16], 16), ([3, 64], 1), ([1, 1, 8192], 3), ([1] * 99, 16)):
    later = variants(*how)
print(loaded, later)
"""


@pytest.mark.slow
def test_no_step_compiles_what_was_not_compiled_as_the_model_was_loaded(tmp_path: Path) -> None:
    """Triton itself chooses the variants, for a GPU that is not present."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton, on Linux")
    assert printed(VARIANTS, tmp_path) == "1 1\n"

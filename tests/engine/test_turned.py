"""Keys and values that are gathered and turned, beside a rotation in float64, token by token and pair by pair: as a CPU
does it and as a GPU does. The operations of a GPU run on the CPU here."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from agentcho.runner.kv import gather, rope
from agentcho.runner.kv.gather import Gather, Source
from agentcho.runner.kv.kv_pool import LayerShape, PagePool
from agentcho.runner.kv.rope import Rotation, Workspace

CPU = torch.device("cpu")
HEADS, DIM, PAIRS = 2, 12, 4
FREQUENCIES = torch.tensor([5e2 ** (-pair / PAIRS) for pair in range(PAIRS)], dtype=torch.float64)
ROTATIONS = {
    "half": Rotation("half", FREQUENCIES),
    "half, the last dimensions": Rotation("half", FREQUENCIES, DIM - 2 * PAIRS),
    "interleaved": Rotation("interleaved", FREQUENCIES),
    "none": Rotation("none"),
}
LENGTHS, SHIFTS = (5, 1, 70, 3), (7, -40_000, 3, 0)


@pytest.fixture(params=["cpu", "gpu"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done on a CPU, in several parts; and what is done on a GPU."""
    monkeypatch.setattr(gather, "AT_ONCE", 16 * HEADS * DIM)
    for module in (gather, rope):
        monkeypatch.setattr(module, "few_launches", lambda _: request.param == "gpu")


def slowly(rotation: Rotation, key: Tensor, by: int) -> list[float]:
    """One key `[dim]`, moved, in Python's numbers."""
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
    """Pieces of drawn keys and values `[heads, length, dim]`, and these."""
    dice, pieces, keys, values = torch.Generator().manual_seed(3), list[Any](), list[Tensor](), list[Tensor]()
    for length, shift in zip(LENGTHS, SHIFTS, strict=True):
        keys.append(torch.randn(HEADS, length, DIM, generator=dice).to(pages.dtype))
        values.append(torch.randn(HEADS, length, DIM, generator=dice).to(pages.dtype))
        block = pages.allocate(length)
        pages.write(block, 0, keys[-1], values[-1])
        entry = SimpleNamespace(block=block, length=length, segment=None)
        pieces.append(SimpleNamespace(entry=_Hashed(entry), shift=shift, offset=0))
    return pieces, keys, values


class _Hashed:
    """An entry that can be the key of a dictionary."""

    def __init__(self, entry: SimpleNamespace) -> None:
        self.block, self.length, self.segment = entry.block, entry.length, entry.segment


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ROTATIONS)
def test_what_is_gathered_is_what_a_slow_rotation_gives(name: str, dtype: torch.dtype) -> None:
    rotation, pages = ROTATIONS[name], PagePool([LayerShape(HEADS, DIM, DIM)], 256, CPU, dtype)
    pieces, keys, values = stored(pages)
    given = Gather(pieces, CPU)
    found = [torch.full((HEADS, given.length + 2, DIM), math.nan, dtype=dtype) for _ in range(2)]
    nothing = torch.empty(HEADS, 0, DIM, dtype=dtype)
    source = Source(pages, 0, rotation, nothing, nothing, {}, Workspace())
    given.write(source, *(each[:, 1:-1] for each in found))
    assert torch.equal(found[1][:, 1:-1], torch.cat(values, 1))
    expected = [
        [slowly(rotation, key, shift) for part, shift in zip(keys, SHIFTS, strict=True) for key in part[head]]
        for head in range(HEADS)
    ]
    exact = torch.tensor(expected, dtype=torch.float64)
    once = torch.finfo(dtype).eps / 2 * exact.abs() if dtype == torch.bfloat16 else 0
    assert bool(((found[0][:, 1:-1].double() - exact).abs() <= once + 2e-6).all())
    assert all(bool(each[:, end].isnan().all()) for each in found for end in (0, -1))


def test_both_ways_round_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rotation, keys = ROTATIONS["half"], torch.randn(HEADS, 50, DIM, generator=torch.Generator().manual_seed(1))
    angles = rotation.angles_of_pieces([9, -800], [20, 30], CPU)
    turned = list[Tensor]()
    for few in (False, True):
        monkeypatch.setattr(rope, "few_launches", lambda _, few=few: few)
        turned.append(torch.empty(HEADS, 50, DIM, dtype=torch.bfloat16))
        rotation.turn_into(turned[-1], keys.bfloat16(), angles, Workspace())
    assert torch.allclose(turned[0].float(), turned[1].float(), atol=1e-6, rtol=2**-8)


@pytest.mark.parametrize("form", ["half", "interleaved"])
def test_angles_of_pieces_are_those_of_their_tokens_to_the_bit(form: Any) -> None:
    rotation = Rotation(form, torch.tensor([5e5 ** (-pair / 61) for pair in range(61)], dtype=torch.float64))
    shifts = [*range(-70_000, 70_000, 1_999), 1, -1]
    lengths = [1 + number % 9 for number in range(len(shifts))]
    each = torch.tensor(shifts).repeat_interleave(torch.tensor(lengths))
    for found, expected in zip(
        rotation.angles_of_pieces(shifts, lengths, CPU), rotation.angles(each, CPU), strict=True
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
    monkeypatch.setattr(gather, "AT_ONCE", 1)
    pages = PagePool([LayerShape(HEADS, DIM, DIM)], 256, CPU, torch.float32)
    given = Gather(stored(pages)[0], CPU)
    out = torch.empty(HEADS, given.length, DIM)
    given.write(Source(pages, 0, ROTATIONS["half"], out, out, {}, Workspace()), out, out.clone())
    assert parts == [sum(LENGTHS[:3])]

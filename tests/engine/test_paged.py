"""Queries over contexts that stay in the store are weighted as defined, whatever is rotated, hidden or capped.
Triton's interpreter runs the kernel; with AGENTCHO_TEST_DEVICE=cuda it is compiled and run there."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agentcho.runner.attention import triton_paged
from agentcho.runner.attention.base import Locality, Scoring
from agentcho.runner.attention.triton_paged import (
    TRIAL,
    DecodeKV,
    PagedKV,
    TokenQueries,
    attend_copied,
    attend_stored,
    merge_parts,
)
from agentcho.runner.kv.lanes import LANE
from agentcho.runner.kv.page_tables import Columns
from agentcho.runner.kv.rope import Rotation

from ..device import PLACE
from .compiled import printed

pytest.importorskip("triton", reason="Triton is not installed: pip install triton, on Linux")

import triton
import triton.language as tl

from agentcho.runner.attention import triton_kernel

ANGLES = torch.tensor([1.0, 0.3, 0.04, 0.001], dtype=torch.float64)
FULL = Locality()


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Make the kernel read rows in small parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_paged, "SPAN", 32)
        patch.setattr(triton_paged, "BLOCK", 16)
        yield


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget trials, so that no test sees another's refusals."""
    monkeypatch.setattr(TRIAL, "refused", {})
    monkeypatch.setattr(TRIAL, "_works", {})


class Case(NamedTuple):
    """One call of the code under test: the queries and what they read."""

    asked: TokenQueries
    store: PagedKV
    lanes: DecodeKV
    locality: Locality
    scoring: Scoring

    def found(self) -> Tensor:
        return attend_stored(*self)


def drawn(
    counts: list[int],
    rotation: Rotation,
    scoring: Scoring,
    locality: Locality = FULL,
    groups: int = 2,
    dims: tuple[int, int] = (8, 8),
    most: int = 90,
    far: int = 50_000,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Case:
    """Rows in any order. Each reads the given number of stored tokens, at most 70, anywhere in the pools and moved by
    up to `far` positions, and up to `most` tokens of its own."""
    dice, heads = torch.Generator().manual_seed(seed), 2

    def some(*shape: int) -> Tensor:
        return torch.randn(shape, generator=dice).to(PLACE, dtype)

    def picked(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=dice).to(PLACE)

    count, rows, near = len(counts), torch.randperm(len(counts), generator=dice), 2 * max(locality.size, 1)
    at, pools = picked(60_000, 60_040, count), [some(99, heads, dim) for dim in dims]
    places = picked(59_999 - near, 60_000, count, 70)
    table = torch.stack([picked(0, 99, count, 70), picked(-far, far, count, 70), places])
    held = torch.zeros(count, dtype=torch.int32)
    held[rows] = torch.tensor(counts, dtype=torch.int32)
    columns = Columns(table.transpose(0, 1).to(torch.int32).contiguous(), held.to(PLACE))
    ends, lanes = picked(0, most, count), [some(3 * count, heads, LANE, dim) for dim in dims]
    blocks = torch.randperm(3 * count, generator=dice)[: 2 * count].view(count, 2).to(PLACE, torch.int32)
    own = picked(59_999 - near, 60_040, 3 * count, LANE)
    asked = TokenQueries(some(count, heads * groups, dims[0]), rows.to(PLACE), at, ends)
    keys, values = pools
    store = PagedKV(keys, values, rotation, columns, reach=70)
    own_kv = DecodeKV(lanes[0], lanes[1], own, blocks, reach=max(most, 96))
    return Case(asked, store, own_kv, locality, scoring)


def by_definition(case: Case, stored_only: bool = False) -> Tensor:
    """Attention token by token in float64; shares only the meaning of tensors with the code under test."""
    asked, store, lanes = case.asked, case.store, case.lanes
    heads = asked.queries.shape[1]
    groups = heads // lanes.keys.shape[1]
    out = torch.zeros(len(asked.queries), heads, lanes.values.shape[3], dtype=torch.float64)
    for i, query in enumerate(asked.queries.double().cpu()):
        row, at, end = int(asked.rows[i]), int(asked.positions[i]), int(asked.ends[i])
        read = list[tuple[Tensor, Tensor]]()
        for token in range(int(store.columns.counts[row])):
            number, shift, place = (int(each) for each in store.columns.table[row, :, token])
            if sees(case.locality, at, place):
                read.append((moved(store.rotation, store.keys[number].double().cpu(), shift), store.values[number]))
        for token in range(0 if stored_only else end + 1):
            block, place = int(lanes.blocks[row, token // LANE]), token % LANE
            if token == end or sees(case.locality, at, int(lanes.positions[block, place])):
                read.append((lanes.keys[block, :, place].double().cpu(), lanes.values[block, :, place]))
        for head in range(heads):
            scores = [float(query[head] @ keys[head // groups]) * case.scoring.scale for keys, _ in read]
            if (cap := case.scoring.softcap) is not None:
                scores = [cap * math.tanh(score / cap) for score in scores]
            sink = [] if case.scoring.sinks is None else [float(case.scoring.sinks[head])]
            whole = sum(math.exp(score) for score in scores + sink)
            for score, (_, values) in zip(scores, read, strict=True):
                out[i, head] += math.exp(score) / whole * values[head // groups].double().cpu()
    return out


def sees(locality: Locality, query: int, key: int) -> bool:
    if locality.kind == "full":
        return True
    return key > query - locality.size if locality.kind == "sliding" else key // locality.size == query // locality.size


def moved(rotation: Rotation, keys: Tensor, by: int) -> Tensor:
    """Move keys `[heads, dim]`: each pair of dimensions is a complex number, rotated by its angle."""
    if rotation.frequencies is None:
        return keys
    keys, count = keys.clone(), len(rotation.frequencies)
    for i, each in enumerate(rotation.frequencies.tolist()):
        one, other = (i, i + count) if rotation.form == "half" else (2 * i, 2 * i + 1)
        one, other = rotation.first + one, rotation.first + other
        turned = torch.complex(keys[:, one], keys[:, other]) * complex(math.cos(by * each), math.sin(by * each))
        keys[:, one], keys[:, other] = turned.real, turned.imag
    return keys


ROTATIONS = {
    "none": Rotation("none"),
    "half": Rotation("half", ANGLES),
    "half, partly": Rotation("half", ANGLES[:3]),
    "half, the last": Rotation("half", ANGLES[:3], 2),
    "interleaved": Rotation("interleaved", ANGLES),
    "interleaved, partly": Rotation("interleaved", ANGLES[:2]),
}


@pytest.mark.parametrize("name", ["half, the last", "interleaved"])
def test_it_weighs_as_the_definition_says(name: str) -> None:
    case = drawn([70, 33, 1, 0], ROTATIONS[name], Scoring(0.5, 4.0, torch.randn(4)), Locality("sliding", 30))
    with warnings.catch_warnings(action="error"):
        found = case.found()
    torch.testing.assert_close(found.double().cpu(), by_definition(case), rtol=1e-4, atol=1e-5)


DIMS = st.sampled_from([(8, 8), (8, 24), (16, 8), (40, 4)])
LOCALITIES = st.sampled_from([FULL, FULL, Locality("sliding", 7), Locality("sliding", 300), Locality("chunked", 32)])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.sampled_from([0, 1, 15, 16, 17, 31, 32, 33, 64, 69, 70]), min_size=1, max_size=4),
    name=st.sampled_from([*ROTATIONS]),
    groups=st.sampled_from([1, 2, 3, 8]),
    dims=DIMS,
    locality=LOCALITIES,
    softcap=st.sampled_from([None, None, 0.5, 20.0]),
    sinks=st.booleans(),
    far=st.sampled_from([1, 40, 1_000_000]),
    most=st.sampled_from([1, 17, 33, 96, 200]),
    seed=st.integers(0, 999),
)
def test_it_does_whatever_is_asked(
    counts: list[int], name: str, groups: int, dims: tuple[int, int], locality: Locality, **how: Any
) -> None:
    torch.manual_seed(how["seed"])
    sinks = torch.randn(2 * groups).to(PLACE) if how["sinks"] else None
    scoring = Scoring(0.4, how["softcap"], sinks)
    more = {key: how[key] for key in ("far", "most", "seed")}
    rotation = ROTATIONS[name] if "last" not in name else Rotation("half", ANGLES[:3], dims[0] - 6)
    case = drawn(counts, rotation, scoring, locality, groups, dims, **more)
    expected = by_definition(case)
    torch.testing.assert_close(case.found().double().cpu(), expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(attend_copied(*case).double().cpu(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_of_16_bits_are_rounded_where_plain_attention_rounds_them(dtype: torch.dtype) -> None:
    case = drawn([70, 40, 0], ROTATIONS["half"], Scoring(0.3), dtype=dtype)
    torch.testing.assert_close(case.found().double().cpu(), by_definition(case), rtol=2e-2, atol=2e-2)


def test_what_a_row_does_not_read_has_no_weight_and_is_not_touched() -> None:
    """NaN in pool rows and lane places that nothing reads."""
    case = drawn([5, 0], ROTATIONS["half"], Scoring(0.5))
    table, counts = case.store.columns
    read = {int(number) for row in range(2) for number in table[row, 0, : counts[row]]}
    for pool in (case.store.keys, case.store.values):
        pool[[number for number in range(99) if number not in read]] = torch.nan
    assert attend_copied(*case).isfinite().all()
    for lane in (case.lanes.keys, case.lanes.values):
        for i, row in enumerate(case.asked.rows.tolist()):
            last, end = divmod(int(case.asked.ends[i]), LANE)
            lane[int(case.lanes.blocks[row, last]), :, end + 1 :] = torch.nan
            lane[[n for n in range(len(lane)) if n not in case.lanes.blocks[:, : last + 1]]] = torch.nan
    assert case.found().isfinite().all()


def test_parts_in_which_nothing_is_seen_have_no_sum_and_weigh_nothing() -> None:
    case = drawn([40, 0], ROTATIONS["half"], Scoring(0.5))
    kind = triton_paged.PagedKind(PLACE, torch.float32, 2, 2, 8, 8, case.store.rotation, FULL, 0.5, None)
    out, sums = triton_paged.attend_parts(kind, case.asked, case.store, case.lanes)
    (empty,) = (i for i, row in enumerate(case.asked.rows) if case.store.columns.counts[row] == 0)
    stored = slice(0, 3)  # 70 tokens in parts of 32
    assert sums[empty, :, stored].isneginf().all()
    assert not out[empty, :, stored].any()
    alone = merge_parts(kind, out[:, :, stored].contiguous(), sums[:, :, stored].contiguous(), None)
    assert not alone[empty].any()
    torch.testing.assert_close(alone.double().cpu(), by_definition(case, stored_only=True), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sunk", [False, True])
@pytest.mark.parametrize("parts", [1, 16, 37])
def test_parts_are_put_together_by_the_sums_of_their_weights(parts: int, sunk: bool) -> None:
    """Some parts see nothing, the last query sees nothing at all, and one sink has no weight."""
    torch.manual_seed(parts)
    heads, groups, dim = 2, 3, 24
    out, sums = torch.randn(4, heads, parts, groups, dim), 20 * torch.randn(4, heads, parts, groups)
    sums[:, :, 1::3] = sums[-1] = -math.inf
    out[sums.isneginf()] = 0
    sinks = torch.cat([torch.tensor([-math.inf]), 20 * torch.randn(heads * groups - 1)])
    weights = sums.double().exp()
    whole = weights.sum(2) + (sinks.double().exp().view(heads, groups) if sunk else 0)
    expected = (weights[..., None] * out).sum(2) / whole.clamp(min=1e-300)[..., None]
    kind = triton_paged.PagedKind(PLACE, torch.float32, heads, groups, 8, dim, ROTATIONS["none"], FULL, 1.0, None)
    found = merge_parts(kind, out.to(PLACE), sums.to(PLACE), sinks.to(PLACE) if sunk else None)
    torch.testing.assert_close(found.double().cpu(), expected.flatten(1, 2), rtol=1e-4, atol=1e-5)


def test_a_far_shift_costs_no_digits() -> None:
    case = drawn([30], ROTATIONS["half"], Scoring(0.5), far=1 << 30)
    torch.testing.assert_close(case.found().double().cpu(), by_definition(case), rtol=1e-4, atol=1e-5)


def turn(one: tl.tensor, other: tl.tensor, shifts: tl.tensor, turns: tl.tensor, form: tl.constexpr) -> None:
    """Rotate pairs `[tokens, pairs]` in place with the kernel's own code."""
    token, pair = tl.arange(0, form.block), tl.arange(0, form.pair_block)
    there = token[:, None] * form.pair_block + pair[None, :]
    first, second = tl.load(one + there), tl.load(other + there)
    first, second = triton_kernel._turned(first, second, tl.load(shifts + token), turns, form)
    tl.store(one + there, first)
    tl.store(other + there, second)


def off(cosine: float, sine: float) -> Callable[..., tuple[Any, Any]]:
    """Cosines and sines with these errors, the worst that approximate instructions may have."""

    def waves(angle: Any, form: Any) -> tuple[Any, Any]:
        return tl.cos(angle) + cosine, tl.sin(angle) + sine

    return waves


WORST = triton_kernel.WAVE_ERROR
ERRORS = [(0.0, 0.0), (WORST, WORST), (WORST, -WORST), (-WORST, WORST), (-WORST, -WORST)]


@pytest.mark.parametrize(("cosine", "sine"), ERRORS)
def test_a_turned_key_is_within_its_bound(cosine: float, sine: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the interpreter with the errors that NVIDIA documents, on a GPU with its actual instructions."""
    frequencies, tokens = ANGLES.repeat(16), 256
    rotation = Rotation("half", frequencies)
    kind = triton_paged.PagedKind(PLACE, torch.bfloat16, 1, 1, 128, 128, rotation, FULL, 1.0, None)
    form = kind.form(own=False)._replace(block=tokens)
    assert form.quick == (PLACE.type == "cuda")
    if not form.quick:
        monkeypatch.setattr(triton_kernel, "_waves", off(cosine, sine))
    dice = torch.Generator().manual_seed(0)
    shifts = torch.randint(-(1 << 17), 1 << 17, (tokens,), generator=dice)
    phase = torch.rand(tokens, len(frequencies), generator=dice, dtype=torch.float64) * 2 * math.pi
    one, other = phase.cos().float(), phase.sin().float()
    exact = torch.complex(one.double(), other.double())
    exact = exact * torch.polar(torch.ones((), dtype=torch.float64), shifts[:, None] * frequencies)
    found = one.to(PLACE), other.to(PLACE)
    triton.jit(turn)[(1,)](*found, shifts.int().to(PLACE), triton_paged._phases(rotation, PLACE), form)
    gaps = torch.stack([found[0].cpu() - exact.real, found[1].cpu() - exact.imag]).abs() / exact.abs()
    assert float(gaps.max()) <= triton_kernel.TURN_ERROR
    if not form.quick and cosine:
        assert float(gaps.max()) > 1.3 * WORST  # the worst case, 2 ** 0.5 times as much, is nearly reached


def broken(*_: object) -> None:
    raise RuntimeError("no compiler was found\nand more of it")


def zeros(grid: object, *given: Any) -> None:
    given[-8].zero_()
    given[-7].zero_()


def unturned(grid: tuple[int, ...], *given: Any) -> None:
    launch(grid, *given[:7], torch.zeros_like(given[7]), *given[8:])


launch = triton_paged._launch
REFUSALS = [(broken, r"fails here \(no compiler was found\)"), (zeros, "gives values"), (unturned, "gives values")]


@pytest.mark.parametrize(("kernel", "why"), REFUSALS, ids=["broken", "zeros", "unturned"])
def test_a_kernel_that_fails_or_is_off_is_not_used(kernel: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_paged, "_launch", kernel)
    case = drawn([20, 0], Rotation("half", ANGLES[:2]), Scoring(0.5))
    with pytest.warns(UserWarning, match=f"read copies of their contexts, and are slower: Triton's kernel.*{why}"):
        found = case.found()
    assert torch.equal(found, attend_copied(*case))
    assert TRIAL.refused.get(PLACE)
    with warnings.catch_warnings(action="error"):
        assert torch.equal(case.found(), found)


@pytest.mark.slow
def test_a_full_memory_says_nothing_of_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("full")

    case = drawn([20, 0], Rotation("half", ANGLES[:2]), Scoring(0.5))
    with monkeypatch.context() as patch:
        patch.setattr(triton_paged, "_launch", full)
        with pytest.raises(torch.OutOfMemoryError):
            case.found()
    assert not TRIAL.refused.get(PLACE)
    torch.testing.assert_close(case.found(), attend_copied(*case), rtol=1e-4, atol=1e-5)


VARIANTS = """
import itertools, torch
from agentcho.runner.attention import triton_paged
from agentcho.runner.attention.base import Locality
from agentcho.runner.attention.triton_kernel import merge, weigh
from agentcho.runner.attention.triton_paged import DecodeKV, PagedKV, PagedKind, TokenQueries, attend_parts, merge_parts
from agentcho.runner.graphs import SIZES
from agentcho.runner.kv.lanes import LANE
from agentcho.runner.kv.page_tables import Columns
from agentcho.runner.kv.rope import Rotation
triton_paged._launch = lambda grid, *given: weigh.warmup(*given, grid=grid)
triton_paged._merge = lambda grid, tensors, **how: merge.warmup(*tensors, grid=grid, **how)
form = triton_paged.PagedKind.form
triton_paged.PagedKind.form = lambda self, own: form(self, own)._replace(wide=False, quick=True)
rotation, number = Rotation("half", torch.ones(64, dtype=torch.float64)), torch.bfloat16
kind = PagedKind(torch.device("cpu"), number, 8, 4, 128, 128, rotation, Locality(), 0.1, None)
def rows(count, first=0, width=256, blocks=16, most=3, stored=256, own=128):
    _, at, row, ends = torch.zeros(4, first + count, dtype=torch.long)[:, first:]
    pools = [torch.empty(4, 8, 128, dtype=number) for _ in range(2)]
    lanes = [torch.empty(blocks, 8, LANE, 128, dtype=number) for _ in range(2)]
    table = Columns(torch.zeros(count, 3, width, dtype=torch.int32), torch.zeros(count, dtype=torch.int32))
    store = PagedKV(*pools, rotation, columns=table, reach=stored)
    held = torch.zeros(count, most, dtype=torch.int32)
    kv = DecodeKV(*lanes, torch.zeros(blocks, LANE, dtype=torch.long), blocks=held, reach=own)
    queries = TokenQueries(torch.empty(count, 32, 128, dtype=number), row, at, ends)
    merge_parts(kind, *attend_parts(kind, queries, store, kv), None)
    return sum(len(cache[0]) for kernel in (weigh, merge) for cache in kernel.device_caches.values())
for size in SIZES:
    loaded = rows(size)
for count, first, width, most, stored, own in itertools.product(
    (1, 3, 4), (0, 1, 2), (256, 1000, 16384), (1, 5, 16), (0, 1, 4096), (1, 512)
):
    later = rows(count, first, width, 16 * most, most, stored, own)
print(loaded, later)
"""


@pytest.mark.slow
def test_no_step_compiles_what_was_not_compiled_as_the_model_was_loaded(tmp_path: Any) -> None:
    """Triton itself chooses the variants, for an absent GPU: one for pools, one for lanes, one that merges."""
    assert printed(VARIANTS, tmp_path) == "3 3\n"

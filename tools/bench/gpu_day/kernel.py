"""Measures the bytes per second at which the paged kernel reads keys and values, compared with a copy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from agentcho.runner.attention.base import Scoring
from agentcho.runner.attention.triton_paged import TRIAL, DecodeKV, PagedKV, TokenQueries, attend_stored
from agentcho.runner.kv.lanes import LANE
from agentcho.runner.kv.page_tables import Columns
from agentcho.runner.model.device import synchronize
from tools.bench.gpu_day.day import Day

TIMES = 10
COPIED = 1 << 30


def kernel(day: Day) -> None:
    """Bytes per second of a copy, and of rows that read contexts of their own, each at other positions. On a CPU, where
    Triton's interpreter runs the kernel, only for very few rows."""
    device = day.engine.network.device
    day.keep("interpreted", device.type != "cuda")
    size = COPIED if device.type == "cuda" else 1 << 24
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    day.keep("copy", {"bytes a second": 2 * size / _seconds(partial(target.copy_, source), device)})
    proof = day.engine.proofs[0]
    for rows in day.sizes.kernel_rows:
        asked, store, lanes = _drawn(day, proof, rows)
        scoring = Scoring(proof.shape.key_dim**-0.5)
        attend = partial(attend_stored, asked, store, lanes, locality=proof.locality, scoring=scoring)
        seconds = _seconds(attend, device)
        read = sum(pool.nbytes for pool in (store.keys, store.values))
        day.keep(
            f"{rows} row{'s' if rows > 1 else ''}",
            {"bytes a second": read / seconds, "seconds": seconds, "bytes": read},
        )
    day.keep("refused", {str(where): why for where, why in TRIAL.refused.items()})


def _drawn(day: Day, proof: Any, rows: int) -> tuple[TokenQueries, PagedKV, DecodeKV]:
    """Rows that each read `kernel_tokens` tokens in random order, and one of their own."""
    network, tokens = day.engine.network, day.sizes.kernel_tokens
    first = next(network.parameters())
    heads, groups = proof.shape.heads, network.config.num_attention_heads // proof.shape.heads
    dims = proof.shape.key_dim, proof.shape.value_dim

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, device=first.device, dtype=first.dtype)

    places = torch.randperm(rows * tokens, device=first.device).view(rows, 1, tokens)
    shifts = torch.full_like(places, 17)
    table = torch.cat([places, shifts, torch.arange(tokens, device=first.device).expand_as(places)], 1).int()
    counts = torch.full((rows,), tokens, device=first.device, dtype=torch.int32)
    keys, values = (drawn(rows * tokens, heads, dim) for dim in dims)
    own = [drawn(rows, heads, LANE, dim) for dim in dims]
    positions = torch.full((rows, LANE), tokens, device=first.device)
    every = torch.arange(rows, device=first.device)
    at = torch.full((rows,), tokens, device=first.device)
    asked = TokenQueries(drawn(rows, heads * groups, dims[0]), every, at, torch.zeros_like(every))
    store = PagedKV(keys, values, proof.rotation, columns=Columns(table, counts), reach=tokens)
    blocks = every.view(rows, 1).to(torch.int32)
    return asked, store, DecodeKV(own[0], own[1], positions, blocks=blocks, reach=LANE)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """The minimum of several runs after a warm-up; on a GPU by its own clock."""
    work()
    if device.type != "cuda":
        began = perf_counter()
        work()
        return perf_counter() - began
    synchronize(device)
    event: Any = torch.cuda.Event
    pairs = [[event(enable_timing=True) for _ in range(2)] for _ in range(TIMES)]
    for begin, end in pairs:
        begin.record()
        work()
        end.record()
    synchronize(device)
    return float(min(begin.elapsed_time(end) for begin, end in pairs)) / 1000

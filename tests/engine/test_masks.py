"""Masks on a CPU: the additive mask is made once per forward, and hides the same keys bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from agentcho import Decode, Engine, Prefill
from agentcho.runner.attention import dense
from agentcho.runner.attention.base import CausalMask, Scoring

from ..device import on_processor

pytestmark = on_processor
CPU = torch.device("cpu")
SCORINGS = [Scoring(0.25), Scoring(0.25, softcap=30.0), Scoring(0.25, sinks=torch.tensor([0.1, -2.0, 1.0, 0.0]))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("own", [1, 7, dense.FEW + 6])
@pytest.mark.parametrize("scoring", SCORINGS, ids=["plain", "softcap", "sinks"])
def test_what_a_mask_adds_hides_what_the_mask_hides(
    scoring: Scoring, own: int, kv_heads: int, dtype: torch.dtype
) -> None:
    dice = torch.Generator().manual_seed(own)
    queries = torch.randn(1, 4, own, 16, generator=dice).to(dtype)
    keys, values = (torch.randn(1, kv_heads, own + 9, 16, generator=dice).to(dtype) for _ in range(2))
    causal = CausalMask(own, own + 9, CPU)
    seen = torch.ones(own, own + 9, dtype=torch.bool).tril(9)
    expected = dense.attend(queries, keys, values, seen, scoring)
    assert torch.equal(dense.attend(queries, keys, values, dense.added(seen, dtype), scoring), expected)
    assert torch.equal(dense.attend(queries, keys, values, causal, scoring), expected)
    hidden = dense.attend(queries[:, :, :1], keys, values, seen[:1], scoring)
    cut = dense.attend(queries[:, :, :1], keys[:, :, :10], values[:, :, :10], None, scoring)
    torch.testing.assert_close(hidden, cut, rtol=1e-5, atol=1e-5 if dtype == torch.float32 else 1e-2)


def test_it_is_made_once_a_forward(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made, real = list[tuple[int, ...]](), dense.added

    def counted(seen: Tensor, *more: Any) -> Tensor:
        made.append(tuple(seen.shape))
        return real(seen, *more)

    monkeypatch.setattr(dense, "added", counted)
    [message] = llama.prefill([Prefill("", tokens=(5, 6, 7, 8))])
    assert llama._model.layers > 1
    assert len(made) == 1
    made.clear()
    llama.decode([Decode(parents=[message], forced=(8, 9, 10))])
    assert len(set(made)) == len(made) > 3, "each forward has a width of its own"

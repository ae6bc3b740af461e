"""Contexts of one forward with equal parts: one rotates them, the others copy the result, which is the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agentcho import Engine, Prefill
from agentcho.runner import batch
from agentcho.runner.kv import gather, triton_gather

from ..engines import Engines
from .families import Family, named


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records the tokens copied from another context, one number for each run and layer."""
    lengths: list[int] = []
    write = gather._Copied.write

    def spied(run: Any, *rest: Any) -> None:
        lengths.append(run.span.stop - run.span.start)
        write(run, *rest)

    monkeypatch.setattr(gather._Copied, "write", spied)
    return lengths


def alike(engine: Engine, ids: list[int], others: list[int]) -> None:
    """Check that keys and values agree up to rounding."""
    for id, other in zip(ids, others, strict=True):
        for (keys, values), (other_keys, other_values) in zip(engine.cached(id), engine.cached(other), strict=True):
            assert torch.allclose(keys, other_keys, atol=2e-5)
            assert torch.allclose(values, other_values, atol=2e-5)


def readers(a: int, b: int, salt: str) -> list[Prefill]:
    """Readers of the same two messages: at the same positions, in another order, and after another message."""
    word = Prefill("a word", salt=salt)
    return [
        Prefill("one", [a, b], salt=salt),
        Prefill("two", [a, b], salt=salt),
        Prefill("three", [b, a], salt=salt),
        word,
        Prefill("four", [word, b, a], salt=salt),
        Prefill("five", [a, b], offsets=[9, 3], salt=salt),
        Prefill("six", [word, b, a, b], salt=salt),
        Prefill("seven", [b, a], offsets=[40, 1], salt=salt),
    ]


def test_what_is_copied_is_what_would_be_gathered(family: Family, engines: Engines, copied: list[int]) -> None:
    loaded = engines(family)
    a, b = loaded.prefill([Prefill("the first of two messages"), Prefill("and the second")])
    together = list(loaded.prefill(readers(a, b, "together")))
    assert copied
    copied.clear()
    alone: list[int] = []
    for reader in readers(a, b, "alone"):
        parents = [parent if isinstance(parent, int) else alone[3] for parent in reader.parents]
        alone += loaded.prefill([Prefill(reader.text, parents, reader.offsets)])
    assert not copied
    alike(loaded, together, alone)


def test_a_context_that_is_equal_is_copied_whole(llama: Engine, copied: list[int]) -> None:
    a, b = llama.prefill([Prefill("the first of two messages"), Prefill("and the second")])
    copied.clear()
    llama.prefill([Prefill("one", [a, b], salt="x"), Prefill("two", [a, b], salt="x")])
    whole = 1 + sum(len(llama.message(id).tokens) for id in (a, b))
    assert copied == [whole] * llama.store.layers


def test_no_more_is_kept_through_a_layer_than_a_bound(
    llama: Engine, copied: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LENT", 0)
    a, b = llama.prefill([Prefill("the first of two messages"), Prefill("and the second")])
    kept = list(llama.prefill(readers(a, b, "unbound")))
    assert not copied
    monkeypatch.undo()
    alike(llama, kept, list(llama.prefill(readers(a, b, "bound"))))


@pytest.mark.slow
@pytest.mark.parametrize("family", named("llama", "gemma2", "gpt_neox", "cohere2", quick=""))
def test_a_kernel_gathers_what_torch_gathers(family: Family, engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts of stored messages, of messages in the same forward, and of both; in Triton's interpreter."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton, on Linux")
    loaded = engines(family)
    a, b = loaded.prefill([Prefill("the first of two messages"), Prefill("and the second")])
    expected = list(loaded.prefill(readers(a, b, "torch")))
    monkeypatch.setattr(gather, "few_launches", lambda device: True)
    monkeypatch.setattr(gather, "serves", lambda device: not triton_gather.TRIAL.refused)
    ran, launch = list[int](), triton_gather._launch

    def spied(grid: tuple[int, ...], *rest: Any) -> None:
        ran.append(grid[0])
        launch(grid, *rest)

    monkeypatch.setattr(triton_gather, "_launch", spied)
    found = list(loaded.prefill(readers(a, b, "kernel")))
    assert len(ran) >= 7 * loaded.store.layers
    assert not triton_gather.TRIAL.refused
    alike(loaded, found, expected)

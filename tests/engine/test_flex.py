"""Rows that read blocks of keys by FlexAttention match rows that read all keys. Without a GPU its kernels run
uncompiled, in torch's own eager form."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as library
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from agentcho import Decode, Engine
from agentcho.errors import StoreFull
from agentcho.runner.attention import flex
from agentcho.runner.attention.base import Scoring
from agentcho.runner.attention.dense import attend
from agentcho.runner.attention.flex import BLOCK, VisibleKeys, attend_blocks

from ..engines import Engines
from .families import Family
from .test_graphs import KINDS, talk

SCORINGS = {
    "plain": Scoring(0.25),
    "softcap": Scoring(0.2, softcap=2.0),
    "sinks": Scoring(0.3, sinks=torch.linspace(-2, 4, 8)),
}


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Tensor]]:
    """Use uncompiled FlexAttention on any device; yields the queries of its calls."""
    asked = list[Tensor]()

    def noted(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(queries: Tensor, *others: Any) -> Any:
            asked.append(queries)
            return kernel(queries, *others)

        return run

    monkeypatch.setattr(library, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(flex, "_compiled", noted)
    monkeypatch.setattr(flex, "why_not_flex", lambda device: None)
    flex.TRIAL.forget()
    flex._kernel.cache_clear()
    yield asked
    flex.TRIAL.forget()
    flex._kernel.cache_clear()


def drawn(rows: int, length: int, heads: int = 8, key_heads: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    dice = torch.Generator().manual_seed(rows * length)
    shapes = (rows, heads, 1, 16), (rows, key_heads, length, 16), (rows, key_heads, length, 24)
    queries, keys, values = (torch.randn(shape, generator=dice) for shape in shapes)
    return queries, keys, values


@pytest.mark.slow
@pytest.mark.parametrize("scoring", SCORINGS.values(), ids=SCORINGS)
@pytest.mark.parametrize(("rows", "length"), [(1, BLOCK), (3, 3 * BLOCK), (2, BLOCK + 5), (5, 7)])
def test_values_are_those_of_plain_attention(rows: int, length: int, scoring: Scoring) -> None:
    tensors = drawn(rows, length)
    mask = torch.rand(rows, 1, 1, length, generator=torch.Generator().manual_seed(rows)) < 0.2
    mask[0, ..., min(length - 1, BLOCK) :] = False
    mask[..., length // 2] = True
    found = attend_blocks(*tensors, VisibleKeys(mask), scoring)
    torch.testing.assert_close(found, attend(*tensors, mask, scoring), rtol=1e-4, atol=1e-5)


def test_blocks_are_those_with_a_key_that_is_seen_and_no_others() -> None:
    mask = torch.zeros(3, 1, 1, 4 * BLOCK, dtype=torch.bool)
    mask[0, ..., :BLOCK] = True
    mask[1, ..., [BLOCK, 4 * BLOCK - 1]] = True
    mask[2] = True
    blocks = VisibleKeys(mask).blocks(3)
    counted = zip(blocks.kv_indices[:, 0, 0], blocks.kv_num_blocks, strict=True)
    assert [order[:count].tolist() for order, count in counted] == [[0], [1, 3], [0, 1, 2, 3]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_rows_say_the_same_words(kind: Family, engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, plain = engines(kind), engines(kind)
    rows.debug.slots.may_share = False
    with warnings.catch_warnings(action="error"):
        said = [each.tokens for each in talk(rows, 0)]
    monkeypatch.setattr(flex, "why_not_flex", lambda device: "not here")
    assert said == [each.tokens for each in talk(plain, 0)]


def by_hand(queries: Tensor, keys: Tensor, values: Tensor, blocks: BlockMask) -> tuple[Tensor, Tensor]:
    """The kernel's work in traceable operations: a tracer takes what a mask function reads to be constant."""
    places = torch.arange(keys.shape[2])
    listed = torch.arange(blocks.kv_indices.shape[-1]) < blocks.kv_num_blocks[:, 0, :, None]
    read = torch.zeros_like(listed).scatter(-1, blocks.kv_indices[:, 0].long(), listed)[:, 0, places // BLOCK]
    nought = torch.zeros((), dtype=torch.long)
    mask = read & blocks.mask_mod(torch.arange(len(queries))[:, None], nought, nought, places)
    grouped = queries.reshape(len(queries), keys.shape[1], -1, 1, queries.shape[-1])
    scores = (grouped @ keys.transpose(-1, -2)[:, :, None]) * queries.shape[-1] ** -0.5
    scores = scores.masked_fill(~mask[:, None, None, None], float("-inf"))
    return (scores.softmax(-1) @ values[:, :, None]).flatten(1, 2), scores.logsumexp(-1).flatten(1, 2)


@pytest.mark.parametrize("when", ["it is tried", "it is used"])
@pytest.mark.slow
def test_a_full_memory_says_nothing_of_kernels(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    full, tensors, seen = (
        [when == "it is tried"],
        drawn(2, BLOCK),
        VisibleKeys(torch.ones(2, 1, 1, BLOCK, dtype=torch.bool)),
    )

    def compiled(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            if full[0]:
                raise torch.OutOfMemoryError("full")
            return kernel(*given)

        return run

    monkeypatch.setattr(flex, "_compiled", compiled)
    if when == "it is used":
        attend_blocks(*tensors, seen, SCORINGS["plain"])
        full[0] = True
    with warnings.catch_warnings(action="error"):
        with pytest.raises(torch.OutOfMemoryError):
            attend_blocks(*tensors, seen, SCORINGS["plain"])
        full[0] = False
        found = attend_blocks(*tensors, seen, SCORINGS["plain"])
    torch.testing.assert_close(found, attend(*tensors, seen.mask, SCORINGS["plain"]), rtol=1e-4, atol=1e-5)


def test_an_engine_that_is_too_small_for_a_warm_up_loads_without() -> None:
    engine = Engine.load(store_tokens=8)
    assert engine.backends.compiled
    with pytest.raises(StoreFull):
        engine.decode([Decode(forced=tuple(engine.framing.content.encode("to be or not")))])
    engine.check_integrity()
    assert engine.idle


@pytest.mark.slow
def test_rows_are_handed_over_with_their_bucket(llama: Engine, uncompiled: list[Tensor]) -> None:
    """Whatever the number of rows: every other size would need its own kernel."""
    engine = llama.adapted(None)
    engine.debug.slots.may_share = False
    uncompiled.clear()
    list(talk(engine, 2))
    assert {len(queries) for queries in uncompiled} <= {1, 4, 16}


@pytest.mark.slow
def test_a_kernel_knows_its_number_of_rows_and_serves_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a dynamic number of rows, torch would not use its kernel that reads a row's keys once."""
    compiled = list[tuple[object, object]]()

    def noted(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        queries, keys, *_ = (node.meta["example_value"].shape for node in graph.graph.nodes if _is_tensor(node))
        compiled.append((queries[0], keys[2]))
        return graph.forward

    monkeypatch.setattr(flex, "_compiled", lambda kernel: torch.compile(kernel, backend=noted, fullgraph=True))
    looked = 0
    for length, capacity in ((1, 1), (2, 2), (2, 4), (4, 4), (8, 8), (6, 8), (2, 8)):
        for rows in (1, 4, 16):
            queries, *lanes = drawn(rows, capacity * BLOCK)
            with torch.inference_mode():  # as forwards do; lanes are made outside of it
                mask = torch.ones(rows, 1, 1, length * BLOCK, dtype=torch.bool)
                keys, values = (lane[:, :, : length * BLOCK] for lane in lanes)
                tensors = queries.clone(), keys, values
                found = attend_blocks(*tensors, VisibleKeys(mask), SCORINGS["plain"])
            torch.testing.assert_close(found, attend(*tensors, mask, SCORINGS["plain"]), rtol=1e-4, atol=1e-5)
        looked = looked or len(compiled)
    assert {rows for rows, _ in compiled} == {1, 4, 16}
    assert len(compiled) == looked == 3 * 3


def _is_tensor(node: torch.fx.Node) -> bool:
    return node.op == "placeholder" and isinstance(node.meta["example_value"], Tensor)


@pytest.mark.slow
def test_kernels_are_compiled_when_a_model_is_loaded(uncompiled: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(flex, "why_not_flex", lambda device: "not here")
        plain = Engine.load()
    assert not uncompiled
    engine = Engine.load()
    assert {len(queries) for queries in uncompiled} >= {1, 4, 16}
    assert engine.fullness.used == plain.fullness.used


def test_a_row_of_the_deterministic_profile_has_no_kernel_of_its_own(llama: Engine, uncompiled: list[Tensor]) -> None:
    engine = llama.adapted(None)
    uncompiled.clear()
    (id,) = engine.submit([Decode(forced=(40,) * 9)])
    while not engine.finished(id):
        engine.step(deterministic=True)
    assert not uncompiled


def broken(*_: object) -> Any:
    raise RuntimeError("no compiler was found\nand more of it")


def wrong(queries: Tensor, keys: Tensor, values: Tensor, blocks: object) -> tuple[Tensor, Tensor]:
    return values.new_zeros(*queries.shape[:3], values.shape[3]), queries.new_zeros(queries.shape[:3])


def nothing(queries: Tensor, keys: Tensor, values: Tensor, blocks: BlockMask) -> tuple[Tensor, Tensor]:
    """Correct over one block only."""
    grouped, sums = by_hand(queries, keys, values, blocks)
    return grouped * (1 if keys.shape[2] == BLOCK else torch.nan), sums


def forgetful(queries: Tensor, keys: Tensor, values: Tensor, blocks: BlockMask) -> tuple[Tensor, Tensor]:
    """Ignores the masks and reads the first block for all rows."""
    blocks.kv_indices[..., 0] = 0
    return by_hand(queries, keys, values, blocks)


REFUSALS = [
    (broken, r"fails here \(no compiler was found\)"),
    (wrong, "gives values that are off by 1 of"),
    (nothing, "gives values that are off by nan"),
    (forgetful, "gives values that are off by"),
]


@pytest.mark.parametrize(("kernel", "why"), REFUSALS, ids=["broken", "wrong", "nothing", "forgetful"])
def test_what_fails_or_is_off_is_left_for_plain_attention(
    kernel: Callable[..., Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flex, "_compiled", lambda _: kernel)
    tensors, mask = drawn(2, BLOCK), torch.ones(2, 1, 1, BLOCK, dtype=torch.bool)
    with pytest.warns(UserWarning, match=f"without it.*FlexAttention {why}"):
        found = attend_blocks(*tensors, VisibleKeys(mask), SCORINGS["plain"])
    assert torch.equal(found, attend(*tensors, mask, SCORINGS["plain"]))
    with warnings.catch_warnings(action="error"):
        attend_blocks(*tensors, VisibleKeys(mask), SCORINGS["plain"])

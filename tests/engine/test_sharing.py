"""Rows over the same context share it: one copy, read once a step, and what is said does not change."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.calls.call import Call, EncodingId, Shadow
from agentcho.errors import EngineFailed
from agentcho.runner import slots
from agentcho.runner.attention import attend_both
from agentcho.runner.gate import can_share
from agentcho.runner.slots import SharedContext

from ..engines import Engines
from .broken import dead
from .families import Family

TOLD = ("the quick brown fox jumps over a lazy dog and sleeps for days " * 3, "what does it dream of at night? " * 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "heads", "count"), [(1, 2, 9), (5, 4, 1), (3, 2, 4)])
def test_two_parts_are_weighed_as_one(rows: int, heads: int, count: int, dtype: torch.dtype) -> None:
    shared = tuple(torch.randn(2, 70, 8).to(dtype) for _ in range(2))
    own = tuple(torch.randn(rows, 2, 12, 8).to(dtype) for _ in range(2))
    queries, mask = torch.randn(rows, heads, count, 8).to(dtype) * 3, torch.rand(rows, 1, count, 12) < 0.5
    mask[..., 0] = True
    keys, values = (torch.cat([one.expand(rows, -1, -1, -1), other], 2) for one, other in zip(shared, own, strict=True))
    seen = torch.cat([torch.ones(rows, 1, count, 70, dtype=torch.bool), mask], 3)
    expected = scaled_dot_product_attention(queries, keys, values, attn_mask=seen, scale=0.5, enable_gqa=True)
    found = attend_both(queries, (shared[0], shared[1]), (own[0], own[1]), mask, 0.5)
    assert torch.allclose(found, expected, atol=1e-5 if dtype == torch.float32 else 3e-2)


@pytest.fixture
def both(engines: Engines, family: Family) -> tuple[Engine, Engine]:
    """One that shares where it may, and one that never does."""
    sharing, other = engines(family), engines(family)
    other.debug.slots.may_share = False
    return sharing, other


@pytest.mark.slow
def test_what_rows_say_over_one_context_is_what_each_says_alone(family: Family, both: tuple[Engine, Engine]) -> None:
    def said(engine: Engine) -> tuple[list[Tensor], int]:
        told = engine.prefill([Prefill(text) for text in TOLD])
        calls = [
            Decode(header, told, forced=tuple(range(30, 70 + 4 * n)), logits=True)
            for n, header in enumerate(("", "a:", "so"))
        ]
        ids = engine.submit([*calls, *(Shadow(call, told[::-1]) for call in calls)])
        most = 0
        while not engine.idle:
            engine.step()
            most = max(most, len(engine.debug.shared))
        engine.check_integrity()
        assert not engine.debug.shared
        assert not len(engine.debug.slots)
        keys = [key for id in ids for pair in engine.cached(id) for key in pair]
        return [*(engine.logits(id) for id in ids[:3]), *keys], most

    (found, shared), (expected, never) = (said(engine) for engine in both)
    assert (shared, never) == (2 if can_share(both[0].proofs) else 0, 0)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_rows_that_come_and_go_say_the_same(llama: Engine, seed: int) -> None:
    shared = set[SharedContext]()

    def talk(engine: Engine) -> list[tuple[int, ...]]:
        dice, said = random.Random(seed), list[EncodingId]()
        told = engine.prefill([Prefill(text) for text in TOLD])
        for number in range(60):
            if dice.random() < 0.2:
                read = dice.choice([told, told[:1], told[::-1]])
                sampling = Sampling(max_tokens=dice.randint(1, 20), temperature=dice.choice([0, 1]), seed=number)
                call = Decode(dice.choice(["", "so"]), read, sampling=sampling)
                calls: list[Call] = [
                    call,
                    Decode("and", read, sampling=sampling),
                    *([Shadow(call, told[:1])] if dice.random() < 0.4 else []),
                ]
                ids = engine.submit(calls)
                if dice.random() < 0.2:
                    engine.step()
                    engine.cancel(ids[:1])
                else:
                    said += ids
            engine.step()
            shared.update(engine.debug.shared)
        while not engine.idle:
            engine.step()
        assert not len(engine.debug.slots)
        return [engine.message(id).tokens for id in said]

    plain = llama.adapted(None)
    plain.debug.slots.may_share = False
    assert talk(llama.adapted(None)) == talk(plain)
    assert shared


def test_contexts_of_equal_sizes_are_not_taken_for_each_other(llama: Engine) -> None:
    """Words of others in the same places would be a leak."""

    def said(engine: Engine) -> list[Tensor]:
        words = [engine.framing.content.encode(text)[:70] for text in (TOLD[0] * 2, TOLD[1] * 2)]
        told = engine.prefill([Prefill("", tokens=tuple(each)) for each in words])
        calls = [Decode(header, told[k : k + 1], forced=(40,) * 5, logits=True) for header in "ab" for k in range(2)]
        return [engine.logits(id) for id in engine.decode(calls)]

    plain = llama.adapted(None)
    plain.debug.slots.may_share = False
    for one, other in zip(said(llama.adapted(None)), said(plain), strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_a_context_that_was_gathered_serves_who_comes_later(llama: Engine) -> None:
    engine, plain = llama.adapted(None), llama.adapted(None)
    told = [each.prefill([Prefill(text) for text in TOLD]) for each in (engine, plain)]
    engine.submit([Decode(parents=told[0], forced=(40,) * 9) for _ in range(2)])
    engine.step()
    (shared,) = engine.debug.shared
    (late,) = engine.submit([Decode(parents=told[0], forced=(40, 41) * 15, logits=True)])
    engine.step()
    assert (shared.rows, len(engine.debug.shared)) == (3, 1)
    while not engine.idle:
        engine.step()
    (expected,) = plain.decode([Decode(parents=told[1], forced=(40, 41) * 15, logits=True)])
    assert torch.allclose(engine.logits(late), plain.logits(expected), atol=1e-4)


def test_nothing_is_shared_any_more_after_a_step_that_failed(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context that nobody gathered would be read as zeros."""
    engine, plain = llama.adapted(None), llama.adapted(None)
    told = [each.prefill([Prefill(text) for text in TOLD]) for each in (engine, plain)]
    opened, open = list[object](), engine.debug.slots.open

    def full(*args: object, **options: object) -> object:
        opened.append(args)
        if len(opened) == 3:  # the context, the first row, the second
            raise MemoryError
        return open(*args, **options)

    monkeypatch.setattr(engine.debug.slots, "open", full)
    dead(monkeypatch)
    with pytest.raises(EngineFailed):
        engine.decode([Decode(parents=told[0], forced=(40,)) for _ in range(2)])
    assert not engine.debug.shared
    assert not len(engine.debug.slots)
    (found,) = engine.decode([Decode(parents=told[0], forced=(40,) * 3, logits=True)])
    (expected,) = plain.decode([Decode(parents=told[1], forced=(40,) * 3, logits=True)])
    assert torch.allclose(engine.logits(found), plain.logits(expected), atol=1e-4)


@pytest.mark.parametrize("how", ["alone", "deterministic", "short"])
def test_who_cannot_gain_shares_nothing(llama: Engine, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    engine = llama.adapted(None)
    told = engine.prefill([Prefill(text) for text in TOLD])
    if how == "short":
        monkeypatch.setattr(slots, "LEAST", 10_000)
    engine.submit([Decode(parents=told) for _ in range(1 if how == "alone" else 2)])
    engine.step(deterministic=how == "deterministic")
    assert not engine.debug.shared
    engine.cancel(call.id for call in engine.debug.calls)

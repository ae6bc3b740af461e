"""Rows that read their contexts in the store give the same results as rows that copy them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agentcho import Decode, Engine, Prefill
from agentcho.engine.sequence import SHORT
from agentcho.errors import CallFailed, EngineFailed
from agentcho.protocol.call import Shadow
from agentcho.runner.attention import flex, triton_paged
from agentcho.runner.attention.base import Setting
from agentcho.runner.attention.registry import BACKENDS, Backends
from agentcho.runner.doctor import attention_rows, doctor
from agentcho.runner.graphs import CudaGraphs
from agentcho.runner.kv.decode_kv import Slot
from agentcho.runner.kv.kv_pool import LayerShape, token_bytes
from agentcho.runner.kv.lanes import LANE, LEAST, LanePool, Room
from agentcho.runner.model.device import SPARE

from ..device import PLACE
from ..engines import Engines
from .broken import dead
from .families import SOME, Family, named
from .pretend import Pretend
from .test_graphs import KINDS, Traced, stored, talk

TOLD = ("the quick brown fox jumps over a lazy dog", "what does it dream of at night? ", "and of the wolf? ")


def said(engine: Engine, tokens: int) -> list[torch.Tensor]:
    """The logits of rows that read the same messages at the same positions, elsewhere, twice, and not at all; and the
    keys of what they and a shadow produced."""
    told = engine.prefill([Prefill(text) for text in TOLD])
    reads = [([*told], None), ([told[2], told[0]], [90, 20]), ([told[1], told[1]], None), ([], None)]
    forced = [tuple(range(30 + n, 30 + n + tokens)) for n in range(len(reads))]
    calls = [
        Decode("" if n % 2 else "so", read, offsets, forced=ids, logits=True)
        for n, ((read, offsets), ids) in enumerate(zip(reads, forced, strict=True))
    ]
    ids = engine.submit([*calls, Shadow(calls[0], told[:1])])
    while not engine.idle:
        engine.step()
        engine.check_integrity()
    keys = [key for id in ids for pair in engine.cached(id) for key in pair]
    return [*(engine.logits(id) for id in ids[: len(calls)]), *keys]


@pytest.mark.slow
@pytest.mark.parametrize("kind", named(*SOME, quick="llama"))
def test_they_say_the_same(kind: Family, engines: Engines) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton, on Linux")
    triton_paged.TRIAL.forget()  # discard the results of other tests
    for one, other in zip(said(stored(engines(kind)), 3), said(engines(kind), 3), strict=True):
        assert torch.allclose(one, other, atol=2e-4)
    assert not triton_paged.TRIAL.refused


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_rows_that_come_and_go_say_the_same(kind: Family, seed: int, engines: Engines, by_copies: None) -> None:
    there, plain = stored(engines(kind)), engines(kind)
    assert [each.tokens for each in talk(there, seed)] == [each.tokens for each in talk(plain, seed)]
    there.check_integrity()
    assert not len(there.debug.slots)


def test_a_step_over_pages_that_have_moved_is_another_step(llama: Engine, by_copies: None) -> None:
    """A graph reads the tensors that it was captured over, which are gone once the pools have grown."""
    engine, traced = stored(llama.adapted(None)), Traced()
    engine._runner.graphs = CudaGraphs(engine._model, engine._runner.layers, traced)

    def captured() -> int:
        engine.decode([Decode(forced=(40,) * 9)])
        return traced.captured

    before = captured()
    assert before == captured() > 0
    engine.store.moved += 1
    assert captured() > before


def test_what_is_read_stays_where_it_is_until_the_row_ends(engines: Engines, by_copies: None) -> None:
    engine, plain = stored(engines(store_tokens=200)), engines()
    told = [each.prefill([Prefill(text) for text in TOLD[:1]]) for each in (engine, plain)]
    (id,) = engine.submit([Decode(parents=told[0], forced=(40, 41) * 30, logits=True)])
    engine.step()
    (slot,) = (row.slot for row in engine.debug.rows)
    assert isinstance(slot, Slot)
    assert slot.length < 10 < engine.debug.entry(told[0][0]).length
    entry = engine.debug.entry(told[0][0])
    for number in range(3):
        engine.prefill(f"number {number} of those that need the room of what nobody reads")
        assert entry.pages is not None
    assert engine.fullness.evicted
    assert engine.debug.rows
    while not engine.idle:
        engine.step()
    engine.check_integrity()
    for number in range(3):
        engine.prefill(f"and number {number} of those that need the room of what nobody reads")
    assert entry.pages is None
    (expected,) = plain.decode([Decode(parents=told[1], forced=(40, 41) * 30, logits=True)])
    assert torch.allclose(engine.logits(id), plain.logits(expected), atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [False, True])
def test_a_row_that_guesses_reads_all_of_its_context(
    llama: Engine, kernels: bool, monkeypatch: pytest.MonkeyPatch, by_copies: None
) -> None:
    """Several tokens of a row in one forward, each of which sees those before it."""
    monkeypatch.setattr(flex, "why_not_flex", lambda device: None if kernels else "not here")
    monkeypatch.setattr(
        "agentcho.engine.scheduler.worthwhile_drafts", lambda guesses, *_: [len(g.tokens) for g in guesses]
    )

    def words(engine: Engine) -> list[Any]:
        told = engine.prefill([Prefill(text) for text in TOLD])
        text = tuple(engine.framing.content.encode(TOLD[0] * 2))
        return [engine.logits(id) for id in engine.decode([Decode("so", told, forced=text, logits=True)] * 2)]

    there, plain = stored(llama.adapted(None)), llama.adapted(None)
    plain.debug.slots.may_share = False
    for one, other in zip(words(there), words(plain), strict=True):
        assert torch.allclose(one, other, atol=2e-4)


def test_nothing_stays_pinned_after_a_step_that_failed(
    llama: Engine, monkeypatch: pytest.MonkeyPatch, by_copies: None
) -> None:
    engine = stored(llama.adapted(None))
    told = engine.prefill([Prefill(text) for text in TOLD])
    engine.submit([Decode(parents=told, forced=(40,) * 5) for _ in range(2)])
    engine.step()
    pinned = len(engine._tiers.pins)
    with monkeypatch.context() as patch:
        dead(patch)
        patch.setattr(triton_paged, "attend_stored", lambda *_: 1 / 0)
        with pytest.raises(EngineFailed):
            engine.step()
    engine.check_integrity()
    assert len(engine._tiers.pins) == pinned - 2
    assert not len(engine.debug.slots)


def test_shadows_read_in_place_and_the_deterministic_profile_has_copies(llama: Engine, by_copies: None) -> None:
    engine = stored(llama.adapted(None))
    told = engine.prefill([Prefill(text) for text in TOLD])
    call = Decode(parents=told, forced=(40,) * 2 * SHORT)
    engine.submit([call, Shadow(call, told[:1])])
    for _ in range(SHORT + 2):
        engine.step(deterministic=True)
    held = [row.slot.stored for row in engine.debug.rows if row.slot is not None]
    assert held
    assert not any(held)
    engine.cancel(row.id for row in engine.debug.calls)
    engine.submit([call, Shadow(call, told[:1])])
    for _ in range(SHORT + 2):
        engine.step()
    assert [len(row.slot.stored) for row in engine.debug.rows if row.slot is not None] == [4, 2]  # including the BOS
    engine.cancel(row.id for row in engine.debug.calls)


def test_after_a_refusal_new_rows_have_copies(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_paged.TRIAL, "refused", {llama._model.device: "pretended"})
    engine = stored(llama.adapted(None))
    engine.submit([Decode(parents=engine.prefill([Prefill(TOLD[0])]), forced=(40,) * 5)])
    engine.step()
    assert not any(row.slot.stored for row in engine.debug.rows if row.slot is not None)
    engine.cancel(row.id for row in engine.debug.calls)


CUDA = Setting(torch.device("cuda"), frozenset([torch.device("cuda")]), plain=True)


@pytest.mark.parametrize("refused", [(), ("triton-paged",), ("triton-paged", "flex")], ids=len)
def test_doctor_names_every_backend_and_why_it_is_not_used(
    refused: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_paged, "find_spec", lambda name: name)
    for trial, name in ((triton_paged.TRIAL, "triton-paged"), (flex.TRIAL, "flex")):
        monkeypatch.setattr(trial, "refused", {CUDA.device: "it fails here"} if name in refused else {})
    found = {row.result: row.detail for row in attention_rows(Backends(CUDA))}
    assert list(found) == [each.name for each in BACKENDS] == ["triton-paged", "shared-prefix", "flex", "dense"]
    assert {name for name, detail in found.items() if detail == "not used: it fails here"} == {*refused}
    assert found["shared-prefix"] == "not used: torch gives no sums of weights on cuda"


def test_doctor_says_why_on_a_processor() -> None:
    found = {row.result: row.detail for row in doctor(device="cpu", kv_dtype="int8").rows if row.check == "attention"}
    assert "8 bits" in found["triton-paged"]
    assert "FlexAttention is no faster on cpu" in found["flex"]
    assert not found["shared-prefix"].startswith("not used")
    assert not found["dense"].startswith("not used")


def test_lanes_take_what_memory_there_is_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capacity doubles if there is room and grows minimally if memory is short; a refused request changes nothing."""
    free, layers = [1 << 40], [LayerShape(2, 4, 6)] * 3
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("agentcho.runner.model.device.free_memory", lambda device: free[0])
    with Pretend():
        a_block = LANE * token_bytes(layers, torch.float32)
        pool = LanePool(layers, torch.device("cuda", 0), torch.float32, several=True, room=Room(4, 4, 256))
        slot = pool.open()
        pool.ensure(slot, 4 * LANE)
        assert len(pool.positions) == 8
        free[0] = SPARE + 16 * a_block - 1
        pool.ensure(slot, 8 * LANE)
        assert len(pool.positions) == 9
        free[0] = LEAST + 11 * a_block - 1
        before = pool.serial, pool.keys[0].data_ptr(), [*slot.blocks], slot.capacity
        with pytest.raises(CallFailed, match="cuda:0 has no memory left for 256 more tokens of running calls"):
            pool.ensure(slot, 10 * LANE)
        assert before == (pool.serial, pool.keys[0].data_ptr(), slot.blocks, slot.capacity)
        free[0] += 1
        pool.ensure(slot, 10 * LANE)
        assert len(pool.positions) == 11


def test_a_call_whose_words_find_no_memory_is_refused_and_others_go_on(
    llama: Engine, by_copies: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = stored(llama.adapted(None))
    engine._runner.slots._room = Room(4, 3, 256)
    monkeypatch.setattr("agentcho.runner.kv.lanes.has_room", lambda device, size, spare: False)
    told, failed = engine.prefill([Prefill(TOLD[0])]), dict[int, Exception]()
    (long,) = engine.submit([Decode(parents=told, forced=(40,) * 200)])
    for _ in range(9):
        engine.step()
    (other,) = engine.submit([Decode(parents=told, forced=(41,) * 200)])
    while not engine.idle:
        failed |= {each.id: each.error for each in engine.step().failed}
        engine.check_integrity()
    assert [*failed] == [long]
    assert isinstance(failed[long], CallFailed)
    assert "run fewer calls at once" in str(failed[long])
    assert engine.message(other).stopped == "forced"
    assert not len(engine.debug.slots)


def test_rows_that_come_and_grow_keep_what_they_have_and_leave_nothing() -> None:
    """Tensors are replaced only if there is no room left."""
    pool = LanePool([LayerShape(2, 4, 6)] * 3, PLACE, torch.float32, several=True, room=Room(4, 6, 256))
    first, kept = pool.serial, list[list[tuple[torch.Tensor, torch.Tensor]]]()
    slots = [pool.open() for _ in range(3)]
    for slot in slots:
        pool.ensure(slot, LANE + 1 if slot is slots[0] else LANE)
        own = [(torch.randn(2, 100, 4).to(PLACE), torch.randn(2, 100, 6).to(PLACE)) for _ in range(3)]
        kept.append(own)
        for layer, (keys, values) in enumerate(own):
            slot.put(layer, 10, keys, values)
        slot.place(0, torch.arange(7, 7 + LANE).to(PLACE))
    assert pool.serial == first
    pool.ensure(slots[1], 5 * LANE)
    assert pool.serial != first
    more = [pool.open() for _ in range(9)]
    for slot, pairs in zip(slots, kept, strict=True):
        for (keys, values), (k, v) in zip(pairs, slot.all(10, 110), strict=True):
            assert torch.equal(keys, k)
            assert torch.equal(values, v)
        assert slot.positions(LANE).tolist() == [*range(7, 7 + LANE)]
    long = torch.randn(2, 3 * LANE, 4).to(PLACE)
    slots[1].put(0, 120, long, torch.zeros(2, 3 * LANE, 6).to(PLACE))
    assert torch.equal(slots[1].get(0, 120, 120 + 3 * LANE)[0], long)
    for slot in (*slots, *more):
        pool.close(slot)
    assert not any(each.any() for each in (*pool.keys, *pool.values))
    assert len(pool.slots) == 0

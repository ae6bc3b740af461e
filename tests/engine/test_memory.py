"""A store too small for what a workflow keeps: evicted encodings come back or are recomputed; results are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.engine.call_layout import KVEntry
from agentcho.errors import EngineFailed, LeakageError, StoreDamaged, StoreFull, UnknownEncoding
from agentcho.protocol.call import Call, EncodingId, Repair, Shadow
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.top_k import TopK
from agentcho.runner.kv.kv_pool import ALIGNED, LayerShape, PagePool, zeros
from agentcho.runner.model.model import Model

from ..device import PLACE
from .broken import dead
from .pretend import Pretend

Small = Callable[..., Engine]
ROOM = 1 << 14
GREEDY = Sampling(max_tokens=6, temperature=0)
LONG = "a rather long message, of many tokens " * 2


@pytest.fixture
def small(llama: Engine) -> Small:
    """Engines on the network of `llama`, each with its own store."""

    def load(store_tokens: int = ROOM, host_tokens: int = 0) -> Engine:
        return Engine(llama._model, llama.framing, llama.proofs, store_tokens, host_tokens, llama.context)

    return load


def burst(rng: Random, ids: Sequence[EncodingId], shadows: bool) -> list[Call]:
    """Several calls at once, each over some of these encodings."""

    def over() -> list[EncodingId]:
        return rng.sample(ids, min(len(ids), rng.randint(0, 3)))

    def call() -> Call:
        words = "".join(rng.choice("abcdefgh ") for _ in range(rng.randint(3, 14)))
        kind = rng.choice(["prefill", "prefill", "decode", "repair"])
        if kind == "repair" and ids:
            return Repair(rng.choice(ids), FirstK(3) if rng.random() < 0.5 else TopK(0.4), over())
        if kind == "decode":
            return Decode(words, over(), sampling=GREEDY, logits=True)
        return Prefill(words, over(), new_offset=rng.choice([None, None, 70]))

    calls = [call() for _ in range(rng.randint(1, 3))]
    spoken = [each for each in calls if isinstance(each, Decode)] if shadows else []
    return [*calls, *(Shadow(each, over()) for each in spoken[:1])]


def play(engine: Engine, deterministic: bool = False) -> list[EncodingId]:
    """A workflow of about 60 short messages over each other, checked as it runs. The deterministic profile gets no
    shadows: how many tokens a shadow feeds at once depends on when it starts."""
    rng, ids = Random(1), list[EncodingId]()
    for _ in range(24 if deterministic else 20):
        engine.submit(burst(rng, ids, shadows=not deterministic))
        while not engine.idle:
            result = engine.step(deterministic)
            assert not result.failed
            ids += map(int, result.finished)  # plain numbers, which every engine accepts
        engine.check_integrity()
        ids.sort()
    return ids


def drain(engine: Engine, deterministic: bool = False) -> list[EncodingId]:
    """Step until idle; the finished ids, in order."""
    return [id for _ in iter(lambda: engine.idle, True) for id in engine.step(deterministic).finished]


def run(engine: Engine, *calls: Call) -> tuple[EncodingId, ...]:
    """Run the calls in the deterministic profile; returns their ids."""
    ids = engine.submit(calls)
    drain(engine, deterministic=True)
    return ids


def entry(engine: Engine, id: EncodingId) -> KVEntry:
    return engine.debug.entry(id)


def rows(engine: Engine, ids: Sequence[EncodingId]) -> list[Tensor]:
    """The logits that every decode chose from."""
    return [engine.logits(id) for id in ids if engine.debug.encodings[id].logits]


def whole(engine: Engine, ids: Sequence[EncodingId]) -> list[Tensor]:
    """All keys and values of these encodings."""
    return [part for id in ids for pair in engine.cached(id) for part in pair]


def same(one: Sequence[Tensor], other: Sequence[Tensor], apart: float = 0) -> bool:
    """Equal bit for bit, or within `apart`."""
    pairs = list(zip(one, other, strict=True))
    return all(torch.equal(a, b) if apart == 0 else torch.allclose(a, b, atol=apart) for a, b in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "deterministic", [pytest.param(False, id="fast"), pytest.param(True, id="deterministic", marks=pytest.mark.slow)]
)
def test_a_workflow_of_four_times_the_store_says_the_same(small: Small, deterministic: bool) -> None:
    roomy, apart = small(), 0 if deterministic else 1e-4
    ids = play(roomy, deterministic)
    assert sum(len(roomy.message(id).tokens) for id in ids) >= 4 * 160
    assert roomy.fullness.evicted == 0
    for host in (0, 100, ROOM):
        tight = small(160, host)
        assert play(tight, deterministic) == ids
        full = tight.fullness
        assert full.evicted > 0
        assert (full.remade > 0, full.dropped > 0) == (host < ROOM, host < ROOM)
        assert full.host_used <= host
        assert full.high_water <= full.limit == 160 // full.page_tokens
        assert [roomy.message(id) for id in ids] == [tight.message(id) for id in ids]
        assert [roomy.receipt(id) for id in ids] == [tight.receipt(id) for id in ids]
        assert same(rows(roomy, ids), rows(tight, ids), apart)
        assert same(whole(roomy, ids[::6]), whole(tight, ids[::6]), apart)
        tight.release(ids)
        tight.check_integrity()
        assert (tight.fullness.used, tight.fullness.host_used) == (1, 0)


def test_what_was_made_over_released_messages_is_made_again(small: Small) -> None:
    engine = small(128)
    first, second = run(engine, one := Prefill("one"), two := Prefill("two", [one]))
    [said] = run(engine, Decode("So ", [first, second], sampling=GREEDY))
    [repaired] = run(engine, Repair(said, TopK(0.5), [second]))
    before = whole(engine, [said, repaired])
    engine.release([first, second])
    held = engine.fullness.used
    engine.swap_out([said, repaired])
    assert (engine.fullness.used, engine.fullness.dropped) == (1, 2)
    engine.check_integrity()
    assert same(whole(engine, [said, repaired]), before)
    assert engine.fullness.used == held
    assert engine.fullness.remade == 4 + 2
    engine.check_integrity()
    del two


@pytest.mark.parametrize("host", [0, ROOM])
def test_an_idle_workflow_is_swapped_out_whole_and_comes_back(small: Small, host: int) -> None:
    engine = small(ROOM, host)
    ids = run(engine, one := Prefill(LONG), Prefill("two", [one]), Decode("So ", [one], sampling=GREEDY))
    before, own = whole(engine, ids), sum(len(engine.message(id).tokens) for id in ids)
    engine.swap_out(ids)
    assert (engine.fullness.used, engine.fullness.host_used) == (1, own if host else 0)
    engine.swap_out(ids)
    engine.check_integrity()
    [said] = run(engine, Decode("And ", ids, sampling=GREEDY))
    assert engine.fullness.host_used == 0
    assert same(whole(engine, ids), before)
    again = small()
    run(again, one := Prefill(LONG), Prefill("two", [one]), Decode("So ", [one], sampling=GREEDY))
    [other] = run(again, Decode("And ", [*map(int, ids)], sampling=GREEDY))
    assert same(whole(engine, [said]), whole(again, [other]))
    with pytest.raises(UnknownEncoding):
        engine.swap_out([99])


def test_the_least_recently_used_leaves_first(small: Small) -> None:
    engine = small(96, ROOM)
    first, second, third = (engine.prefill(f"number {n} " + "x" * 15) for n in range(3))
    engine.score("so", parents=[first])
    engine.prefill("y" * 30)
    outside = [id for id in (first, second, third) if entry(engine, id).host is not None]
    assert outside[0] == second
    assert first not in outside
    engine.check_integrity()


def test_the_oldest_copy_is_dropped_first(small: Small) -> None:
    engine = small(ROOM, 40)
    ids = [engine.prefill(f"number {n}") for n in range(4)]
    size = len(engine.message(ids[0]).tokens)
    engine.swap_out(ids)
    kept = [id for id in ids if entry(engine, id).host is not None]
    assert kept == ids[-(40 // size) :]
    assert (engine.fullness.host_high_water, engine.fullness.dropped) == (engine.fullness.host_used, 4 - len(kept))
    engine.check_integrity()


def test_what_can_never_fit_is_refused_before_anything_is_computed(small: Small) -> None:
    engine = small(100)
    ids = [engine.prefill(f"number {n} " + "x" * 20) for n in range(4)]
    before = engine.fullness
    size = sum(len(engine.message(id).tokens) for id in ids)
    calls: list[Call] = [
        Prefill("y" * 60, ids[:2]),
        Decode(parents=ids[:1], sampling=Sampling(max_tokens=80)),
        Prefill("z", ids),
    ]
    for call in calls:
        with pytest.raises(StoreFull, match=r"room for 100; lower max_tokens.*store_tokens=\d+") as refused:
            engine.submit([Prefill("fits"), call])
        assert refused.value.room == 100 < refused.value.needed < 200
    assert refused.value.needed >= size
    with pytest.raises(StoreFull):
        engine.score("so", parents=ids)
    assert (engine.fullness, engine.idle) == (before, True)
    engine.check_integrity()


def test_a_list_longer_than_the_store_is_encoded_bit_by_bit(small: Small) -> None:
    engine, calls = small(64), [Prefill(f"number {n}") for n in range(20)]
    assert len(engine.prefill(calls)) == 20
    assert engine.fullness.remade == 0
    engine.check_integrity()


def test_a_call_waits_for_room_and_none_overtakes_it(small: Small) -> None:
    engine = small(128)
    slow, large, little = engine.submit(
        [
            Decode("slow", sampling=Sampling(max_tokens=60, temperature=0)),
            Decode("large", sampling=Sampling(max_tokens=60, temperature=0)),
            Prefill("little"),
        ]
    )
    assert engine.step().finished == ()
    assert (engine.rows, engine.fullness.used) == (1, 1)
    engine.check_integrity()
    assert drain(engine)[0] == slow
    both = engine.submit([Decode(sampling=Sampling(max_tokens=90)), Decode("large", sampling=Sampling(max_tokens=60))])
    engine.step()
    engine.cancel(both[1:])
    engine.check_integrity()
    engine.cancel(both)
    engine.check_integrity()
    assert (engine.idle, engine.rows, engine.fullness.reserved) == (True, 0, 0)
    alone = small()
    again = alone.decode("large", sampling=Sampling(max_tokens=60, temperature=0))
    assert alone.message(again).tokens == engine.message(large).tokens
    engine.message(little)


def test_what_a_speaker_has_gathered_makes_room_while_it_speaks(small: Small) -> None:
    engine = small(128)
    told = engine.prefill(Prefill("", tokens=(40,) * 50))
    [speaker] = engine.submit([Decode(parents=[told], forced=(41,) * 20)])
    engine.step()
    [other] = engine.submit([Prefill("", tokens=(42,) * 50)])
    finished = list[EncodingId]()
    while not engine.idle:
        finished += engine.step().finished
    assert finished == [other, speaker]
    engine.check_integrity()


def chain(engine: Engine) -> list[EncodingId]:
    """A chain of messages, each over the one before, all swapped out."""
    ids = list[EncodingId]()
    for n in range(5):
        ids.append(engine.prefill(f"number {n}", parents=ids[-1:]))
    engine.swap_out(ids)
    assert engine.fullness.used == 1
    return ids


@pytest.mark.parametrize("which", range(5))
def test_a_forward_that_fails_on_the_way_leaves_nothing_pinned(
    small: Small, which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, real, forwards = small(ROOM), Model.forward, list[int]()
    ids = chain(engine)

    def fails(*args: Any) -> Tensor:
        forwards.append(1)
        return real(*args) if len(forwards) <= which else torch.zeros(0)[1]

    engine.submit([Decode(parents=[ids[4]], sampling=GREEDY), Prefill("more", [ids[4]])])
    with monkeypatch.context() as patch:
        patch.setattr(Model, "forward", fails)
        dead(patch)
        with pytest.raises(EngineFailed, match="IndexError"):
            engine.step()
    engine.check_integrity()
    assert (engine.idle, engine.rows, engine.fullness.reserved) == (True, 0, 0)
    assert engine._tiers.pinned.total() == 1
    other = small()
    assert same(whole(engine, ids), whole(other, chain(other)))


def test_nothing_comes_back_for_a_call_that_is_refused(small: Small) -> None:
    class Shut:
        def admit(self, id: EncodingId, context: Sequence[EncodingId]) -> None:
            assert (engine.fullness.used, context) == (1, [ids[4]])
            raise LeakageError("bob", ("alice.1", "alice.0"))

    engine = small()
    ids = chain(engine)
    engine.submit([Prefill("x", [ids[4]], guard=Shut()), Decode("y", [ids[4]], guard=Shut())])
    assert [type(failure.error) for failure in engine.step().failed] == [LeakageError] * 2
    assert (engine.fullness.used, engine.fullness.remade, engine.step().encoded) == (1, 0, 0)
    engine.check_integrity()


def test_an_equal_call_shares_what_has_left_the_store(small: Small) -> None:
    for host in (0, ROOM):
        engine = small(ROOM, host)
        first = engine.prefill(LONG)
        engine.swap_out([first])
        second = engine.prefill(LONG)
        assert entry(engine, first) is entry(engine, second)
        engine.release([first])
        assert engine.score("so", parents=[second]).isfinite().all()
        engine.check_integrity()


def test_what_nobody_holds_any_more_is_encoded_with_its_next_reader_and_not_made_again_before(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoding made from it still refers to it, which is no reason to recompute it early."""
    engine, forwards = small(), list[int]()
    first = engine.prefill(LONG)
    made_from = engine.prefill("so", parents=[first])
    engine.release([first])
    calls = Prefill(LONG), Prefill("and so on")
    ids = engine.submit([*calls, Decode("", calls, forced=())])
    forward = engine._model.forward

    def counted(*words: Any) -> Any:
        forwards.append(1)
        return forward(*words)

    monkeypatch.setattr(engine._model, "forward", counted)
    assert set(engine.step().finished) >= set(ids[:2])
    assert (len(forwards), engine.fullness.remade) == (1, 0)
    engine.swap_out([made_from])
    assert engine.score("so", parents=[made_from]).isfinite().all()
    engine.check_integrity()


def test_on_the_way_copies_go_beyond_the_limit_and_no_further(small: Small) -> None:
    """Two messages are read at once, each made over others: with those, there is room for only one at a time."""

    def read_both(engine: Engine) -> tuple[EncodingId, list[EncodingId]]:
        ids, made = list[EncodingId](), list[EncodingId]()
        for n in range(2):
            below = run(engine, *(Prefill(f"{n} {m} " + "abcdefgh" * 4) for m in range(2)))
            [both] = run(engine, Prefill(f"{n} over these", below))
            made += [*below, both]
            ids.append(both)
        engine.swap_out(made)
        return run(engine, Decode(parents=ids, sampling=GREEDY))[0], made

    roomy = small()
    said, made = read_both(roomy)
    tight = small(sum(len(roomy.message(id).tokens) for id in made[:3]) + 6)
    again, _ = read_both(tight)
    assert same(whole(roomy, [said]), whole(tight, [again]))
    full = tight.fullness
    assert (full.remade, full.host_used, full.host_high_water > 0) == (6, 0, True)
    tight.check_integrity()


# -- damage --------------------------------------------------------------------------------------------------


def flip(engine: Engine, id: EncodingId) -> None:
    engine.store._values[2][entry(engine, id).block.rows[1], 0, 0] += 1


def copied(engine: Engine, id: EncodingId) -> None:
    engine.swap_out([id])
    copy = entry(engine, id).host
    assert copy is not None
    copy[1][0][0, 0, 0] += 1


def lose(engine: Engine, id: EncodingId) -> None:
    engine.store.free_pages.pop()


def double(engine: Engine, id: EncodingId) -> None:
    engine.store.free_pages.append(entry(engine, id).block.numbers[0])


def renamed(engine: Engine, id: EncodingId) -> None:
    entry(engine, id).key = bytes(32)


def displaced(engine: Engine, id: EncodingId) -> None:
    entry(engine, id).position += 1


def reworded(engine: Engine, id: EncodingId) -> None:
    encoding = engine.debug.encodings[id]
    encoding.words = encoding.words._replace(tokens=(*encoding.words.tokens[:-1], 7))


def attributed(engine: Engine, id: EncodingId) -> None:
    encoding = engine.debug.encodings[id]
    encoding.receipt = encoding.receipt._replace(context=())


def forgotten(engine: Engine, id: EncodingId) -> None:
    entry(engine, id).recipe = None


def unmade(engine: Engine, id: EncodingId) -> None:
    entry(engine, id).sources[1].written = 0


def held(engine: Engine, id: EncodingId) -> None:
    entry(engine, id).holders += 1


def pinned(engine: Engine, id: EncodingId) -> None:
    engine._tiers.pinned[entry(engine, id)] += 1


def promised(engine: Engine, id: EncodingId) -> None:
    engine.store.reserve(9)


DAMAGE: dict[Callable[[Engine, EncodingId], None], str] = {
    flip: "have changed", copied: "have changed", lose: "a page is lost", double: "two places", renamed: "label",
    displaced: "label", reworded: "other words", attributed: "another receipt", forgotten: "no recipe",
    unmade: "made again", held: "holders", pinned: "pins", promised: "promised",
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damage_is_found(small: Small, damage: Callable[[Engine, EncodingId], None]) -> None:
    engine = small(ROOM, ROOM)
    one, two = engine.prefill([first := Prefill("one"), Prefill("two " * 3, [first])])
    engine.check_integrity()
    damage(engine, two)
    with pytest.raises(StoreDamaged, match=DAMAGE[damage]):
        engine.check_integrity()
    assert one


def test_what_was_damaged_outside_does_not_come_back_but_is_made_again(small: Small) -> None:
    engine = small(ROOM, ROOM)
    one, two = engine.prefill("one"), engine.prefill("two")
    copied(engine, two)
    beside = Decode("beside", [one], forced=(40, 41))
    over, lives = engine.submit([Prefill("over", [one, two]), beside])
    [failure] = engine.step().failed
    assert (failure.id, type(failure.error)) == (over, StoreDamaged)
    assert "copy in host memory has changed" in str(failure.error)
    while not engine.idle:
        engine.step()
    assert engine.message(lives).stopped == "forced"
    assert engine.score("so", parents=[one]).isfinite().all()
    again, fresh = engine.cached(two), small(ROOM, ROOM)
    for (k, v), (one_k, one_v) in zip(again, fresh.cached(fresh.prefill("two")), strict=True):
        assert torch.equal(k, one_k)
        assert torch.equal(v, one_v)
    assert engine.fullness.remade == 1
    engine.check_integrity()


def test_what_was_damaged_in_the_store_does_not_leave_it(small: Small) -> None:
    engine = small(ROOM, ROOM)
    one = engine.prefill("one")
    engine.check_integrity()
    flip(engine, one)
    with pytest.raises(StoreDamaged, match="in the store have changed"):
        engine.swap_out([one])


# -- overhead ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [30, 100, 400])
def test_the_store_takes_no_more_than_a_tenth_over_what_it_stores(small: Small, length: int) -> None:
    store, rng, most = small(1 << 16).store, Random(length), list[float]()
    while store.used < 12_000:
        store.allocate(rng.randint(length // 2, length * 3 // 2))
        most.append(store.overhead)
    assert max(most[len(most) // 4 :]) <= 0.1


@pytest.mark.parametrize("rows", [1, 7, 1 << 20])
def test_memory_that_is_all_zeros_begins_where_torch_has_its_own_begin(rows: int) -> None:
    """Kernels may compute in another order at other alignments, so a recomputed message would have other last bits."""
    found = zeros((rows, 3), PLACE, torch.float32)
    assert found.shape == (rows, 3)
    assert found.data_ptr() % ALIGNED == 0
    assert not found.any()


def test_pools_on_a_cpu_stay_where_they_are() -> None:
    store = PagePool([LayerShape(2, 4, 6)] * 2, 4096, torch.device("cpu"), torch.float32)
    places = [pool.data_ptr() for pool in store._keys]
    while store.room:
        store.allocate(64)
    assert [pool.data_ptr() for pool in store._keys] == places


@pytest.mark.parametrize("limit", [10**13, 10**17, 10**20])
def test_a_limit_beyond_all_memory_is_none(limit: int) -> None:
    store = PagePool([LayerShape(2, 4, 6)] * 2, limit, PLACE, torch.float32)
    assert store.allocate(3).length == 3


def test_a_store_that_is_not_promised_all_its_memory_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    def little(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
        if shape[0]:
            raise MemoryError
        return torch.zeros(shape, device=device, dtype=dtype)

    def some(*shape: int) -> Tensor:
        return torch.randn(shape).to(PLACE)

    monkeypatch.setattr("agentcho.runner.kv.kv_pool.zeros", little)
    store = PagePool([LayerShape(2, 4, 6)] * 2, 4096, PLACE, torch.float32)
    written = {}
    for length in (3, 40, 200, 7):
        block = store.allocate(length)
        written[block] = pairs = [(some(2, length, 4), some(2, length, 6)) for _ in range(2)]
        store.write_all(block, pairs)
    for block, pairs in written.items():
        for layer, (keys, values) in enumerate(pairs):
            assert [x.tolist() for x in store.read(block, layer)] == [keys.tolist(), values.tolist()]


@pytest.mark.parametrize(("free", "moved"), [(1 << 40, 0), (1 << 30, 3)], ids=["all of it", "not all of it"])
def test_a_gpu_gives_the_memory_of_a_store_at_once(free: int, moved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it has that much. Graphs are captured over the tensors of the pools, which then never change."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("agentcho.runner.model.device.free_memory", lambda device: free)
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: None)
    with Pretend():
        store = PagePool([LayerShape(2, 4, 6)] * 2, 4096, torch.device("cuda", 0), torch.float32)
        before = [pool.data_ptr() for pool in store._keys]
        for length in (3, 400, 2000):
            store.allocate(length)
        assert store.moved == moved
        assert ([pool.data_ptr() for pool in store._keys] == before) is (moved == 0)


def test_pools_that_find_no_memory_to_grow_have_moved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of their tensors are gone, over which a graph may have been captured."""
    monkeypatch.setattr("agentcho.runner.kv.kv_pool.has_room", lambda device, size: False)
    store, cat, made = PagePool([LayerShape(2, 4, 6)] * 2, 4096, PLACE, torch.float32), torch.cat, list[Tensor]()
    store.allocate(3)
    before = store.moved

    def little(tensors: list[Tensor]) -> Tensor:
        if made:
            raise MemoryError
        made.append(cat(tensors))
        return made[0]

    monkeypatch.setattr("torch.cat", little)
    with pytest.raises(MemoryError):
        store.allocate(400)
    assert made
    assert store.moved > before


class Moved(TorchFunctionMode):
    """Counts copies between devices, and all other operations over GPU tensors."""

    def __init__(self) -> None:
        self.copies, self.operations = 0, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        over = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        kinds = {each.device.type for each in over} | {each.type for each in args if isinstance(each, torch.device)}
        self.copies += name in ("copy_", "to") and len(kinds) == 2
        self.operations += name in ("index_select", "__setitem__") and "cuda" in kinds
        return func(*args, **kwargs)


@pytest.mark.parametrize("rounding", [False, True])
@pytest.mark.parametrize("staged", [1 << 27, 3000])
def test_many_encodings_leave_and_enter_a_gpu_in_as_many_copies_as_one(
    rounding: bool, staged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each layer is read once and written once for all of them, and all are unchanged bit for bit."""
    monkeypatch.setattr("agentcho.runner.kv.kv_pool.STAGED", staged)
    layers, lengths = [LayerShape(2, 4, 6)] * 3, (3, 40, 1, 9)
    with Pretend():
        store = PagePool(layers, 4096, torch.device("cuda", 0), torch.float32, rounding=rounding)
        pages = [store.allocate(length) for length in lengths]
        for each in pages:
            made = [(torch.randn(2, each.length, d).to(store.devices[0]) for d in (4, 6)) for _ in layers]
            store.write_all(each, [(keys, values) for keys, values in made])
        with Moved() as out:
            copies = store.copy_out(pages)
        others = [store.allocate(length) for length in lengths]
        with Moved() as back:
            store.copy_in([*zip(others, copies, strict=True)])
        for moved in (out, back):
            assert moved.operations == 2 * len(layers)
            assert moved.copies == 1 if staged > 3000 else 1 < moved.copies <= 2 * len(layers)
        for one, other, copy in zip(pages, others, copies, strict=True):
            assert [store.checksum(each) for each in store.copy_out([other, one])] == [store.checksum(copy)] * 2
            for layer in range(len(layers)):
                for mine, its in zip(store.read(one, layer), store.read(other, layer), strict=True):
                    assert torch.equal(mine, its)
        spread = [layers[0], layers[0]._replace(device=torch.device("cuda", 1))]
        assert PagePool(spread, 64, torch.device("cuda", 0), torch.float32, rounding=rounding).copy_out([]) == []


def test_what_makes_room_leaves_at_once_and_what_is_needed_comes_at_once(small: Small) -> None:
    engine = small(ROOM, ROOM)
    ids = [engine.prefill(f"number {number}") for number in range(6)]
    calls, store = list[int](), engine.store
    out, back = store.copy_out, store.copy_in

    def leave(pages: Sequence[Any]) -> Any:
        calls.append(len(pages))
        return out(pages)

    def enter(copies: Sequence[Any]) -> None:
        calls.append(-len(copies))
        back(copies)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "copy_out", leave)
        patch.setattr(store, "copy_in", enter)
        engine.swap_out(ids)
        assert engine.score("so", parents=ids[1:]).isfinite().all()
        engine.swap_out(ids[1:])
        engine._tiers._make_room(store.limit - 1)
        assert calls == [6, -5, 5]
    engine.check_integrity()


def test_of_several_that_are_needed_the_damaged_one_alone_is_made_again(small: Small) -> None:
    engine = small(ROOM, ROOM)
    ids = [engine.prefill(f"number {number}") for number in range(3)]
    engine.swap_out(ids)
    copied(engine, ids[1])
    engine.submit([Prefill("over", ids)])
    assert [type(failure.error) for failure in engine.step().failed] == [StoreDamaged]
    engine.check_integrity()
    assert [entry(engine, id).host is not None for id in ids] == [True, False, True]
    assert engine.score("so", parents=ids).isfinite().all()
    assert engine.fullness.remade == 1


def test_what_could_not_come_back_is_made_again(small: Small) -> None:
    engine = small(ROOM, ROOM)
    ids = [engine.prefill(f"number {number}") for number in range(3)]
    kept = whole(engine, ids)
    engine.swap_out(ids)

    def fails(copies: object) -> None:
        raise RuntimeError("out of memory")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.store, "copy_in", fails)
        with pytest.raises(RuntimeError):
            engine.score("so", parents=ids)
    engine.check_integrity()
    assert engine.fullness.used == 1
    assert same(whole(engine, ids), kept)
    assert engine.fullness.remade == 3


def test_what_is_read_again_and_again_is_gathered_so_often(small: Small) -> None:
    """One call could take more memory than the whole store, however close together it places what it reads."""
    engine = small(256)
    told = engine.prefill(LONG)
    length = len(engine.message(told).tokens)
    fits, over = 200 // length, 256 // length + 1
    for call in (Prefill("x", [told] * over, [1] * over), Decode("x", [told] * over, [1] * over, sampling=GREEDY)):
        with pytest.raises(StoreFull):
            engine.submit([call])
    again = engine.prefill(Prefill("x", [told] * fits, [1] * fits))
    engine.release([told, again])
    assert (engine.fullness.used, engine.idle) == (1, True)

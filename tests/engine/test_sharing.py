"""Rows that share context read one copy of it, once a step, and give the same results."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.engine.call_layout import CallContext, ContextPiece, KVEntry
from agentcho.errors import EngineFailed
from agentcho.protocol.call import Call, EncodingId, Shadow
from agentcho.runner import slots
from agentcho.runner.attention.dense import added
from agentcho.runner.attention.shared_prefix import SharedRuns
from agentcho.runner.kv import shared_runs
from agentcho.runner.kv.decode_kv import Reading, SharedRun, Slot, tokens
from agentcho.runner.kv.kv_pool import LayerShape
from agentcho.runner.kv.rope import Rotation
from agentcho.runner.slots import Slots

from ..device import on_processor
from ..engines import Engines
from .broken import dead
from .families import Family

TOLD = ("the quick brown fox jumps over a lazy dog and sleeps for days " * 3, "what does it dream of at night? " * 3)


ROTATION = Rotation("half", torch.tensor([1.0, 0.1, 0.01], dtype=torch.float64), first=2)
"""Rotates six of 8 dimensions."""


def apiece(tokens: int, position: int = 0) -> KVEntry:
    return KVEntry(b"", position, tokens)


def gathered(tokens: int, dtype: torch.dtype) -> SharedRun:
    """A run with random keys and values: one layer, two heads."""
    slots = Slots([LayerShape(2, 8, 8)], torch.device("cpu"), dtype)
    run = SharedRun((ContextPiece(1, apiece(tokens), 0),), slots.open(tokens, alone=True))
    for each in run.slot.get(0, 0, tokens):
        each.copy_(torch.randn(each.shape))
    return run


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "heads", "count"), [(1, 2, 9), (5, 4, 1), (3, 2, 4)])
def test_runs_that_are_read_in_place_weigh_as_their_keys_turned_and_copied(
    rows: int, heads: int, count: int, dtype: torch.dtype
) -> None:
    """Each row by itself, over one tensor of all its visible keys, each moved to its position for the row."""
    runs, dice = [gathered(tokens, dtype) for tokens in (70, 9, 31)], random.Random(rows)
    own = tuple(torch.randn(rows, 2, 12, 8).to(dtype) for _ in range(2))
    queries, mask = torch.randn(rows, heads, count, 8).to(dtype) * 2, torch.rand(rows, 1, count, 12) < 0.5
    mask[..., 0] = True

    def drawn(run: SharedRun) -> Reading:
        return Reading(run, dice.choice([0, 0, 4]), run.tokens - dice.choice([0, 0, 2]), dice.choice([0, 7, -40]))

    readings = [[drawn(run) for run in runs if dice.random() < 0.7] for _ in range(rows)]
    readings[0] = [Reading(run, 0, run.tokens, 5 - 3 * nth) for nth, run in enumerate(runs)]
    place = SharedRuns(enumerate(readings), rows, torch.device("cpu"))
    found = place.attend(0, ROTATION, queries, (own[0], own[1]), added(mask, dtype), 0.5)
    for row, each in enumerate(readings):
        read = [(*run.slot.get(0, start, stop), shift) for run, start, stop, shift in each]
        keys = torch.cat([own[0][row], *(ROTATION.turn(keys, shift) for keys, _, shift in read)], 1)
        values = torch.cat([own[1][row], *(values for _, values, _ in read)], 1)
        seen = torch.ones(1, 1, count, keys.shape[1], dtype=torch.bool)
        seen[..., :12] = mask[row]
        expected = scaled_dot_product_attention(
            queries[row : row + 1], keys[None], values[None], attn_mask=seen, scale=0.5, enable_gqa=True
        )
        assert torch.allclose(found[row : row + 1], expected, atol=1e-5 if dtype == torch.float32 else 5e-2)


def context(*pieces: tuple[KVEntry, int]) -> CallContext:
    return CallContext(tuple(ContextPiece(1, entry, offset) for entry, offset in pieces), 0)


def test_a_run_is_what_stands_together_wherever_one_of_it_stands() -> None:
    a, b, c, d, e = (apiece(100) for _ in range(5))
    first, second = context((a, 0), (b, 100), (c, 300), (d, 400)), context((d, 7), (a, 107), (b, 207), (e, 350))
    found = [[(piece.entry, piece.offset) for piece in run] for run in shared_runs.runs([first, second])]
    assert found == [[(a, 0), (b, 100)], [(d, 400)]]
    closer = context((a, 0), (b, 99))
    assert [len(run) for run in shared_runs.runs([first, second, closer])] == [1, 1, 1], "b stands elsewhere beside a"
    twice = context((a, 0), (b, 100), (a, 200), (b, 300))
    assert not [*shared_runs.runs([twice, twice])], "one row would read it twice"


def test_what_stands_in_a_run_is_known_by_itself_and_its_distance() -> None:
    a, b, c = apiece(100), apiece(50), apiece(50)
    run = context((a, 0), (b, 100)).pieces
    alike = {
        "elsewhere": ((a, 7), (b, 107), (c, 157)),
        "another of its size": ((a, 0), (c, 100)),
        "further along": ((a, 0), (b, 101)),
        "cut": ((a, 3),),
        "another": ((b, 0), (a, 50)),
    }
    found = {name: shared_runs.alike(run, context(*pieces).pieces) for name, pieces in alike.items()}
    assert found == {"elsewhere": 2, "another of its size": 1, "further along": 1, "cut": 1, "another": 0}
    assert shared_runs.alike(run, ()) == shared_runs.alike((), run) == 0


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=6), min_size=1, max_size=5))
def test_runs_are_parts_of_every_context_that_has_any_of_them(drawn: list[list[tuple[int, int]]]) -> None:
    entries, contexts = [apiece(50 + n) for n in range(6)], list[CallContext]()
    for each in drawn:
        ends = accumulate((entries[n].length + gap for n, gap in each), initial=0)
        contexts.append(context(*((entries[n], end + gap) for (n, gap), end in zip(each, ends, strict=False))))
    seen = list[KVEntry]()
    for run in shared_runs.runs(contexts):
        assert tokens(run) >= shared_runs.LEAST
        seen += [piece.entry for piece in run]
        having = [each.pieces for each in contexts if {p.entry for p in each.pieces} & {p.entry for p in run}]
        assert len(having) > 1
        assert all(
            sum(shared_runs.alike(run, each[place:]) == len(run) for place in range(len(each))) == 1 for each in having
        )
    assert len(seen) == len({*seen})


@pytest.fixture
def both(engines: Engines, family: Family) -> tuple[Engine, Engine]:
    """One engine that shares where it may, and one that never does."""
    shared_runs, other = engines(family), engines(family)
    other.debug.slots.may_share = False
    return shared_runs, other


@pytest.mark.slow
def test_what_rows_say_over_one_context_is_what_each_says_alone(family: Family, both: tuple[Engine, Engine]) -> None:
    def said(engine: Engine) -> tuple[list[Tensor], int]:
        told = engine.prefill([Prefill(text) for text in TOLD])
        more = engine.prefill("and what of the wolf? ")
        reads = (told, told, [told[0], more, told[1]], [more, *told])
        calls = [
            Decode(header, read, forced=tuple(range(30, 70 + 4 * n)), logits=True)
            for n, (header, read) in enumerate(zip(("", "a:", "so", "b:"), reads, strict=True))
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
        return [*(engine.logits(id) for id in ids[:4]), *keys], most

    (found, shared), (expected, never) = (said(engine) for engine in both)
    assert (shared > 1, never) == (both[0].backends.reading("shared"), 0)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_rows_that_come_and_go_say_the_same(llama: Engine, seed: int) -> None:
    shared = set[SharedRun]()

    def talk(engine: Engine) -> list[tuple[int, ...]]:
        dice, said = random.Random(seed), list[EncodingId]()
        told, more = engine.prefill([Prefill(text) for text in TOLD]), engine.prefill("and of the wolf? ")
        for number in range(60):
            if dice.random() < 0.2:
                read = dice.choice([told, told[:1], told[::-1], [told[1], more, told[0]]])
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
    """Reading other words at the same positions would be a leak."""

    def said(engine: Engine) -> list[Tensor]:
        words = [engine.framing.content.encode(text)[:70] for text in (TOLD[0] * 2, TOLD[1] * 2)]
        told = engine.prefill([Prefill("", tokens=tuple(each)) for each in words])
        calls = [Decode(header, told[k : k + 1], forced=(40,) * 5, logits=True) for header in "ab" for k in range(2)]
        return [engine.logits(id) for id in engine.decode(calls)]

    plain = llama.adapted(None)
    plain.debug.slots.may_share = False
    for one, other in zip(said(llama.adapted(None)), said(plain), strict=True):
        assert torch.allclose(one, other, atol=1e-4)


@on_processor
def test_a_context_that_was_gathered_serves_who_comes_later(llama: Engine) -> None:
    engine, plain = llama.adapted(None), llama.adapted(None)
    told = [each.prefill([Prefill(text) for text in TOLD]) for each in (engine, plain)]
    engine.submit([Decode(parents=told[0], forced=(40,) * 9) for _ in range(2)])
    engine.step()
    (shared,) = engine.debug.shared
    (late,) = engine.submit([Decode(parents=told[0], forced=(40, 41) * 15, logits=True)])
    engine.step()
    assert (shared.readers, len(engine.debug.shared)) == (3, 1)
    while not engine.idle:
        engine.step()
    (expected,) = plain.decode([Decode(parents=told[1], forced=(40, 41) * 15, logits=True)])
    assert torch.allclose(engine.logits(late), plain.logits(expected), atol=1e-4)


@on_processor
def test_a_part_of_what_a_long_row_has_is_read_by_who_comes_later(
    llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "LONG", 200 * llama.debug.slots._bytes)
    engine, plain = llama.adapted(None), llama.adapted(None)
    plain.debug.slots.may_share = False

    def said(engine: Engine) -> list[Tensor]:
        own, other = (engine.prefill(text) for text in ("you are Ada", "and you are Ben, of the north"))
        told = engine.prefill([Prefill(text * 2) for text in TOLD])
        ids = engine.submit([Decode("I:", [own, *told], forced=(40,) * 9, logits=True)])
        engine.step()
        ids += engine.submit([Decode("I:", [told[1], other], forced=(40, 41) * 9, logits=True)])
        engine.step()
        ids += engine.submit([Decode("and", [other, *told], forced=(41, 42) * 6, logits=True)])
        engine.step()
        if engine is not plain:
            (run,) = engine.debug.shared
            assert run.readers == 3
            assert all(isinstance(row.slot, Slot) and row.slot.length < 60 for row in engine.debug.rows)
        while not engine.idle:
            engine.step()
        assert not engine.debug.shared
        assert not len(engine.debug.slots)
        return [engine.logits(id) for id in ids]

    for one, other in zip(said(engine), said(plain), strict=True):
        assert torch.allclose(one, other, atol=1e-4)


@on_processor
def test_nothing_is_shared_any_more_after_a_step_that_failed(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context that was never gathered would be read as zeros."""
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


@on_processor
def test_messages_that_stand_elsewhere_for_each_are_read_in_place(llama: Engine) -> None:
    """The preceding messages differ for each row, and so do positions. A further reader takes room for those alone."""
    engine, plain = llama.adapted(None), llama.adapted(None)
    plain.debug.slots.may_share = False

    def said(engine: Engine, most: int) -> tuple[list[Tensor], int]:
        own = engine.prefill([Prefill(f"you are {'so ' * n}alone") for n in range(most)])
        told = engine.prefill([Prefill(text * 2) for text in TOLD])
        ids = engine.submit(
            [
                Decode("I:", [own[n], *told] if n % 2 else [*told, own[n]], forced=(40, 41, 42) * 4, logits=True)
                for n in range(most)
            ]
        )
        engine.step()
        slots, kept = engine.debug.slots, [row.slot for row in engine.debug.rows if isinstance(row.slot, Slot)]
        tokens = sum(slot.length for slot in kept) + sum(run.tokens for run in slots.shared)
        assert len(slots.shared) == (1 if slots.may_share else 0)
        while not engine.idle:
            engine.step()
        assert not slots.shared
        return [engine.logits(id) for id in ids], tokens

    (found, few), (expected, copied) = said(engine, 2), said(plain, 2)
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(found, expected, strict=True))
    (found, many), (expected, _) = said(engine, 6), said(plain, 6)
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(found, expected, strict=True))
    read = sum(len(plain.framing.content.encode(text * 2)) for text in TOLD)
    assert copied - few > 0.8 * read
    assert many - few <= 4 * 0.2 * read, "a further reader of T tokens takes room for 0.2 T at most"


@pytest.mark.parametrize("how", ["alone", "deterministic", "short", "little"])
def test_who_cannot_gain_shares_nothing(llama: Engine, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    engine = llama.adapted(None)
    told = engine.prefill([Prefill(text) for text in TOLD])
    if how == "little":
        monkeypatch.setattr(slots, "SAVED", 2 * sum(len(each) for each in TOLD) * engine.debug.slots._bytes)
    if how == "short":
        for each in (shared_runs, slots):
            monkeypatch.setattr(each, "LEAST", 10_000)
    engine.submit([Decode(parents=told) for _ in range(1 if how == "alone" else 2)])
    engine.step(deterministic=how == "deterministic")
    assert not engine.debug.shared
    engine.cancel(call.id for call in engine.debug.calls)

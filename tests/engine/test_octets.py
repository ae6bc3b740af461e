"""8-bit keys and values: rounding, what is stored and read, and what an engine with them says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.engine.cache import DiskQuota
from agentcho.engine.call_layout import KVEntry, Segment
from agentcho.errors import ConfigError, ModelError
from agentcho.protocol.call import Call, EncodingId, Repair
from agentcho.protocol.speculation_corpus import Corpus
from agentcho.reuse.first_k import FirstK
from agentcho.runner.attention import dense
from agentcho.runner.attention.dense import attend
from agentcho.runner.doctor import doctor
from agentcho.runner.kv import kv_quant
from agentcho.runner.kv.decode_kv import Slot
from agentcho.runner.kv.kv_pool import KVFormat, LayerShape, PagePool, shared_host_tokens, shared_tokens, token_bytes
from agentcho.runner.runner import TorchRunner

from ..device import DEVICE, PLACE
from ..engines import Engines
from .families import Family, each, families
from .rounded import RoundedOracle, by_hand
from .stage import Stage
from .test_guessing import TEXT, told
from .test_profile import numbers, run, words

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
QUICK = ("llama", "qwen3", "gemma2", "gemma3_text", "gpt_neox", "cohere2", "mistral")
EXPERTS = ("mixtral", "gpt_oss", "qwen3_moe")
"""Families whose randomly initialised experts route tokens differently after rounding."""
Fresh = Callable[..., Engine]


@pytest.fixture
def fresh(engines: Engines) -> Fresh:
    """Empty engines with 8-bit keys and values on the shared weights."""
    return lambda **how: engines(kv_dtype="int8", **how)


def drawn(dtype: torch.dtype, *shape: int) -> Tensor:
    """Random vectors of very different magnitudes."""
    return (torch.randn(*shape) * 10 ** (4 * torch.rand(*shape[:-1], 1) - 2)).to(dtype)


def same(found: Tensor, hand: Tensor) -> bool:
    """Compare with numbers computed by hand in 64 bits: bit for bit in 16 bits, up to the last bit in 32."""
    if found.dtype == torch.float32:
        return torch.allclose(found, hand, rtol=3e-7, atol=0)
    return torch.equal(found, hand.to(found.dtype))


# -- numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_vector_is_rounded_as_it_is_by_hand(dtype: torch.dtype) -> None:
    given = drawn(dtype, 3, 5, 16)
    assert same(kv_quant.round_trip(given), by_hand(given.float()))
    out = kv_quant.dequantize_vectors(kv_quant.quantize_vectors(given), torch.empty_like(given))
    assert torch.equal(out, kv_quant.round_trip(given))
    assert kv_quant.quantize_vectors(given).shape == (3, 5, kv_quant.quantized_width(16, dtype))


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_what_was_rounded_is_rounded_to_the_same_bits_again(dtype: torch.dtype) -> None:
    """For every largest magnitude that exists in 16 bits, and for every 8-bit number."""
    every = torch.arange(1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    largest = every[every.isfinite()].unsqueeze(1)
    given = torch.cat([largest, (largest.float() * torch.linspace(-1, 1, 255)).to(dtype)], 1)
    once = kv_quant.round_trip(given)
    assert torch.equal(kv_quant.round_trip(once), once)
    assert torch.equal(kv_quant.quantize_vectors(once), kv_quant.quantize_vectors(given))


def test_in_32_bits_too() -> None:
    given = drawn(torch.float32, 4000, 64)
    once = kv_quant.round_trip(given)
    assert torch.equal(kv_quant.round_trip(once), once)
    assert torch.equal(kv_quant.quantize_vectors(once), kv_quant.quantize_vectors(given))


def test_zeros_stay_zeros_and_what_is_no_number_stays_none() -> None:
    given = torch.zeros(4, 8)
    given[1, 3], given[2, 0], given[3] = torch.nan, torch.inf, 1e-40
    out = kv_quant.dequantize_vectors(kv_quant.quantize_vectors(given), torch.empty_like(given))
    assert torch.equal(out[[0, 3]], torch.zeros(2, 8))
    assert out[1:3].isnan().all()
    assert torch.equal(kv_quant.round_trip(given).isnan(), out.isnan())


@pytest.mark.parametrize("beside", [torch.inf, torch.nan, 1e30, 0.0])
def test_no_vector_depends_on_what_stands_beside_it(beside: float) -> None:
    given = drawn(torch.float32, 2, 6, 16)
    alone = kv_quant.round_trip(given)
    for head in range(2):
        for token in range(6):
            other = torch.full_like(given, beside)
            other[head, token] = given[head, token]
            assert torch.equal(kv_quant.round_trip(other)[head, token], alone[head, token])


# -- pages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [6, 7])
def test_a_store_gives_back_what_is_rounded_by_hand(dtype: torch.dtype, dim: int) -> None:
    store = PagePool([LayerShape(2, dim, 4)] * 2, 64, PLACE, dtype, rounding=True)
    store.allocate(3)
    pages, keys, values = store.allocate(5), drawn(dtype, 2, 5, dim).to(PLACE), drawn(dtype, 2, 5, 4).to(PLACE)
    for layer in range(2):
        store.write(pages, layer, keys[:, :2], values[:, :2])
        store.write(pages, layer, keys[:, 2:], values[:, 2:], start=2)
    there = store.allocate(5)
    [copy] = store.copy_out([pages])
    store.copy_in([(there, store.unpacked(store.packed(copy)))])
    beginning = store.allocate(3)
    store.copy(there, beginning, 3)
    for stored, count in ((pages, 5), (there, 5), (beginning, 3)):
        found = store.read(stored, 1)
        for one, given in zip(found, (keys, values), strict=True):
            assert same(one.cpu(), by_hand(given.float().cpu())[:, :count])
    assert all(each.dtype == torch.int8 for pair in copy for each in pair)
    assert sum(each.nbytes for pair in copy for each in pair) == 5 * token_bytes(
        [LayerShape(2, dim, 4)] * 2, dtype, True
    )


@pytest.mark.parametrize(("dtype", "more"), [(torch.float32, 3.76), (torch.bfloat16, 1.94)])
def test_as_many_bytes_hold_more_tokens(dtype: torch.dtype, more: float) -> None:
    shapes = [LayerShape(8, 64, 64)] * 24
    whole, rounded = ([KVFormat(shapes, CPU, dtype, rounding)] for rounding in (False, True))
    assert shared_tokens(rounded)[0] / shared_tokens(whole)[0] == pytest.approx(more, abs=0.01)
    assert shared_host_tokens(rounded)[0] / shared_host_tokens(whole)[0] == pytest.approx(more, abs=0.01)
    store = PagePool(shapes[:1], 1 << 10, PLACE, dtype, rounding=True)
    store.allocate(1 << 10)
    assert 0 < store.overhead < 0.02


def test_a_default_store_holds_more_tokens() -> None:
    rooms = [Engine.load("understudy", DEVICE, "float32", kv_dtype=kind).room for kind in (None, "int8")]
    assert [rounded / whole for whole, rounded in zip(*rooms, strict=True)] == pytest.approx([3.76] * 2, abs=0.01)


# -- engines ---------------------------------------------------------------------------------------------------


def gaps(stage: Stage) -> list[float]:
    """The gaps between engine and oracle over messages at their own positions, moved, and decoded token by token."""
    [root] = stage.prefill(Prefill("root of all"))
    found = [stage.probe([root])]
    a, b = stage.prefill(Prefill("left one", parents=[root]), Prefill("to the right of it", parents=[root]))
    found += [stage.probe([root, a, b]), stage.probe([b, a], offsets=[40, 9])]
    greedy = Sampling(max_tokens=6, temperature=0)
    [said], gap = stage.decode(Decode("To Bob: ", parents=[b, root], sampling=greedy))
    found += [gap, stage.probe([said, a]), stage.probe([root, said], offsets=[3, None])]
    stage.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("family", [cell for cell in each(*QUICK) if cell.id not in EXPERTS])
def test_what_is_said_is_what_the_oracle_says_that_rounds_by_hand(family: Family, engines: Engines) -> None:
    """Except for numbers here and there that lie halfway between two 8-bit values and may round either way."""
    engine, stock = engines(family, kv_dtype="int8"), engines.stock(family)
    whole, rounded = Stage(family, engine, stock), Stage(family, engine, stock)
    rounded.oracle = RoundedOracle(stock, family.layers, rounded.bos)
    found, otherwise = gaps(rounded), gaps(whole)
    assert min(found) < 2e-5
    assert max(found) < max(otherwise) / 4, "nearer than to one that does not round"


def test_keys_and_values_of_the_first_layer_are_those_of_whole_ones_rounded_by_hand(
    fresh: Fresh, engines: Engines
) -> None:
    found = []
    for engine in (fresh(), engines()):
        (id,) = run(engine, Prefill("the quick brown fox"))
        found.append(engine.cached(id)[0])
    for rounded, whole in zip(*found, strict=True):
        step = whole.abs().amax(-1, keepdim=True) / 127
        assert ((rounded - by_hand(whole)).abs() <= step * 1.01).all()
        assert ((rounded - by_hand(whole)).abs() <= step * 0.01).float().mean() > 0.99
        assert not torch.equal(rounded, whole)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_who_speaks_attends_to_the_very_numbers_that_are_stored(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    kept = list[tuple[list[tuple[Tensor, Tensor]], KVEntry]]()
    store = TorchRunner.store

    def watched(self: TorchRunner, slot: Slot, start: int, entry: KVEntry) -> None:
        kept.append(([(k.clone(), v.clone()) for k, v in slot.all(start, start + entry.length)], entry))
        store(self, slot, start, entry)

    monkeypatch.setattr(TorchRunner, "store", watched)
    engine = fresh(dtype=dtype)
    (told,) = run(engine, Prefill("the quick brown fox"))
    run(engine, *(Decode(parents=[told], forced=words(engine)) for _ in range(2)), exact=False)
    assert kept
    for pairs, entry in kept:
        for layer, (keys, values) in enumerate(pairs):
            stored = engine.store.read(entry.block, layer)
            assert torch.equal(stored[0], keys)
            assert torch.equal(stored[1], values)


def test_what_is_encoded_anew_in_part_is_attended_to_as_it_is_stored(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other keys are moved to the message's new position, and rounded there."""
    engine, seen = fresh(), list[tuple[Tensor, Tensor]]()
    far, message = run(engine, Prefill("the quick brown fox jumps"), Prefill("oaks and foxes are red"))

    def watched(queries: Tensor, keys: Tensor, values: Tensor, *more: Any, **named: Any) -> Tensor:
        seen.append((keys[0].clone(), values[0].clone()))
        return attend(queries, keys, values, *more, **named)

    monkeypatch.setattr(dense, "attend", watched)
    (anew,) = run(engine, Repair(message, FirstK(3), [far]))
    entry, length = engine.debug.entry(anew), len(engine.message(anew).tokens)
    assert entry.position != engine.debug.entry(message).position
    assert len(engine.message(message).tokens) == length > 3
    for layer, (keys, values) in enumerate(seen[-engine.store.layers :]):
        stored = engine.store.read(entry.block, layer)
        assert torch.equal(stored[0], keys[:, -length:])
        assert torch.equal(stored[1], values[:, -length:])


def test_in_parts_and_at_once_it_is_the_same_but_for_a_number_between_two(fresh: Fresh) -> None:
    said = words(engine := fresh())
    (at_once,) = run(engine, Prefill("", role="assistant", tokens=said))
    (one_by_one,) = run(fresh_one := fresh(), Decode(forced=said))
    one, other = numbers(engine, at_once), numbers(fresh_one, one_by_one)
    assert (one - other).abs().mean() < 0.01 * one.abs().mean()


def story(engine: Engine) -> list[EncodingId]:
    """Some messages over each other, prefilled and decoded, some repaired."""
    rng, ids = Random(3), list[EncodingId]()
    greedy = Sampling(max_tokens=5, temperature=0)
    for number in range(8):
        over = rng.sample(ids, min(len(ids), 2))
        calls: list[Call] = [Prefill("word " * (number % 4 + 2), over), Decode(f"{number}: ", over, sampling=greedy)]
        ids += run(engine, *calls)
        if number % 3 == 2:
            ids += run(engine, Repair(ids[-2], FirstK(3), [ids[0]]), Prefill("after it", [ids[-1]]))
    return ids


@pytest.mark.slow
@pytest.mark.parametrize("where", ["host", "disk", "dropped"])
def test_what_left_the_store_comes_back_to_the_bit_and_the_same_is_said(
    fresh: Fresh, tmp_path: Path, where: str
) -> None:
    rooms = {"host": (999, 0), "disk": (0, 999), "dropped": (0, 0)}
    host, disk = rooms[where]
    roomy = fresh()
    tight = fresh(store_tokens=104, host_tokens=host, disk=DiskQuota(disk, tmp_path if disk else None))
    ids, others = story(roomy), story(tight)
    assert tight.fullness.evicted > 0
    for one, other in zip(ids, others, strict=True):
        assert roomy.message(one) == tight.message(other)
        assert torch.equal(numbers(roomy, one), numbers(tight, other))
    tight.check_integrity()
    tight.close()


@pytest.mark.parametrize("beside", [1, 3])
def test_in_the_deterministic_profile_no_bit_depends_on_who_is_beside(fresh: Fresh, beside: int) -> None:
    def said(others: int) -> Tensor:
        engine = fresh()
        (told,) = run(engine, Prefill("the quick brown fox jumps over a lazy dog " * 5))
        calls = [Decode(name, [told], forced=words(engine)) for name in ("own", "a", "so it", "and then")]
        return numbers(engine, run(engine, *calls[: 1 + others])[0])

    assert fresh().sizes == fresh().sizes != ()
    assert torch.equal(said(beside), said(0))


@pytest.mark.slow
def test_guessed_words_are_the_same_words(engines: Engines) -> None:
    """With a model that is rarely undecided: how a borderline number rounds to 8 bits depends on the forward."""
    engine = engines.understudy(kv_dtype="int8")
    parents, sampling = engine.prefill([Prefill(TEXT)]), Sampling(temperature=0, max_tokens=24)
    plain = told(engine, [Decode("b", parents, sampling=sampling)], None)
    words = engine.message(plain.ids[0])
    assert words.sampled is not None
    said = words.tokens[slice(*words.sampled)]
    corpora = (Corpus((*said[:9], *said[:3]), said[9:]),)
    guessed = told(engine, [Decode("b", parents, sampling=sampling, corpora=corpora)])
    assert guessed.steps < plain.steps
    assert guessed.dropped > 0
    assert engine.message(guessed.ids[0]) == words


# -- names and refusals ----------------------------------------------------------------------------------------


def test_the_form_is_in_the_fingerprint_and_in_every_key(fresh: Fresh, engines: Engines) -> None:
    rounded, whole = fresh(), engines()
    assert rounded.fingerprint == whole.fingerprint | {"kv_dtype": "int8"}
    ids = [run(engine, Prefill("the same words"))[0] for engine in (rounded, whole)]
    assert rounded.debug.entry(ids[0]).key != whole.debug.entry(ids[1]).key
    assert rounded.adapted(None).fingerprint == rounded.fingerprint


def test_lanes_that_nobody_speaks_in_take_no_more_bytes(fresh: Fresh, engines: Engines) -> None:
    rounded, whole = fresh(store_tokens=4096), engines(store_tokens=4096)
    assert rounded._runner.slots._idle == 4096 // 4 * (2 * 16 + 8) // (2 * 16 * 4)
    assert whole._runner.slots._idle == 1024


def test_unknown_names_are_refused_before_anything_is_read() -> None:
    with pytest.raises(ModelError, match="unknown kv_dtype 'fp8'; give int8, or leave it out"):
        Engine.load("there/is/no such folder", kv_dtype="fp8")


def test_a_model_that_computes_something_else_over_rounded_ones_is_refused(engines: Engines) -> None:
    folder = engines.folder(next(family for family in families() if family.name == "mixtral"))
    with pytest.raises(
        ModelError, match=r"keys and values in int8 change what .* computes, first at layer .*Leave out"
    ):
        Engine.load(folder, DEVICE, "float32", kv_dtype="int8")


def test_nothing_is_trained_over_rounded_ones(fresh: Fresh) -> None:
    engine, why = fresh(), "kv_dtype int8 cannot be used for training"
    with pytest.raises(ConfigError, match=why):
        engine.trained({"peft_type": "LORA"})
    with pytest.raises(ConfigError, match=why):
        engine.differentiable([Segment((5, 6), 0, wanted=range(2))])


def test_the_doctor_says_what_they_take_and_change(engines: Engines) -> None:
    (row,) = [row for row in doctor(engines.folder(), DEVICE, kv_dtype="int8").rows if row.check == "keys and values"]
    assert (row.result, row.detail.split(";")[0]) == ("int8", "320 bytes a token, and not 1024")
    assert "a scale for each token and head; states differ by at most" in row.detail

"""A message encoded again with more words reuses the prefix of its earlier state, with the same result."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.errors import UnknownEncoding
from agentcho.protocol.call import EncodingId
from agentcho.runner.model.model import Model

from ..engines import Engines
from .families import Family, each
from .test_memory import Small, drain, small

__all__ = ["small"]
TEXT = "the keys of these words are taken over, and the words that follow them come later, one after another"


def fed(engine: Engine, *calls: Prefill) -> tuple[EncodingId, int]:
    """The id of the last call, and the number of tokens fed for all of them."""
    ids, count = engine.submit(calls), 0
    while not engine.idle:
        step = engine.step()
        assert not step.failed
        count += step.encoded
    engine.check_integrity()
    return ids[-1], count


def keys(engine: Engine, id: EncodingId) -> list[tuple[Tensor, Tensor]]:
    """Copies of an encoding's keys and values, layer by layer."""
    pages = engine._encodings[id].entry.block
    return [engine.store.read(pages, layer) for layer in range(engine.store.layers)]


def gap(ours: list[tuple[Tensor, Tensor]], whole: list[tuple[Tensor, Tensor]]) -> float:
    """The largest difference between two encodings."""
    pairs = [(a, b) for left, right in zip(ours, whole, strict=True) for a, b in zip(left, right, strict=True)]
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("family", each("llama", "gemma2", "llama4_text", "gpt_neox", "cohere2"))
def test_keys_taken_over_are_those_of_the_whole(family: Family, engines: Engines) -> None:
    engine = engines(family)
    first = engine.prefill("something before")
    whole = engine.prefill(TEXT, parents=[first])
    expected = keys(engine, whole)
    engine.release([whole])
    begun, _ = fed(engine, Prefill(TEXT[:60], [first]))
    again, count = fed(engine, Prefill(TEXT, [first], extends=begun))
    assert count < len(engine.message(again).tokens) - 20
    assert gap(keys(engine, again), expected) < 2e-4
    assert engine.message(again).text == TEXT
    assert engine.receipt(again).context[0].id == first
    engine.release([begun, again, first])


@pytest.mark.parametrize("seed", range(8))
def test_however_words_come_they_end_as_the_whole(seed: int, llama: Engine) -> None:
    """Where the words differ from the earlier state, reuse ends, down to nothing in common."""
    rng, held = Random(seed), list[EncodingId]()
    whole = llama.prefill(TEXT)
    expected, words = keys(llama, whole), llama.message(whole)
    llama.release([whole])
    for _ in range(4):
        text = TEXT[: rng.randrange(len(TEXT))] + rng.choice(["", "!", " other"])
        id, _ = fed(llama, Prefill(text, extends=rng.choice([*held, None])))
        held.append(id)
    last, _ = fed(llama, Prefill(TEXT, extends=held[-1]))
    assert llama.message(last) == words
    assert gap(keys(llama, last), expected) < 2e-4
    llama.release([*held, last])


def test_nothing_is_taken_over_from_another_context_or_class(llama: Engine) -> None:
    before, other = llama.prefill("before"), llama.prefill("other")
    here = llama.prefill(TEXT[:60], parents=[before])
    length = len(llama.message(llama.prefill(TEXT)).tokens)
    for call in (
        Prefill(TEXT + "1", extends=here),
        Prefill(TEXT + "2", [other], extends=here),
        Prefill(TEXT + "3", [before], new_offset=90, extends=here),
        Prefill(TEXT + "4", [before], salt="of others", extends=here),
        Prefill(TEXT + "5", [before], role="assistant", extends=here),
    ):
        _, count = fed(llama, call)
        assert count >= length, call


def test_a_call_that_takes_over_holds_it_until_it_is_done(llama: Engine) -> None:
    begun = llama.prefill(TEXT[:60])
    [id] = llama.submit([Prefill(TEXT, extends=begun)])
    llama.release([begun])
    assert llama._scheduler.calls[0].prefix is not None
    llama.cancel([id])
    llama.check_integrity()


def test_what_was_given_up_is_not_taken_over_and_what_never_was_is_an_error(llama: Engine) -> None:
    begun = llama.prefill(TEXT[:60])
    llama.release([begun])
    id, count = fed(llama, Prefill(TEXT, extends=begun))
    assert count == len(llama.message(id).tokens)
    with pytest.raises(UnknownEncoding):
        llama.submit([Prefill(TEXT, extends=999)])


@pytest.mark.parametrize("family", each("llama", "qwen2"))
def test_in_parts_beside_a_decode_it_is_the_same(family: Family, engines: Engines) -> None:
    """Whether a prompt begins with a token of its own, as those of Llama do, or with nothing."""
    large, engine = engines(family), engines(family)
    expected = keys(large, large.prefill(TEXT * 8))
    begun = engine.prefill(TEXT * 4)
    engine.submit([Decode("say: ", sampling=Sampling(max_tokens=40, temperature=0))])
    engine.step()
    [id] = engine.submit([Prefill(TEXT * 8, extends=begun)])
    engine._scheduler._budget = engine._runner.budget._replace(beside=32)
    steps = 0
    while not engine.finished(id):
        engine.step()
        steps += 1
    assert steps >= 3
    drain(engine)
    engine.check_integrity()
    assert gap(keys(engine, id), expected) < 2e-4


def test_where_it_is_not_in_the_store_all_is_computed(small: Small) -> None:
    engine = small(store_tokens=256)
    begun = engine.prefill(TEXT)
    engine.swap_out([begun])
    id, count = fed(engine, Prefill(TEXT + " and more", extends=begun))
    assert count == len(engine.message(id).tokens)


def test_where_there_is_no_room_beside_it_all_is_computed(small: Small) -> None:
    large = small()
    length = len(large.message(large.prefill(TEXT * 2)).tokens)
    engine = small(store_tokens=length + 40)
    begun = engine.prefill(TEXT)
    id, count = fed(engine, Prefill(TEXT * 2, extends=begun))
    assert count == len(engine.message(id).tokens) == length


def test_the_deterministic_profile_takes_nothing_over(llama: Engine) -> None:
    begun = llama.prefill(TEXT[:60])
    [id] = llama.submit([Prefill(TEXT, extends=begun)])
    step = llama.step(deterministic=True)
    assert step.encoded == len(llama.message(id).tokens)
    whole = llama.submit([Prefill(TEXT, salt="apart")])
    llama.step(deterministic=True)
    assert all(
        torch.equal(a, b)
        for ours, other in zip(keys(llama, id), keys(llama, whole[0]), strict=True)
        for a, b in zip(ours, other, strict=True)
    )


def test_a_forward_that_fails_begins_anew(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = llama.prefill(TEXT)
    expected = keys(llama, whole)
    llama.release([whole])
    begun, forward, failing = llama.prefill(TEXT[:60]), Model.forward, [True]

    def broken(self: Model, *args: Any, **more: Any) -> Any:
        if failing:
            failing.pop()
            raise RuntimeError("once")
        return forward(self, *args, **more)

    monkeypatch.setattr(Model, "forward", broken)
    id, _ = fed(llama, Prefill(TEXT, extends=begun))
    assert not failing
    assert gap(keys(llama, id), expected) < 2e-4

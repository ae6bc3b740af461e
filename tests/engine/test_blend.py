"""CacheBlend as a whole against the slow oracle, and the number of recomputed tokens in each layer."""

from __future__ import annotations

import pytest
import torch

from agentcho import Engine, Prefill
from agentcho.errors import RequestError
from agentcho.protocol.call import Repair
from agentcho.reuse.cacheblend import CacheBlend
from agentcho.reuse.top_k import TopK

from ..engines import Engines
from .blending import MixedOracle, blended
from .families import Family, families
from .test_repair import Spelled, layers

WIDE = ("llama", "gpt_neox", "llama4_text", "qwen3_moe")
"""Families whose layers see beyond one message. With a shorter window most changes are rounding errors, and which one
is largest is chance."""
CELLS = [
    pytest.param(each, id=each.name, marks=() if each.name == WIDE[0] else pytest.mark.slow)
    for each in families()
    if each.name in WIDE
]
TEXTS = ("be brief", "who is it that asks me", "well, so be it then")


def _spelled(family: Family, engines: Engines) -> tuple[Spelled, MixedOracle]:
    spelled = Spelled(family, engines(family), engines.stock(family))
    oracle = spelled.oracle = MixedOracle(engines.stock(family), family.layers, spelled.engine.framing.bos)
    return spelled, oracle


@pytest.mark.parametrize("family", CELLS)
def test_tokens_are_filtered_layer_by_layer_as_the_oracle_does(family: Family, engines: Engines) -> None:
    """Also where another message reads the result and is itself blended."""
    spelled, oracle = _spelled(family, engines)
    engine = spelled.engine
    ids = engine.prefill(
        [Prefill(text, role=role) for text, role in zip(TEXTS, ("system", "user", "user"), strict=True)]
    )
    for id in ids:
        spelled.follow(id)
    before = ids[:1]
    for base, share in zip(ids[1:], (0.4, 0.8), strict=True):
        done = engine.repair(Repair(base, CacheBlend(share), parents=before))
        tokens, kept = engine.message(base).tokens, spelled._tokens[base]
        spelled._tokens[done] = blended(oracle, tokens, kept, spelled.context(done), engine.receipt(done).start, share)
        assert spelled.gap([*before, done]) < 1e-4
        before = [*before, done]


def _anew(engine: Engine, base: int, parent: int, share: float) -> list[int]:
    """For each layer, the number of tokens whose values differ from the base's."""
    done = engine.repair(Repair(base, CacheBlend(share), parents=[parent]))
    pairs = zip(layers(engine, done)[1::2], layers(engine, base)[1::2], strict=True)
    return [int((mine != other).any(dim=2).any(dim=0).sum()) for mine, other in pairs]


def test_fewer_tokens_are_anew_from_layer_to_layer(llama: Engine) -> None:
    system, a = llama.prefill([Prefill("be brief", role="system"), Prefill("who is it that asks and asks")])
    length, depth = len(llama.message(a).tokens), llama.store.layers
    found, blend = _anew(llama, a, system, 0.4), CacheBlend(0.4)
    assert found[1:] == [blend.anew(length, layer, depth) for layer in range(1, depth)]
    assert found[1] > found[-1]


def test_all_tokens_anew_are_a_new_encoding(llama: Engine) -> None:
    system, a = llama.prefill([Prefill("be brief", role="system"), Prefill("who is it")])
    whole = llama.repair(Repair(a, CacheBlend(1.0), parents=[system]))
    fresh = llama.prefill("who is it", parents=[system])
    for mine, other in zip(layers(llama, whole), layers(llama, fresh), strict=True):
        assert torch.allclose(mine, other, atol=1e-5)


def test_it_is_kept_apart_from_the_choice_alone_and_made_again_the_same(llama: Engine) -> None:
    system, a = llama.prefill([Prefill("be brief", role="system"), Prefill("who is it that asks")])
    one, other = llama.repair([Repair(a, choose, parents=[system]) for choose in (CacheBlend(0.4), TopK(0.4))])
    assert llama._encoding(one).entry.key != llama._encoding(other).entry.key
    before, entry = layers(llama, one), llama._encoding(one).entry
    llama._runner.make(entry)
    assert all(torch.equal(mine, again) for mine, again in zip(before, layers(llama, one), strict=True))


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_a_share_that_is_none_is_refused(llama: Engine, share: float) -> None:
    a = llama.prefill("who is it")
    with pytest.raises(RequestError, match=rf"the share of CacheBlend is {share}; give"):
        llama.repair(Repair(a, CacheBlend(share)))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
def test_the_share_is_the_mean_of_all_layers_but_the_first(share: float) -> None:
    counts = [CacheBlend(share).anew(1000, layer, 9) for layer in range(1, 9)]
    assert counts == sorted(counts, reverse=True)
    assert abs(sum(counts) / len(counts) - 1000 * share) <= 1

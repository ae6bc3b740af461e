"""APE in the engine against attention computed from its definition, and what it may and may not change."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.engine.call_layout import Segment
from agentcho.errors import RequestError
from agentcho.reuse.ape import Ape
from agentcho.runner.graphs import CudaGraphs

from ..device import on_processor
from ..engines import Engines
from .families import Family, families
from .oracle import Message
from .weighing import WeighingOracle

FAMILIES = ("llama", "gemma2", "gpt_oss", "gpt_neox", "cohere2")
"""Plain; soft caps and windows; sinks; partial rotary; layers without positions."""
APE = Ape(0.6, 0.8)
TEXTS = ("be brief", "who is it that asks", "me and you and them", "well, so be it then")
kinds = pytest.mark.parametrize(
    "family",
    [
        pytest.param(each, id=each.name, marks=() if each.name == FAMILIES[0] else pytest.mark.slow)
        for each in families()
        if each.name in FAMILIES
    ],
)


class Read:
    """A prefix, three parallel messages over it, and the oracle's encodings of the same."""

    def __init__(self, family: Family, engines: Engines, ape: Ape = APE) -> None:
        self.engine, self.ape = engines(family), ape
        first = Prefill(TEXTS[0], role="system")
        self.ids = self.engine.prefill([first, *(Prefill(text, parents=[first]) for text in TEXTS[1:])])
        self.oracle = WeighingOracle(
            engines.stock(family), family.layers, self.engine.framing.bos, ape.temperature, ape.scale
        )
        self.at: dict[int, int] = {}
        for id in self.ids:
            self.add(id, ())

    def add(self, id: int, beside: Sequence[int]) -> int:
        """Add a message as the engine's receipt describes it, reading these messages of its context as parallel."""
        receipt = self.engine.receipt(id)
        context = tuple((self.at[entry.id], entry.offset) for entry in receipt.context)
        message = Message(self.engine.message(id).tokens, receipt.start, context)
        self.at[id] = self.oracle.read(message, [self.at[other] for other in beside])
        return self.at[id]

    def gap(self, id: int, beside: Sequence[int]) -> float:
        """The gap between engine and oracle in the logits a decode chose from."""
        logits = self.oracle.logits(self.add(id, beside)).log_softmax(-1)
        mine = self.engine.logits(id).float().log_softmax(-1)
        sampled = self.engine.message(id).sampled
        assert sampled is not None
        first = sampled[0] - 1
        return float((logits[first : first + len(mine)] - mine).abs().max())


def said(words: str, parents: Sequence[int], engine: Engine, ape: Ape | None = APE) -> Decode:
    forced = tuple(engine.framing.content.encode(words))
    return Decode("", parents, "made", forced=forced, logits=True, ape=ape)


@kinds
def test_a_decode_weighs_as_the_definition_has_it(family: Family, engines: Engines) -> None:
    """The prompt, the tokens decoded one a step, and a later message that reads the decode sequentially."""
    read = Read(family, engines)
    (id,) = read.engine.decode([said(" yes, they did", read.ids, read.engine)])
    assert read.gap(id, read.ids[1:]) < 1e-4
    (after,) = read.engine.decode([said(" no", [*read.ids, id], read.engine)])
    assert read.gap(after, read.ids[1:]) < 1e-4


@pytest.mark.slow
@kinds
def test_a_prefill_weighs_too_and_what_reads_it_beside_others_has_all_of_them_beside_it(
    family: Family, engines: Engines
) -> None:
    read = Read(family, engines)
    system, one, two, three = read.ids
    both = read.engine.prefill("of the two", parents=[system, one, two], offsets="made", ape=APE)
    read.add(both, [one, two])
    (id,) = read.engine.decode([said(" yes", [system, one, two, both, three], read.engine)])
    assert read.gap(id, [one, two, both, three]) < 1e-4


@pytest.mark.slow
def test_rows_that_weigh_and_rows_that_do_not_go_together(engines: Engines) -> None:
    """One step feeds rows with two settings and with none, including slots that have moved to a wider pool."""
    family = next(family for family in families() if family.name == "llama")
    read, long = Read(family, engines), " and" * 150
    ways = (APE, None, Ape(0.9, 0.5))
    ids = read.engine.decode([said(long, read.ids, read.engine, ape) for ape in ways])
    for ape, id in zip(ways, ids, strict=True):
        other = Read(family, engines, ape or Ape(1.0, 1.0))
        logits = other.engine.logits(other.engine.decode([said(long, other.ids, other.engine, ape)])[0])
        torch.testing.assert_close(read.engine.logits(id), logits, atol=1e-4, rtol=1e-4)


def logits(engine: Engine, *parents: int, ape: Ape | None) -> Tensor:
    return engine.score(" yes, it is", parents=parents, offsets="made", ape=ape)


def test_one_and_one_change_nothing_and_less_does(llama: Engine) -> None:
    system = Prefill("be brief", role="system")
    ids = llama.prefill([system, Prefill("who is it", parents=[system]), Prefill("it is me", parents=[system])])
    plain = logits(llama, *ids, ape=None)
    torch.testing.assert_close(logits(llama, *ids, ape=Ape(1.0, 1.0)), plain, atol=1e-5, rtol=1e-4)
    for ape in (Ape(0.5, 1.0), Ape(1.0, 0.5)):
        assert not torch.allclose(logits(llama, *ids, ape=ape), plain, atol=1e-3)


def test_what_stands_in_line_is_read_as_it_is_and_shares_its_keys(llama: Engine) -> None:
    """Each message reads all before it, so no two are parallel."""
    system = llama.prefill("be brief", role="system")
    a = llama.prefill("who is it", parents=[system])
    b = llama.prefill("it is me", parents=[system, a])
    assert torch.equal(logits(llama, system, a, b, ape=APE), logits(llama, system, a, b, ape=None))
    one, other = (llama.prefill("next", parents=[system, a, b], ape=ape) for ape in (None, APE))
    assert llama._encoding(one).entry is llama._encoding(other).entry


def test_what_was_read_otherwise_is_another_encoding_and_is_made_again_the_same(llama: Engine) -> None:
    system = llama.prefill("be brief", role="system")
    a, b = (llama.prefill(text, parents=[system]) for text in ("who is it", "it is me"))
    over = [system, a, b]
    ids = [llama.prefill("next", parents=over, offsets="made", ape=ape) for ape in (None, APE, Ape(0.6, 0.7), APE)]
    entries = [llama._encoding(id).entry for id in ids]
    assert len({entry.key for entry in entries}) == 3
    assert entries[1] is entries[3]
    for id in [ids[1], *llama.decode([said(" yes", over, llama)])]:
        before, entry = llama.cached(id), llama._encoding(id).entry
        llama._runner.make(entry)
        for pair, again in zip(before, llama.cached(id), strict=True):
            assert all(torch.allclose(mine, other, atol=1e-5) for mine, other in zip(pair, again, strict=True))


@on_processor
def test_a_long_text_that_is_encoded_in_parts_is_weighed_in_each(llama: Engine) -> None:
    system = llama.prefill("be brief", role="system")
    a, b = (llama.prefill(text, parents=[system]) for text in ("who is it", "it is me"))
    call = Prefill("word after word " * 20, [system, a, b], "made", ape=APE)
    whole = llama.prefill(call)
    decode = llama.submit([Decode(sampling=Sampling(max_tokens=200, temperature=0))])
    llama.step()
    (part,) = llama.submit([Prefill(call.text, call.parents, "made", salt="apart", ape=APE)])
    fed = [llama.step().encoded for _ in range(3)]
    assert max(fed) < len(llama.message(whole).tokens) / 2
    while not llama.finished(part):
        llama.step()
    llama.cancel(decode)
    for pair, other in zip(llama.cached(whole), llama.cached(part), strict=True):
        assert all(torch.allclose(mine, its, atol=1e-4) for mine, its in zip(pair, other, strict=True))


def test_rows_that_weigh_share_no_context_and_use_no_graph(engines: Engines, by_copies: None) -> None:
    """Other rows of the same step still share that context."""
    engine = engines()
    ids = engine.prefill([Prefill("word after word " * 30), Prefill("and on and on " * 30)])
    ways = (APE, APE, None, None)
    engine.submit([Decode("x", ids, "made", sampling=Sampling(max_tokens=4), ape=ape) for ape in ways])
    engine.step()
    slots = [row.slot for row in engine._scheduler._running]
    assert [bool(slot and slot.readings) for slot in slots] == [False, False, True, True]
    other, served = engines(), list[Segment]()
    runner = other._runner

    class Watching(CudaGraphs):
        def run(self, segments: Sequence[Segment]) -> tuple[list[Segment], Tensor]:
            served.extend(segments)
            return super().run(segments)

    runner.slots.in_place = True
    runner.graphs = Watching(other._model, runner.layers, capture=lambda forward: forward)
    ids = other.prefill([Prefill("word after word " * 30), Prefill("and on and on " * 30)])
    other.submit([Decode("x", ids, "made", sampling=Sampling(max_tokens=4), ape=ape) for ape in ways])
    other.step()
    weighed = [row.context.parallel is not None for row in other._scheduler._running]
    assert weighed == [True, True, False, False]
    assert {id(each.slot) for each in served} == {id(row.slot) for row in other._scheduler._running[2:]}


@pytest.mark.parametrize(
    ("ape", "told"), [(Ape(0.0, 1.0), "temperature of Ape is 0.0"), (Ape(1.0, float("inf")), "scale of Ape is inf")]
)
def test_figures_that_are_none_are_refused(llama: Engine, ape: Ape, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        llama.prefill("x", ape=ape)
    with pytest.raises(RequestError, match="ape is"):
        llama.prefill("x", ape="ape")

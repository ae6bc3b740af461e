"""Repaired encodings against the slow oracle, with every token as a message of its own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedModel

from agentcho import Engine, Prefill
from agentcho.errors import ContextOverflow, LeakageError, RequestError, UnknownEncoding
from agentcho.protocol.call import Repair
from agentcho.reuse.ends import Ends
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.top_k import TopK

from ..engines import Engines
from .families import Family, each, llama_family
from .oracle import Message, Oracle

Places = list[tuple[int, int]]
ALL = FirstK(10_000)
TEXTS = ("be brief", "who is it that asks", "me and you", "well, so be it then")


class Spelled:
    """The engine's messages in the oracle, one oracle message per token."""

    def __init__(self, family: Family, engine: Engine, model: PreTrainedModel) -> None:
        self.engine = engine
        self.oracle = Oracle(model, family.layers, engine.framing.bos)
        self._tokens: dict[int, list[int]] = {}

    def context(self, id: int) -> Places:
        """The context in the engine's receipt, token by token."""
        found = self.engine.receipt(id).context
        return [(index, entry.offset + n) for entry in found for n, index in enumerate(self._tokens[entry.id])]

    def follow(self, id: int) -> None:
        """Encode a message in full."""
        self._tokens[id] = self._encode(id, {})

    def repaired(self, id: int, places: Sequence[int]) -> None:
        """Encode a message with these tokens recomputed and the others taken from its base."""
        base = self.engine.receipt(id).base
        assert base is not None
        self._tokens[id] = self._encode(id, {n: t for n, t in enumerate(self._tokens[base]) if n not in places})

    def _encode(self, id: int, kept: dict[int, int]) -> list[int]:
        start, context = self.engine.receipt(id).start, self.context(id)
        found: list[int] = []
        for n, token in enumerate(self.engine.message(id).tokens):
            before = [(index, start + m) for m, index in enumerate(found)]
            found.append(kept[n] if n in kept else self.oracle.add(Message((token,), start + n, (*context, *before))))
        return found

    def gap(self, parents: Sequence[int]) -> float:
        """The gap between engine and oracle in log-probabilities of some words over these parents."""
        said = self.engine.score(" yes", parents=parents)
        probe = self.engine.prefill("x", parents=parents)
        context, start = self.context(probe), self.engine.receipt(probe).start
        opening = self.engine.framing.opening("assistant", None)
        own = (*opening, *self.engine.framing.content.encode(" yes"))
        logits = self.oracle.logits(self.oracle.add(Message(own, start, tuple(context))))
        return float((logits[len(opening) - 1 :].log_softmax(-1) - said).abs().max())

    def chosen(self, base: int, context: Places, start: int, count: int) -> tuple[int, ...]:
        """CacheBlend's choice, computed independently: the largest changes of the second layer's values."""
        found: list[int] = []
        changes: list[float] = []
        for n, token in enumerate(self.engine.message(base).tokens):
            before = [(index, start + m) for m, index in enumerate(found)]
            found.append(self.oracle.add(Message((token,), start + n, (*context, *before))))
            fresh, kept = (self.oracle._at(index, start + n)[1][1] for index in (found[-1], self._tokens[base][n]))
            changes.append(float((fresh - kept).square().sum()))
        ranked = sorted(range(len(changes)), key=lambda n: -changes[n])
        return tuple(sorted(ranked[:count]))


@pytest.fixture
def spelled(family: Family, engines: Engines) -> Spelled:
    return Spelled(family, engines(family), engines.stock(family))


@pytest.mark.slow
@pytest.mark.parametrize("family", each("llama", "llama4_text", "gpt_neox"))
def test_some_tokens_anew_and_the_others_kept(spelled: Spelled) -> None:
    """For every family: a chain of two repairs, by first tokens and by largest deviation."""
    engine = spelled.engine
    system, a, b = engine.prefill([Prefill(TEXTS[0], role="system"), Prefill(TEXTS[1]), Prefill(TEXTS[2])])
    for id in (system, a, b):
        spelled.follow(id)
    one = Repair(a, FirstK(3), parents=[system])
    two = Repair(b, TopK(0.4), parents=[system, one])
    first, second = engine.repair([one, two])
    spelled.repaired(first, range(3))
    start, length = engine.receipt(second).start, len(engine.message(b).tokens)
    at = engine.receipt(first).start
    judged = [*spelled.context(first), *((index, at + n) for n, index in enumerate(spelled._tokens[a]))]
    places = spelled.chosen(b, judged, start, -(-length * 4 // 10))
    spelled.repaired(second, places)
    assert spelled.gap([system, first, second]) < 1e-4


@pytest.fixture(scope="module")
def llama_spelled(engines: Engines) -> Spelled:
    return Spelled(llama_family(), engines(llama_family()), engines.stock(llama_family()))


@pytest.mark.slow
@pytest.mark.parametrize("examples", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_random_repairs(llama_spelled: Spelled, examples: int) -> None:
    """Any first tokens of any message over any others, at any position, and repairs of repairs."""

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def repairs(data: st.DataObject) -> None:
        repaired_at_random(llama_spelled, data)

    repairs()


def repaired_at_random(llama_spelled: Spelled, data: st.DataObject) -> None:
    engine, known = llama_spelled.engine, list[int]()
    for text in TEXTS:
        parents = data.draw(st.lists(st.sampled_from(known), unique=True, max_size=2)) if known else []
        known.append(engine.prefill(text, parents=parents))
        llama_spelled.follow(known[-1])
    for _ in range(2):
        base = data.draw(st.sampled_from(known))
        parents = data.draw(st.lists(st.sampled_from(known), unique=True, max_size=3))
        count, gap = data.draw(st.integers(1, 12)), data.draw(st.sampled_from([None, 40, 3]))
        last, length = data.draw(st.integers(0, 6)), len(engine.message(base).tokens)
        choose: FirstK | Ends = Ends(count, last) if last else FirstK(count)
        known.append(engine.repair(Repair(base, choose, parents=parents, new_offset=gap)))
        llama_spelled.repaired(known[-1], [*range(min(count, length)), *range(max(length - last, 0), length)])
    assert llama_spelled.gap(known[-2:]) < 1e-4


def test_its_last_tokens_anew_and_the_others_kept(llama_spelled: Spelled) -> None:
    engine = llama_spelled.engine
    system, a = engine.prefill([Prefill(TEXTS[0], role="system"), Prefill(TEXTS[1])])
    for id in (system, a):
        llama_spelled.follow(id)
    made, length = engine.repair(Repair(a, Ends(1, 3), parents=[system])), len(engine.message(a).tokens)
    llama_spelled.repaired(made, (0, *range(length - 3, length)))
    assert llama_spelled.gap([system, made]) < 1e-4


def layers(engine: Engine, id: int) -> list[Tensor]:
    return [part for pair in engine.cached(id) for part in pair]


@pytest.mark.parametrize("choose", [ALL, TopK(1.0)])
def test_all_tokens_anew_are_a_new_encoding(llama: Engine, choose: FirstK | TopK) -> None:
    system, a = llama.prefill([Prefill("be brief", role="system"), Prefill("who is it")])
    repaired = llama.repair(Repair(a, choose, parents=[system]))
    fresh = llama.prefill("who is it", parents=[system])
    for mine, other in zip(layers(llama, repaired), layers(llama, fresh), strict=True):
        assert torch.allclose(mine, other, atol=1e-5)
    receipt = llama.receipt(repaired)
    assert (receipt.context, receipt.start, receipt.base) == (*llama.receipt(fresh)[:2], a)
    assert llama.message(repaired) == llama.message(a)


def test_kept_tokens_keep_every_bit_and_the_base_is_not_touched(llama: Engine) -> None:
    system = llama.prefill("be brief", role="system")
    a = llama.prefill("who is it", new_offset=llama.receipt(system).start + len(llama.message(system).tokens))
    before = layers(llama, a)
    repaired, fresh = llama.repair(Repair(a, FirstK(4), parents=[system])), llama.prefill("who is it", parents=[system])
    for was, now, mine, new in zip(
        before, layers(llama, a), layers(llama, repaired), layers(llama, fresh), strict=True
    ):
        assert torch.equal(was, now)
        assert torch.equal(mine[:, 4:], was[:, 4:])
        assert torch.allclose(mine[:, :4], new[:, :4], atol=1e-5)
    assert not torch.equal(layers(llama, repaired)[-1][:, :4], before[-1][:, :4])


def test_one_list_is_the_same_as_one_after_another_and_as_alone(llama: Engine) -> None:
    system, a, b = llama.prefill([Prefill("be brief", role="system"), Prefill("who is it"), Prefill("me or you")])

    def chain() -> list[Repair]:
        one = Repair(a, TopK(0.5), parents=[system], salt="x")
        return [one, Repair(b, TopK(0.5), parents=[system, one], salt="x")]

    together = llama.repair(chain())
    first = llama.repair(Repair(a, TopK(0.5), parents=[system], salt="y"))
    second = llama.repair(Repair(b, TopK(0.5), parents=[system, first], salt="y"))
    alone = llama.submit([*_salted(chain(), a, b, system)])
    while not llama.idle:
        llama.step(deterministic=True)
    for ids in zip(together, (first, second), alone, strict=True):
        parts = [layers(llama, id) for id in ids]
        for one, other, third in zip(*parts, strict=True):
            assert torch.allclose(one, other, atol=1e-5)
            assert torch.allclose(one, third, atol=1e-5)


def _salted(chain: list[Repair], a: int, b: int, system: int) -> list[Repair]:
    one = Repair(a, TopK(0.5), parents=[system], salt="z")
    return [one, Repair(b, TopK(0.5), parents=[system, one], salt="z")]


def test_equal_repairs_share_their_storage_and_others_do_not(llama: Engine) -> None:
    system, a = llama.prefill([Prefill("be brief, please", role="system"), Prefill("who is it now")])
    used = llama.fullness.used
    one = llama.repair(Repair(a, FirstK(2), parents=[system]))
    more = llama.fullness.used
    assert more > used
    same = llama.repair(Repair(a, FirstK(2), parents=[system]))
    assert llama.fullness.used == more
    other = llama.repair([Repair(a, FirstK(3), parents=[system]), Repair(a, FirstK(2), parents=[system], salt="s")])
    assert llama.fullness.used > more
    llama.release([one, same, *other])
    assert llama.fullness.used == used


class Seen:
    """A guard that records what it is asked, and may refuse."""

    def __init__(self, refuse: bool = False) -> None:
        self.refuse = refuse
        self.asked: list[int] = []

    def admit(self, id: int, context: Sequence[int]) -> None:
        self.asked = list(context)
        if self.refuse:
            raise LeakageError("bob", ("alice.1", "alice.0"))


def test_a_guard_is_asked_about_the_base_too_and_a_refusal_leaves_nothing(llama: Engine) -> None:
    system, a = llama.prefill([Prefill("be brief", role="system"), Prefill("who is it")])
    guard, used = Seen(), llama.fullness.used
    id = llama.repair(Repair(a, TopK(0.3), parents=[system], guard=guard))
    assert set(guard.asked) == {system, a}
    llama.release([id])
    with pytest.raises(LeakageError):
        llama.repair(Repair(a, FirstK(1), parents=[system], guard=Seen(refuse=True)))
    assert llama.fullness.used == used


def test_cancelled_repairs_leave_nothing(llama: Engine) -> None:
    system, a = llama.prefill([Prefill("be brief", role="system"), Prefill("who was to be cancelled here")])
    used = llama.fullness.used
    one = Repair(a, TopK(0.3), parents=[system])
    ids = llama.submit([one, Repair(a, FirstK(1), parents=[system, one])])
    llama.release([a])
    llama.cancel(ids)
    assert llama.idle
    assert llama.fullness.used < used


def test_a_base_of_the_same_list_is_waited_for(llama: Engine) -> None:
    system, a = Prefill("be brief", role="system"), Prefill("who is it")
    ids = llama.submit([system, a, Repair(a, TopK(0.5), parents=[system]), Repair(a, FirstK(2), parents=[system])])
    while not llama.idle:
        llama.step()
    assert llama.receipt(ids[2]).base == llama.receipt(ids[3]).base == ids[1]
    other = llama.adapted(None)
    first = other.prefill([Prefill("be brief", role="system"), Prefill("who is it")])
    later = other.repair([Repair(first[1], choose, parents=first[:1]) for choose in (TopK(0.5), FirstK(2))])
    for one, after in zip(ids[2:], later, strict=True):
        for ours, theirs in zip(llama.cached(one), other.cached(after), strict=True):
            torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


def test_judging_costs_a_part_of_the_layers(llama: Engine) -> None:
    system, a = llama.prefill([Prefill("be brief", role="system"), Prefill("who is it that asks and asks")])
    length, depth = len(llama.message(a).tokens), llama.store.layers
    llama.submit([Repair(a, TopK(0.25), parents=[system])])
    assert llama.step().encoded == -(-length // 4) + -(-length * 2 // depth)
    llama.submit([Repair(a, FirstK(5), parents=[system])])
    assert llama.step().encoded == 5


@pytest.mark.parametrize(
    ("choose", "told"),
    [
        (FirstK(0), "repairs nothing"),
        (Ends(0, 0), "repairs nothing"),
        (Ends(3, -1), "repairs nothing"),
        (TopK(0.0), "the share of TopK is 0.0"),
        (TopK(1.5), "the share of TopK is 1.5"),
    ],
)
def test_what_repairs_nothing_is_refused(llama: Engine, choose: FirstK | Ends | TopK, told: str) -> None:
    a = llama.prefill("who is it")
    with pytest.raises(RequestError, match=told):
        llama.repair(Repair(a, choose))


def test_what_is_not_there_cannot_be_repaired(llama: Engine) -> None:
    a = llama.prefill("who is it")
    with pytest.raises(UnknownEncoding):
        llama.repair(Repair(10**6, FirstK(1)))
    with pytest.raises(RequestError, match="a Prefill is named as parent but is not earlier"):
        llama.repair(Repair(Prefill("x"), FirstK(1)))
    with pytest.raises(ContextOverflow):
        llama.repair(Repair(a, FirstK(1), new_offset=llama.context - 1))

"""Rows of deterministic calls share one forward and have the bits that each has alone: proved for a network, on its
actual kernels, before it is relied on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest
import torch
from torch import Tensor, nn

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.protocol.call import EncodingId, Shadow
from agentcho.runner.invariance import SIZES
from agentcho.runner.model.model import Model

from ..device import PLACE
from ..engines import Engines
from .families import Family, families

TEXTS = "the quick brown fox", "jumps over a lazy dog and sleeps all day", "so it is told and told again", "a"
OTHERS = tuple(family for family in families() if family.name in ("gemma2", "llama4_text", "gpt_oss", "gpt_neox"))

EXPERTS = tuple(family for family in families() if family.name in ("mixtral", "gpt_oss", "llama4_text"))


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The token count of each forward, padding included."""
    found, real = list[int](), Model.forward

    def counted(self: Model, ids: Tensor, *rest: Tensor) -> Tensor:
        found.append(ids.numel())
        return real(self, ids, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Model, "forward", counted)
    return found


def invariant(engine: Engine) -> Engine:
    """The engine if its rows can share a forward; skips the test on processors whose products depend on the place."""
    if not engine._runner.block:
        pytest.skip("this processor's products are not the same at each place of a forward")
    return engine


@contextmanager
def leaky(network: nn.Module, leak: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """While in use, apply `leak` to the output of the network's last module."""
    hook = list(network.modules())[-1].register_forward_hook(lambda _, __, out: leak(out))
    try:
        yield
    finally:
        hook.remove()


def speeches(engine: Engine, rng: Random, count: int) -> list[Decode]:
    """Messages of several lengths over contexts of several lengths, half sampled and half forced."""
    told = engine.prefill([Prefill(text) for text in TEXTS])
    made = list[Decode]()
    for number in range(count):
        read = rng.sample(told, rng.randint(0, 3))
        forced = tuple(engine.framing.content.encode(" and on" * rng.randint(2, 6)))
        sampling = Sampling(max_tokens=rng.randint(2, 12), seed=number)
        made.append(Decode(parents=read, forced=forced if number % 2 else None, sampling=sampling, logits=True))
    return made


Found = tuple[Tensor, ...]


def played(engine: Engine, calls: list[Decode], late: Random | None = None) -> list[Found]:
    """All keys, values and logits of these calls, submitted one at a time at moments that `late` chooses."""
    left, ids = list(calls), list[EncodingId]()
    while left or not engine.idle:
        while left and (late is None or not late.randrange(2) or engine.idle):
            ids += engine.submit([left.pop(0)])
        engine.step(deterministic=True)
    return [(*(each for pair in engine.cached(id) for each in pair), *engine.logits(id)) for id in ids]


def same(one: Found, other: Found) -> bool:
    """Equal bit for bit."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_rows_of_a_step_have_one_forward(engines: Engines, forwards: list[int]) -> None:
    engine = invariant(engines())
    calls = speeches(engine, Random(1), 8)
    engine.submit(calls)
    engine.step(deterministic=True)
    forwards.clear()
    engine.step(deterministic=True)
    assert forwards == [8]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_no_bit_of_a_message_depends_on_who_comes_and_goes_beside_it(engines: Engines, seed: int) -> None:
    engine = invariant(engines())
    calls = speeches(engine, Random(seed), 11)
    beside = played(engine, calls, Random(seed))
    for call, found in zip(calls, beside, strict=True):
        (alone,) = played(engine, [call])
        assert same(found, alone)


@pytest.mark.slow
@pytest.mark.parametrize("family", OTHERS, ids=lambda family: family.name)
def test_the_same_of_other_families(engines: Engines, family: Family) -> None:
    engine = engines(family)
    calls = speeches(engine, Random(4), 9)
    beside = played(engine, calls, Random(4))
    assert all(same(found, played(engine, [call])[0]) for call, found in zip(calls, beside, strict=True))


@pytest.mark.slow
def test_shadows_go_with_rows_and_keep_their_bits(engines: Engines, forwards: list[int]) -> None:
    engine = invariant(engines())
    told = engine.prefill([Prefill(text) for text in TEXTS[:3]])
    said = tuple(engine.framing.content.encode("on and on and " * 20))

    def shadowed(count: int) -> list[Found]:
        ids = list[EncodingId]()
        for number in range(count):
            speech = Decode(parents=[told[number]], forced=said)
            ids.append(engine.submit([speech, Shadow(speech, parents=[told[0]] if number else [])])[1])
        while not engine.idle:
            engine.step(deterministic=True)
        return [tuple(each for pair in engine.cached(id) for each in pair) for id in ids]

    alone = shadowed(1)
    forwards.clear()
    assert same(shadowed(3)[0], alone[0])
    assert max(forwards) > 16, "a stride of a shadow and rows"


def test_where_rows_change_each_other_each_has_a_forward_of_its_own(engines: Engines, forwards: list[int]) -> None:
    engine = engines.own()
    with leaky(engine.network, lambda out: out + 1e-6 * out.sum(1, keepdim=True)):
        assert engine._runner.sizes == ()
        engine.submit(speeches(engine, Random(1), 3))
        engine.step(deterministic=True)
        forwards.clear()
        engine.step(deterministic=True)
        assert forwards == [1, 1, 1]


@pytest.mark.parametrize("how", ["branch", "gather"])
def test_where_numbers_decide_what_is_computed_nothing_is_proved(engines: Engines, how: str) -> None:
    """Rows unlike any probe would change their neighbours."""

    def leak(out: Tensor) -> Tensor:
        if how == "branch":
            return out + 1 if out.isposinf().any().item() else out
        far = out.isposinf().any(-1)
        return out + out[far].sum().nan_to_num(0, 0, 0)

    engine = engines.own()
    with leaky(engine.network, leak):
        assert engine._runner.sizes == ()


@pytest.mark.parametrize("family", EXPERTS, ids=lambda family: family.name)
def test_tokens_that_go_to_experts_have_forwards_of_their_own(engines: Engines, family: Family) -> None:
    assert engines(family)._runner.sizes == ()


def test_a_size_with_other_bits_is_left_out(engines: Engines) -> None:
    if 16 not in engines()._runner.sizes:
        pytest.skip("there is nothing to leave out")
    engine = engines.own()
    with leaky(engine.network, lambda out: out * (1 + 2**-20) if out.shape[1] == 16 else out):
        assert 16 not in engine._runner.sizes
        assert SIZES[0] in engine._runner.sizes


def test_a_place_with_other_bits_is_found(engines: Engines) -> None:
    engine = engines.own()
    place = torch.ones(1, 8, 1, device=PLACE)
    place[0, 5] += 2**-20
    with leaky(engine.network, lambda out: out * place if out.shape[1] == 8 else out):
        assert engine._runner.sizes == ()


def test_another_number_of_threads_is_proved_anew(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, known = engines.own(), set[tuple[str | None, int]]()
    for threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert engine._runner.block >= 0
        known.add((None, threads))
        assert engine._runner._model.sizes.keys() == known

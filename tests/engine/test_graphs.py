"""Captured steps give the same results as steps that are not captured. A traced graph stands in for CUDA's: it repeats
the operations on the very same tensors, and nothing that Python decided."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.message import Words
from agentcho.protocol.call import EncodingId, Shadow
from agentcho.runner.graphs import Capture, CudaGraphs, Forward

from ..engines import Engines
from .families import Family, named

KINDS = named("llama", "gemma2", "gpt_oss", "llama4_text", "gpt_neox", quick="llama")
"""Families with windows, soft caps, sinks, chunks, experts and partial rotary."""
WORDS = "the quick brown fox jumps over a lazy dog and sleeps for days"


def stored(engine: Engine) -> Engine:
    """The engine, set to read in place."""
    engine.debug.slots.in_place = True
    return engine


class Traced:
    """Captures by tracing, and counts."""

    def __init__(self, error: float = 0.0) -> None:
        self.captured = self.replayed = 0
        self._error = error

    def __call__(self, forward: Forward) -> Forward:
        self.captured += 1
        with torch.no_grad(), patch("torch.fx.config.do_not_emit_stack_traces", True):  # traces take half of the time
            traced = make_fx(forward)()

        def replay() -> Tensor:
            self.replayed += 1
            with torch.no_grad():
                return traced() + self._error  # type: ignore[no-any-return]

        return replay


def talk(engine: Engine, seed: int) -> Iterator[Words]:
    """Random decodes over stored messages that begin and end at any time, some with shadows."""
    dice = random.Random(seed)
    told = engine.prefill([Prefill(" ".join(dice.choices(WORDS.split(), k=dice.randint(1, 9)))) for _ in range(4)])
    said, steps = list[EncodingId](), 0
    while not engine.idle or steps < 20:
        steps += 1
        if steps < 20 and dice.random() < 0.2:
            read = tuple(dice.sample(told, dice.randint(0, 3)))
            sampling = Sampling(max_tokens=dice.randint(2, 20), temperature=dice.choice([0, 1]), seed=steps)
            call = Decode(dice.choice(WORDS.split()), read, sampling=sampling)
            said += engine.submit([call, *([Shadow(call, told[:1])] if dice.random() < 0.3 else [])])
        engine.step()
    return (engine.message(id) for id in said)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_captured_steps_say_the_same_words(kind: Family, engines: Engines, by_copies: None) -> None:
    plain, other = engines(kind), stored(engines(kind))
    traced = Traced()
    other._runner.graphs = CudaGraphs(other._model, other._runner.layers, traced)
    assert [each.tokens for each in talk(other, 0)] == [each.tokens for each in talk(plain, 0)]
    assert traced.replayed > traced.captured > 0


@pytest.fixture
def pair(llama: Engine, by_copies: None) -> tuple[Engine, Engine]:
    return stored(llama.adapted(None)), llama.adapted(None)


def frozen(forward: Forward) -> Forward:
    logits = forward()
    return lambda: logits


@pytest.mark.parametrize("capture", [Traced(error=1.0), frozen], ids=["wrong", "frozen"])
def test_a_graph_that_gives_other_logits_says_nothing(pair: tuple[Engine, Engine], capture: Capture) -> None:
    """The error is found in the first step that the graph serves, and that step's output is discarded."""
    pair[0]._runner.graphs = graphs = CudaGraphs(pair[0]._model, pair[0]._runner.layers, capture)
    graphs.prepare(pair[0]._runner.slots.lanes)
    with pytest.warns(UserWarning, match="without CUDA graphs.*other logits"):
        assert [each.tokens for each in talk(pair[0], 0)] == [each.tokens for each in talk(pair[1], 0)]
    assert not len(pair[0].debug.slots)
    assert [each.tokens for each in talk(pair[0], 0)] == [each.tokens for each in talk(pair[1], 0)]


def test_a_forward_that_cannot_be_captured_goes_without(pair: tuple[Engine, Engine]) -> None:
    """Each kind of step is tried twice, with a single warning."""
    tried = list[Forward]()

    def refused(forward: Forward) -> Forward:
        tried.append(forward)
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")

    pair[0]._runner.graphs = graphs = CudaGraphs(pair[0]._model, pair[0]._runner.layers, refused)
    with pytest.warns(UserWarning, match=r"cannot be captured \(operation not permitted when stream is") as told:
        said = [each.tokens for each in talk(pair[0], 0)]
    assert said == [each.tokens for each in talk(pair[1], 0)]
    assert len(told) == 1
    assert len(tried) == 2 * len(graphs._failed)


def test_a_row_that_is_not_finite_says_nothing_against_a_graph(
    pair: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = pair[0]
    engine._runner.graphs = graphs = CudaGraphs(engine._model, engine._runner.layers, Traced())
    forward, spoilt = graphs._forward, list[int]()

    def once(*asked: Any) -> Tensor:
        logits = forward(*asked)
        if len(logits) == 2 and engine.rows == 2 and not spoilt:
            spoilt.append(len(logits))
            logits = logits.clone()
            logits[0] = torch.nan
        return logits

    monkeypatch.setattr(graphs, "_forward", once)
    with warnings.catch_warnings(action="error"):
        engine.submit([Decode(sampling=Sampling(max_tokens=9)) for _ in range(2)])
        failed = [failure for _ in range(12) for failure in engine.step().failed]
    assert engine.idle
    assert spoilt
    assert (len(failed), graphs.broken) == (1, None)


def test_a_capture_that_failed_once_is_made_again(pair: tuple[Engine, Engine]) -> None:
    traced, failed = Traced(), list[Forward]()

    def capture(forward: Forward) -> Forward:
        if not failed:
            failed.append(forward)
            raise RuntimeError("operation failed due to a previous error during capture")
        return traced(forward)

    pair[0]._runner.graphs = CudaGraphs(pair[0]._model, pair[0]._runner.layers, capture)
    with warnings.catch_warnings(action="error"):
        pair[0].decode(Decode(forced=(40,) * 9))
    assert failed
    assert traced.replayed > traced.captured > 0
    assert not pair[0]._runner.graphs._failed


def test_nothing_is_captured_in_the_deterministic_profile(pair: tuple[Engine, Engine]) -> None:
    traced = Traced()
    pair[0]._runner.graphs = CudaGraphs(pair[0]._model, pair[0]._runner.layers, traced)
    pair[0].submit([Decode(sampling=Sampling(max_tokens=9))])
    while not pair[0].idle:
        pair[0].step(deterministic=True)
    assert not traced.captured


@pytest.mark.slow
def test_those_not_used_for_longest_go(pair: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.runner.graphs.MOST", 2)
    traced = Traced()
    graphs = pair[0]._runner.graphs = CudaGraphs(pair[0]._model, pair[0]._runner.layers, traced)
    for rows in (1, 2, 3, 3, 1):
        pair[0].decode([Decode(forced=(40,) * 6) for _ in range(rows)])
        assert len(graphs._graphs) <= 2
    assert list(graphs._graphs)[-1].tokens == 1
    assert traced.captured > len({4, 8, 2, 1})  # some kinds are captured twice

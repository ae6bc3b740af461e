"""One forward over a whole workflow: its loss equals the engine's own scores, its gradients those of slower methods."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from agentcho.config import Leakage, Mode
from agentcho.errors import ContextOverflow, LeakageError
from agentcho.lab.tune.unfolding import Unfolded, unfold
from agentcho.records.trace import Workflow
from agentcho.runner.engine import Engine
from agentcho.runner.gradients import Made

from ..engine.families import Family, each, named
from ..engine.oracle import Message, Oracle
from ..engine.templates import styles, tokenizer
from ..engines import Engines
from .flows import decode, prefill, scored, talk, trace

WAYS: list[tuple[Mode, Leakage]] = [("choreographed", "audit"), ("choreographed", "enforce"), ("baseline", "audit")]


def losses(engine: Engine, unfolded: Unfolded) -> Tensor:
    rows = engine.differentiable(unfolded.segments)
    return cross_entropy(rows, torch.tensor(unfolded.targets), reduction="none")


def gradients(network: torch.nn.Module, loss: Tensor) -> dict[str, Tensor]:
    named = {name: each for name, each in network.named_parameters() if each.requires_grad}
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {name: grad for name, grad in zip(named, found, strict=True) if grad is not None}


def apart(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """The largest difference, relative to the largest gradient of the parameter."""
    assert found.keys() == wanted.keys()
    return max(
        float((found[name] - wanted[name]).abs().max() / wanted[name].abs().max().clamp(min=1e-9)) for name in wanted
    )


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=":".join)
@pytest.mark.parametrize("family", each("llama", "llama4_text"))
def test_the_loss_is_the_sum_of_the_engines_own_scores(
    family: Family, way: tuple[Mode, Leakage], engines: Engines
) -> None:
    loaded = engines(family)
    wanted, _ = scored(talk(), loaded, *way)
    with torch.no_grad():
        found = losses(loaded, unfold(talk(), loaded, *way))
    assert found.shape == wanted.shape
    assert abs(float(found.sum() + wanted.sum())) < 1e-4
    assert float((found + wanted).abs().max()) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=":".join)
@pytest.mark.parametrize("family", named("llama", "qwen3", "gemma3_text", "gpt_neox", quick="gemma3_text"))
def test_gradients_are_those_of_a_stock_model_that_makes_one_message_after_another(
    family: Family, way: tuple[Mode, Leakage], engines: Engines
) -> None:
    loaded, model = engines(family), engines.stock(family)
    _, replayed = scored(talk(), loaded, *way)
    bos = tokenizer(family.style).bos_token_id if styles()[family.style].begins else None
    oracle, index, total = Oracle(model, family.layers, bos, gradients=True), dict[int, int](), torch.zeros(())
    messages = {entry.message.id: entry.message for entry in replayed.entries}
    own = {entry.encoding for entry in replayed.entries}
    for record in sorted((r for entry in replayed.entries for r in entry.made), key=lambda r: r.id):
        message, receipt = messages[record.message], record.receipt
        context = tuple((index[piece.id], piece.offset) for piece in receipt.context)
        index[record.id] = oracle.add(Message(record.tokens or message.tokens, receipt.start, context))
        if message.sampled and record.id in own:
            begin, end = message.sampled
            said = torch.tensor(message.tokens[begin : end + 1])
            total = total + cross_entropy(oracle.logits(index[record.id])[begin - 1 : end], said, reduction="sum")
    loss = losses(loaded, unfold(talk(), loaded, *way)).sum()
    assert abs(float(loss.detach() - total.detach())) < 1e-3
    assert apart(gradients(loaded.network, loss), gradients(model, total)) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=":".join)
def test_call_by_call_is_the_same(way: tuple[Mode, Leakage], engines: Engines) -> None:
    loaded = engines()
    unfolded, made, rows = unfold(talk(), loaded, *way), Made(), list[Tensor]()
    for segment in unfolded.segments:
        found = loaded.differentiable([segment], made)
        rows += [found] if segment.wanted else []
    slow = cross_entropy(torch.cat(rows), torch.tensor(unfolded.targets), reduction="sum")
    quick = losses(loaded, unfolded).sum()
    assert abs(float((slow - quick).detach())) < 1e-4
    assert apart(gradients(loaded.network, quick), gradients(loaded.network, slow)) < 1e-4


def test_what_nobody_needs_is_left_out_and_what_is_equal_stands_once(engines: Engines) -> None:
    loaded = engines()
    words = [loaded.tokenizer.decode(s.ids) for s in unfold(talk(), loaded, "choreographed", "audit").segments]
    assert [("the words of pa" in each, "the words of idle" in each) for each in words].count((True, False)) == 1
    assert not any("idle" in each for each in words)
    twice = trace(
        prefill("one", None, "everyone", text="same"),
        prefill("two", None, "everyone", text="same"),
        decode("a", "alice", "everyone", "one"),
        decode("b", "bob", "everyone", "two"),
    )
    assert len(unfold(twice, loaded, "choreographed", "audit").segments) == 1 + 1 + 2


def test_what_inference_refuses_is_refused(engines: Engines) -> None:
    loaded = engines()
    eavesdrop = trace(prefill("p", "alice", ["alice"]), decode("b", "bob", "everyone", "p"))
    with pytest.raises(LeakageError):
        unfold(eavesdrop, loaded, "choreographed", "enforce")
    long = trace(decode("a", "alice", "everyone", text="word " * loaded.context))
    with pytest.raises(ContextOverflow):
        unfold(long, loaded, "choreographed", "audit")


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Random messages of three agents and a scenario, for random audiences, over readable messages in any order."""
    messages: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 9))):
        author = draw(st.sampled_from(["alice", "bob", "carol", None]))
        to = draw(st.one_of(st.just("everyone"), st.lists(st.sampled_from(["alice", "bob", "carol"]), max_size=2)))
        audience = to if to == "everyone" or author is None else sorted({author, *to})
        readable = [m["id"] for m in messages if m["audience"] == "everyone" or author in m["audience"]]
        chosen = draw(st.lists(st.sampled_from(readable), unique=True, max_size=4)) if readable and author else []
        at = draw(st.lists(st.one_of(st.none(), st.integers(1, 99)), min_size=len(chosen), max_size=len(chosen)))
        text = " ".join(["w"] * draw(st.integers(0, 3)))
        make = decode if author is not None and draw(st.booleans()) else prefill
        messages.append(make(f"m{number}", author, audience, *chosen, text=text, offsets=at or None))  # type: ignore[arg-type]
    return trace(*messages)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flow=workflows(), way=st.sampled_from(WAYS))
def test_any_workflow_is_scored_as_the_engine_scores_it(
    engines: Engines, flow: Workflow, way: tuple[Mode, Leakage]
) -> None:
    loaded = engines()
    unfolded = unfold(flow, loaded, *way)
    if not unfolded.targets:
        assert unfolded.segments == ()
        return
    wanted, _ = scored(flow, loaded, *way)
    with torch.no_grad():
        found = losses(loaded, unfolded)
    # The submission order of independent waiting messages depends on timing.
    assert float((found.sort().values - (-wanted).sort().values).abs().max()) < 1e-4

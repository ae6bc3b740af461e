"""The benchmark's arms: the same words in all of them, on the same weights, with token counts checked by hand."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import log_softmax

from agentcho import Engine, replay
from agentcho.config import ReusePolicy
from agentcho.engine.template import derive
from agentcho.errors import ConfigError
from agentcho.extras import LIBRARIES
from agentcho.games.runs.replay import ReplayedMessage, awaited
from agentcho.lab.bench.arms import AUDIT, CONTINUOUS, ENFORCE, EXACT, GENERATE, GUESSING, OURS, arm, arms, exactly
from agentcho.lab.bench.peers.continuous import PAGE, _Forcing
from agentcho.lab.bench.peers.generate import Forced, Generating, stock_attention
from agentcho.lab.bench.prompts import Prompt, prompts
from agentcho.lab.bench.result import Figures
from agentcho.lab.bench.words import with_words
from agentcho.protocol.call import StepResult
from agentcho.provenance.resolver import Resolver
from agentcho.records.trace import Workflow
from agentcho.reuse.registry import parsed_repair

from ..engine.templates import blank_before_the_end
from ..engines import Engines


def begins_alike(one: Sequence[int], other: Sequence[int]) -> int:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return same


def counted(said: dict[str, Prompt]) -> int:
    """Tokens fed with careful reuse: the answers' prompt once except for its last token, then only new ones."""
    answers, vote = [said[id] for id in ("a1", "a2", "a3")], said["vote"]
    first = len(answers[0].prompt) - 1 + sum(1 + len(answer.text) for answer in answers)
    known = max(begins_alike(vote.prompt, (*answer.prompt, *answer.text)) for answer in answers)
    return first + len(vote.prompt) - known + len(vote.text)


@pytest.mark.slow
@pytest.mark.parametrize("stepwise", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [*OURS, *EXACT, *GUESSING, GENERATE, CONTINUOUS])
def test_every_arm_plays_and_feeds_what_it_must(engine: Engine, tree: Workflow, name: str, stepwise: bool) -> None:
    played = arms()[name](engine, tree, stepwise)
    assert set(played.calls) == {"a1", "a2", "a3", "vote"}
    assert all(call.ready <= call.first <= call.ended for call in played.calls.values())
    assert played.calls["vote"].ready == max(played.calls[id].ended for id in ("a1", "a2", "a3"))
    assert 0 < played.ttft < played.seconds
    assert 0 < played.prefill <= 1
    entries = replay(tree, engine, leakage="audit", logits=False).entries
    once = sum(len(entry.message.tokens) for entry in entries)
    again = sum(len(e.message.tokens) for e in entries if e.message.id in ("a1", "a2", "a3"))
    byhand = counted(prompts(tree, engine.framing))
    exact = {"choreographed:audit": once, "baseline": once + again, GENERATE: byhand}
    exact |= {f"choreographed:audit:{more}": once for more in ("deterministic", "speculate")}
    if name in exact:
        assert played.encoded == exact[name]
    elif name in (*OURS, *EXACT, *GUESSING):  # at most two encodings per message: its author's and its audience's
        assert once < played.encoded <= 2 * once
    elif stepwise:  # only whole pages are shared, so each call feeds up to a page more
        assert byhand <= played.encoded <= byhand + 4 * PAGE + 3 * len(prompts(tree, engine.framing)["a1"].prompt)


@pytest.mark.slow
@pytest.mark.parametrize("name", [AUDIT, ENFORCE])
def test_a_deterministic_arm_gives_every_call_a_forward_of_its_own(
    engine: Engine, tree: Workflow, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ways, step = set[bool](), set[ReusePolicy](), engine.step

    def noted(deterministic: bool = False) -> StepResult:
        asked.add(deterministic)
        return step(deterministic)

    def resolver(reuse: ReusePolicy, *given: Any, **options: Any) -> Resolver:
        ways.add(reuse)
        return Resolver(reuse, *given, **options)

    monkeypatch.setattr(engine, "step", noted)
    monkeypatch.setattr("agentcho.games.play.journal.Resolver", resolver)
    fast = arms()[name](engine, tree, True)
    assert asked == {False}
    exact = arms()[exactly(name)](engine, tree, True)
    assert asked == {False, True}
    assert {(reuse.leakage, reuse.deterministic) for reuse in ways} == {(name.split(":")[1], each) for each in asked}
    assert set(fast.calls) == set(exact.calls)


def test_prompts_are_what_the_baseline_feeds(engine: Engine, tree: Workflow) -> None:
    said, entries = prompts(tree, engine.framing), replay(tree, engine, mode="baseline", logits=False).entries
    whole = {entry.message.id: entry.message.tokens for entry in entries}
    made = {record.id: record.tokens or whole[record.message] for entry in entries for record in entry.made}
    start = () if engine.framing.bos is None else (engine.framing.bos,)
    assert start
    for entry in (entry for entry in entries if entry.message.kind == "decode"):
        assert entry.own is not None
        read = tuple(token for piece in entry.own.receipt.context for token in made[piece.id])
        begun = (*said[entry.message.id].prompt, *said[entry.message.id].text)
        assert (*start, *read, *whole[entry.message.id])[: len(begun)] == begun


def test_stock_chooses_from_what_the_baseline_chooses_from(engine: Engine, tree: Workflow) -> None:
    said, replayed = prompts(tree, engine.framing), replay(tree, engine, mode="baseline")
    with stock_attention(engine.network):
        stock = Generating(engine.network, engine.framing.closing("assistant")[0], keep=True)
        for batch in (["a1"], ["a1", "a2", "a3"], ["vote"], ["vote", "a2"]):  # the last: prefixes of different lengths
            stock.batch([Forced(said[id].author, said[id].prompt, said[id].text) for id in batch])
            for id, logits in zip(batch, stock.logits, strict=True):
                assert logits.shape == replayed[id].logits.shape
                assert torch.allclose(logits.log_softmax(-1), replayed[id].logits.log_softmax(-1), atol=1e-4)


@pytest.mark.parametrize(
    ("arm_name", "stock"), [(GENERATE, "generate.Generating"), (CONTINUOUS, "continuous.Continuous")]
)
def test_stock_stops_at_the_token_that_ends_answers_and_not_at_a_blank_before_it(
    arm_name: str, stock: str, engine: Engine, tree: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = blank_before_the_end()
    framing = derive(tokenizer, "spaced")
    stops = list[int]()

    def made(network: object, stop: int, *more: object, **named: object) -> None:
        stops.append(stop)
        raise StopIteration

    monkeypatch.setattr(f"agentcho.lab.bench.peers.{stock}", made)
    monkeypatch.setattr("agentcho.lab.bench.arms.prompts", lambda workflow, framing: {})
    monkeypatch.setattr("agentcho.lab.bench.arms._room", lambda said: 1)
    with pytest.raises(StopIteration):
        arm(arm_name)(cast(Any, SimpleNamespace(framing=framing, network=engine.network)), tree, True)
    assert stops == [tokenizer.eos_token_id]


@pytest.mark.slow
def test_the_network_is_the_engines_again(engine: Engine, tree: Workflow) -> None:
    before = replay(tree, engine, mode="baseline")["vote"].logits
    for name in (GENERATE, CONTINUOUS):
        arms()[name](engine, tree, True)
    assert torch.equal(replay(tree, engine, mode="baseline")["vote"].logits, before)


def test_a_request_says_its_next_word_also_where_its_last_one_is_not_known_yet() -> None:
    forcing, request = _Forcing(stop=9), SimpleNamespace(state=SimpleNamespace(request_id="a", generated_tokens=[]))
    forcing.texts["a"] = (4, 5)
    assert [forcing.prepare_tensor_args([request]).tolist() for _ in range(3)] == [[4], [5], [9]]


def test_a_call_waits_for_the_nearest_words_that_it_reads(tree: Workflow) -> None:
    needs = awaited(tree)
    assert needs["a1"] == frozenset()
    assert needs["vote"] == {"a1", "a2", "a3"}


def _logits(said: ReplayedMessage) -> torch.Tensor:
    return torch.as_tensor(said.logits, dtype=torch.float64)


def test_the_words_of_our_arms_are_held_against_the_baselines(
    engine: Engine, tree: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Divergences come from replays of each arm, and need no libraries of an extra that timing does not need."""
    for library in LIBRARIES["lab"]:
        monkeypatch.setitem(sys.modules, library, None)
    named = [AUDIT, f"{AUDIT}+full", "baseline", GENERATE]
    timed = [Figures.of("tree", arm, [{"seconds": 1.0}]) for arm in named]
    timed.append(Figures.of("tree", ENFORCE, [], "why"))
    found = {each.arm: each.values for each in with_words(engine, tree, timed)}
    assert found["baseline"] == found[GENERATE] == {"seconds": (1.0,)}
    assert found[ENFORCE] == {}
    before, after = replay(tree, engine, mode="baseline", leakage="audit"), replay(tree, engine, leakage="audit")
    apart = [[log_softmax(_logits(each[id]), -1) for each in (before, after)] for id in after]
    by_hand = torch.cat([(one.exp() * (one - other)).sum(1) for one, other in apart])
    assert found[AUDIT]["kl"][0] == pytest.approx(float(by_hand.mean()), rel=1e-3, abs=1e-6)
    same = torch.cat([one.argmax(1) == other.argmax(1) for one, other in apart])
    assert found[AUDIT]["agree"][0] == pytest.approx(float(same.double().mean()))


def test_all_anew_is_the_baseline_where_its_template_writes_no_more_than_frames(phi: Engine, tree: Workflow) -> None:
    timed = [Figures.of("tree", arm, [{"seconds": 1.0}]) for arm in (AUDIT, f"{AUDIT}+full", "baseline")]
    found = {each.arm: each.values for each in with_words(phi, tree, timed)}
    assert found[AUDIT]["kl"][0] > 10 * abs(found[f"{AUDIT}+full"]["kl"][0])


def test_random_weights_say_nothing_of_words(engine: Engine, tree: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = [Figures.of("tree", arm, [{"seconds": 1.0}]) for arm in (AUDIT, "baseline")]
    monkeypatch.setitem(engine.fingerprint, "model", "shape:qwen3-0.6b")
    assert with_words(engine, tree, timed) == timed


def test_an_arm_that_repairs_plays_as_a_run_that_does(engine: Engine, tree: Workflow) -> None:
    played = arm(f"{AUDIT}+first-k:2")(engine, tree, True)
    said = replay(tree, engine, leakage="audit", repair=parsed_repair("first-k:2"), logits=False)
    assert played.encoded == said.encoded > arm(AUDIT)(engine, tree, True).encoded


@pytest.mark.parametrize("name", ["none", f"{AUDIT}+some", "baseline+full", f"{AUDIT}+"])
def test_an_arm_that_is_not_there_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"unknown arm {name!r}")):
        arm(name)


@pytest.mark.parametrize("way", OURS)
def test_all_that_is_fed_is_kept_until_the_end(engines: Engines, tree: Workflow, way: str) -> None:
    own = engines.own()
    fed = arm(way)(own, tree, True).encoded
    pages = own.fullness
    kept, spare = pages.high_water * pages.page_tokens, len(tree.messages) * 2 * pages.page_tokens
    assert fed <= kept < fed + spare, "an encoding takes whole pages"

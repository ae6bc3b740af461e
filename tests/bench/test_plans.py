"""The benchmark's workflows: graphs of the scenarios with random words, equal for equal seeds."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from agentcho import replay
from agentcho.errors import ConfigError
from agentcho.lab.bench.plans import agents, branches, paper, readers, shortened, traced
from agentcho.lab.bench.played import CallTimes, WorkflowTimes
from agentcho.lab.bench.recorded import KINDS, RAGGED, WORDS_A_TOKEN, _Words, recorded
from agentcho.records.trace import Workflow, workflow
from agentcho.testing import FakeEngine
from tools.bench.commands import beside_vllm
from tools.bench.overhead import crowd


def decodes(whole: Workflow) -> Counter[str]:
    return Counter((m.author or "").split("-")[0] for m in whole.messages if m.kind == "decode")


def test_the_paper_is_played_at_its_sizes() -> None:
    played = {each.name: decodes(each.workflow) for each in paper(list(KINDS), 1, 0.1)}
    assert played == {
        "prisoners-dilemma": {"alice": 4, "bob": 4},
        "debate": {"ada": 3, "ben": 3, "mod": 4},
        "tree-of-thoughts": {"solver": 8, "voter": 4, "finisher": 1},
        "parallel-debate": {"ada": 3, "ben": 3, "cleo": 3},
        "parallel-debate, unnamed": {"ada": 3, "ben": 3, "cleo": 3},
        "multi-qa": {"ann": 1},
        "branch-solve-merge": {"dan": 1, "eva": 1, "finn": 1, "gus": 1},
    }
    with pytest.raises(ConfigError, match="unknown workflow 'chess'; give one of prisoners-dilemma"):
        paper(["chess"], 1, 1)


def test_beside_vllm_traces_alone_are_played_alone() -> None:
    file = Path(__file__).parents[1] / "fixtures" / "formats" / "trace" / "sampled.jsonl"
    [recorded] = [each.name for each in beside_vllm((), [file], 1, 1, 0.1)]
    assert recorded.startswith("trace ")
    assert [each.name for each in beside_vllm(["multi-qa"], [file], 1, 1, 0.1)] == ["multi-qa", recorded]
    usual = [each.name for each in beside_vllm((), (), 1, 1, 0.1)]
    assert usual[:2] == ["prisoners-dilemma", "tree-of-thoughts"]


@pytest.mark.slow
def test_sweeps_grow() -> None:
    counts = [f"{count} agents" for count in (2, 4, 8, 16)]
    many = agents(1, 0.05)
    assert [each.name for each in many] == [name + more for name in counts for more in ("", ", unnamed")]
    widest = branches(1, 0.05)[-1]
    assert (widest.name, decodes(widest.workflow)) == (
        "16 branches, 8 voters",
        {"solver": 16, "voter": 8, "finisher": 1},
    )
    read = [sum(len(m.parents) for m in each.workflow.messages) for each in many[::2]]
    assert all(3 < many / few < 4.2 for few, many in pairwise(read[1:])), "with the square of the agents"


def test_panels_read_the_same_documents_in_prompts_of_three_layouts() -> None:
    swept = readers(1, 0.1)
    assert [each.name for each in swept[:4]] == [
        "1024 tokens, 2 readers, system first",
        "1024 tokens, 2 readers, document first",
        "1024 tokens, 2 readers, reordered",
        "1024 tokens, 8 readers, system first",
    ]
    layouts = [{m.author: m.parents for m in each.workflow.messages if m.kind == "decode"} for each in swept[:3]]
    system, document = layouts[:2]
    reordered = layouts[2]
    assert system["reader-2"] == ("reader-2 system", "document-1", "reader-2 question")
    assert document["reader-2"] == ("document-1", "reader-2 system", "reader-2 question")
    orders = [[id for id in reordered[name] if id.startswith("document")] for name in ("reader-1", "reader-2")]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    assert len(orders[0]) == 4
    assert system["editor"] == (
        *("editor system", "document-1", "reader-1 review", "reader-2 review", "editor question"),
    )
    private = {m.id for m in swept[0].workflow.messages if m.audience != "everyone"}
    assert private == {f"{who} {what}" for who in ("reader-1", "reader-2", "editor") for what in ("system", "question")}
    lengths = {m.id: len(m.text.split()) for m in swept[2].workflow.messages if m.id.startswith("document")}
    assert all(each == round(1024 // 4 * WORDS_A_TOKEN * 0.1) for each in lengths.values())


def test_words_are_the_same_for_the_same_seed_and_open_system_prompts_are_of_their_length() -> None:
    whole = recorded("tree-of-thoughts", 1, 0.1)
    assert whole == recorded("tree-of-thoughts", 1, 0.1)
    assert whole != recorded("tree-of-thoughts", 2, 0.1)
    system = {m.id: len(m.text.split()) for m in whole.messages if m.role == "system"}
    assert system.keys() == {"scenario.0", "scenario.1", "finisher.0"}
    assert max(system.values()) <= 90 * WORDS_A_TOKEN * 0.1 * (1 + RAGGED) + 1
    said = {m.text for m in whole.messages if m.kind == "decode"}
    assert len(said) == 13


def test_what_was_known_and_the_same_before_is_the_same_again() -> None:
    words, (one, other, *_) = _Words({"system": 90}, 1, Random(1)), crowd(1, 2, 2, 40).messages
    said = [words.say_again(message, "system")["text"] for message in (one, other, one)]
    assert said[0] == said[2] != said[1]


def test_scale_shortens_what_is_said() -> None:
    words = [sum(len(m.text.split()) for m in recorded("debate", 1, scale).messages) for scale in (1, 0.25)]
    assert 3 < words[0] / words[1] < 5


def test_traces_lose_words_and_positions_to_warm_up() -> None:
    whole = crowd(1, 2, 2, 40)
    placed = whole.to_json()
    placed["messages"][-1] |= {"offsets": [None] * len(placed["messages"][-1]["parents"]), "new_offset": 90}
    (one,) = traced([workflow(placed)], 1)
    assert (one.name, one.workflow) == ("trace crowd crowd-1", workflow(placed))
    assert {len(m.text.split()) for m in one.warm.messages} == {2}
    assert one.warm.messages[-1].new_offset is None
    assert shortened(whole, 1) == whole


def test_traces_of_one_name_are_told_apart() -> None:
    twice = traced([crowd(1, 2, 2, 40), crowd(1, 3, 2, 40), crowd(1, 2, 2, 40)], 1)
    assert [each.name for each in twice] == ["trace crowd crowd-1", "trace crowd crowd-1#2", "trace crowd crowd-1#3"]


def test_waiting_counts_overlapping_calls_once() -> None:
    calls = {"a": CallTimes(0, 2, 5), "b": CallTimes(1, 3, 4), "c": CallTimes(5, 6, 10)}
    played = WorkflowTimes(calls, 7)
    assert played.ttft == pytest.approx((2 + 2 + 1) / 3)
    assert played.seconds == 10
    assert played.prefill == pytest.approx(0.4)


def test_solvers_without_names_read_one_open_prompt() -> None:
    """A prefix-caching baseline shares that prompt; and under `enforce` nothing is encoded a second time, since nobody
    speaks over anything that another may not read."""
    named, unnamed = (recorded("parallel-debate", 1, 0.1, names=each, agents=4) for each in (True, False))
    briefs = [[m for m in one.messages if m.role == "system"] for one in (named, unnamed)]
    assert [len(each) for each in briefs] == [4, 1]
    assert briefs[1][0].audience == "everyone"
    said = [[str(m.author) for m in one.messages if m.kind == "decode"] for one in (named, unnamed)]
    assert sorted(said[0]) == sorted(said[1])
    fed = [replay(one, FakeEngine(), mode="baseline", logits=False).encoded for one in (named, unnamed)]
    assert fed[1] < 0.6 * fed[0]
    reused = [replay(one, FakeEngine(), leakage="audit", logits=False).encoded for one in (named, unnamed)]
    assert reused[1] <= reused[0] < fed[1]
    kept = [replay(one, FakeEngine(), leakage="enforce", logits=False).encoded for one in (named, unnamed)]
    assert kept[0] > reused[0]
    assert kept[1] == reused[1]

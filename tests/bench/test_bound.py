"""The number of new tokens in a workflow's prompts, compared with what real replays feed."""

from __future__ import annotations

from typing import Any

import pytest

from agentcho import Engine, replay
from agentcho.games.runs.replay import Replayed
from agentcho.lab.bench.arms import AUDIT, BASELINE, ENFORCE
from agentcho.lab.bench.bound import bound, new, with_new
from agentcho.lab.bench.recorded import recorded
from agentcho.lab.bench.result import Figures
from agentcho.lab.display.bench import heads, row
from agentcho.records.trace import Workflow
from agentcho.testing import FakeEngine

from .conftest import result


def said(replayed: Replayed) -> int:
    """The number of generated tokens, without openings and headers."""
    whole = [entry.message for entry in replayed.entries if entry.message.kind == "decode"]
    return sum(len(message.tokens) - message.words.content[0] for message in whole) - sum(
        len(FakeEngine().framing.content.encode(message.words.header)) for message in whole
    )


@pytest.mark.parametrize("name", ["multi-qa", "tree-of-thoughts", "parallel-debate", "prisoners-dilemma"])
def test_what_is_new_is_what_replays_feed(name: str) -> None:
    """Compared with what engines were fed: for the baseline exactly; for what is new to both, the upper bound is an
    engine that encodes each message once."""
    whole, engine = recorded(name, 1, 0.05), FakeEngine()
    alone, once = (
        replay(whole, FakeEngine(), mode=mode, leakage="audit", logits=False) for mode in ("baseline", "choreographed")
    )
    found = new(whole, engine.framing)
    assert found.baseline == alone.encoded - said(alone)
    read = {id for message in whole.messages if message.kind == "decode" for id in message.parents}
    unread = sum(
        len(e.message.tokens) for e in once.entries if e.message.kind == "prefill" and e.message.id not in read
    )
    assert found.both <= once.encoded - said(once) - unread
    assert found.both <= found.baseline <= found.prompts


def test_a_message_is_new_once_and_a_header_each_time(phi: Engine, tree: Workflow) -> None:
    """Counted by hand: the rules, the question, and the openings of four calls; the vote reads nothing new."""
    entries = {e.message.id: e.message for e in replay(tree, phi, logits=False).entries}
    header = len(phi.framing.content.encode("Well: "))
    calls = [entries[id] for id in ("a1", "a2", "a3", "vote")]
    begun = sum(message.words.content[0] + header for message in calls)
    told = len(entries["rules"].tokens) + len(entries["question"].tokens)
    answers = sum(len(entries[id].tokens) for id in ("a1", "a2", "a3"))
    found = new(tree, phi.framing)
    assert found.both == told + begun
    assert found.baseline == told + begun + answers
    assert found.prompts == 3 * told + len(entries["rules"].tokens) + answers + begun


def figures(**more: Any) -> Any:
    """A result of times to first token, with counts of new tokens."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {
        ("debate", BASELINE): {"ttft": [6.0], "encoded": [9.0], "prompts": [2000.0], "alone": [800.0], "new": [200.0]},
        ("debate", AUDIT): {"ttft": [2.0], "encoded": [9.0]},
        ("chat", BASELINE): {"ttft": [1.0], "encoded": [9.0]},
        ("chat", AUDIT): {"ttft": [1.0], "encoded": [9.0]},
    }
    return result(values, repeats=1, stepwise=False, **more)


def test_a_table_of_first_tokens_says_what_is_new_and_what_share_of_the_bound_is_reached() -> None:
    found = figures()
    columns = heads(found)
    rows = {arm: dict(zip(columns, row(found, "debate", arm)[1:], strict=True)) for arm in found.arms}
    assert rows[BASELINE]["new to both"] == "200 of 2,000"
    assert rows[AUDIT]["of the bound"] == "75% of 4.00"
    assert bound(found, ["debate"]) == 4
    chat = dict(zip(columns, row(found, "chat", AUDIT)[1:], strict=True))
    assert chat["of the bound"] == chat["new to both"] == ""
    assert "of the bound" not in heads(found.model_copy(update={"stepwise": True}))


def test_what_is_new_stands_with_the_baseline(engine: Engine, tree: Workflow) -> None:
    timed = [Figures.of("tree", arm, [{"ttft": 1.0}]) for arm in (BASELINE, ENFORCE)]
    before, after = with_new(tree, engine.framing, timed)
    assert (before.values["new"], before.values["alone"]) == ((new(tree, engine.framing).both,), before.values["alone"])
    assert "new" not in after.values
    gone = [Figures.of("tree", BASELINE, [], "why")]
    assert with_new(tree, engine.framing, gone) == gone

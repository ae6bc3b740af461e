"""The reference monitor: labels of encodings, checked right before these are gathered again, on both engines."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from agentcho import Decode, Engine, Prefill
from agentcho.config import Leakage, Mode, ReusePolicy
from agentcho.errors import LeakageError, RequestError
from agentcho.message import EVERYONE, Audience, Metadata
from agentcho.protocol.call import Call, Shadow
from agentcho.provenance.drafts import Draft
from agentcho.provenance.labels import Monitor
from agentcho.provenance.resolver import Resolver
from agentcho.provenance.views import ReadSet
from agentcho.testing import FakeEngine

from .contract import Asked, Bench, Shut, secret, speech

ALICE, BOB = Audience(frozenset({"alice"})), Audience(frozenset({"bob"}))
BOTH = Audience(frozenset({"alice", "bob"}))


def test_a_label_is_all_that_was_gathered_and_is_checked_whole() -> None:
    monitor = Monitor()
    monitor.guard("plan", ALICE, ALICE).admit(1, [])
    monitor.guard("said", EVERYONE, ALICE).admit(2, [1])
    monitor.guard("again", EVERYONE, ALICE).admit(3, [2])
    for context in ([1], [2], [3]):
        with pytest.raises(LeakageError) as refused:
            monitor.guard("answer", EVERYONE, BOB).admit(9, context)
        assert (refused.value.path[-1], refused.value.reader) == ("plan", "bob")
    monitor.guard("answer", EVERYONE, ALICE).admit(9, [3])


def test_what_has_no_label_is_refused_even_where_all_else_is_clean() -> None:
    monitor = Monitor()
    monitor.guard("said", EVERYONE, EVERYONE).admit(1, [])
    with pytest.raises(LeakageError, match="encoding 7"):
        monitor.guard("answer", EVERYONE, BOB).admit(2, [1, 7])
    with pytest.raises(LeakageError):
        monitor.guard("answer", EVERYONE, BOB).admit(3, [2])  # a refused encoding has no label


def test_a_game_knows_no_labels_of_another() -> None:
    one, other = Monitor(), Monitor()
    one.guard("said", EVERYONE, EVERYONE).admit(1, [])
    with pytest.raises(LeakageError):
        other.guard("answer", EVERYONE, BOB).admit(2, [1])


def test_everyone_is_no_roster() -> None:
    monitor = Monitor()
    monitor.guard("whisper", BOTH, BOTH).admit(1, [])
    monitor.guard("answer", BOTH, BOB).admit(2, [1])
    with pytest.raises(LeakageError):
        monitor.guard("public", EVERYONE, EVERYONE).admit(3, [1])
    with pytest.raises(LeakageError):
        monitor.guard("plan", BOB, BOTH).admit(4, [])  # its own message is part of its cone


def test_a_guard_is_asked_about_what_is_gathered(bench: Bench) -> None:
    asked = [Asked() for _ in range(4)]
    one = Prefill("one", guard=asked[0])
    two = Prefill("two", (one,), guard=asked[1])
    said = Decode("So: ", (two, one), forced=bench.words("we go"), guard=asked[2])
    ids = bench.run(one, two, said, Shadow(said, (one,), guard=asked[3]))
    assert [guard.calls for guard in asked] == [
        [(ids[0], ())],
        [(ids[1], (ids[0],))],
        [(ids[2], (ids[1], ids[0]))],
        [(ids[3], (ids[0],))],
    ]
    for id, guard in zip(ids, asked, strict=True):
        assert [entry.id for entry in bench.engine.receipt(id).context] == list(guard.calls[0][1])


def test_storage_is_not_shared_without_asking(bench: Bench) -> None:
    """An equal prefill encodes nothing, but is checked and labelled nevertheless."""
    monitor = Monitor()
    [first] = bench.run(Prefill("same", guard=monitor.guard("m", EVERYONE, EVERYONE)))
    fed = bench.step().encoded
    second, third = bench.run(Prefill("same", guard=monitor.guard("n", ALICE, ALICE)), Prefill("same", guard=Shut()))
    assert sum(result.encoded for result in bench.steps[1:]) == fed == 0
    assert (second in bench.held, third in bench.held) == (True, False)
    monitor.guard("answer", EVERYONE, BOB).admit(10**9, [first])
    with pytest.raises(LeakageError):
        monitor.guard("answer", EVERYONE, BOB).admit(10**9, [second])


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_refusal_fails_its_call_alone(bench: Bench, deterministic: bool) -> None:
    [hidden] = bench.run(secret())
    refused = Prefill("x", (hidden,), guard=Shut())
    unsaid = Decode("y", (hidden,), forced=(), guard=Shut())
    good = speech(hidden, forced=bench.words("all is well"))
    ids = bench.run(refused, good, unsaid, Prefill("over", (refused,)), deterministic=deterministic)
    errors = {id: type(error) for id, error in bench.failures().items()}
    assert errors == {ids[0]: LeakageError, ids[2]: LeakageError, ids[3]: RequestError}
    assert bench.engine.message(ids[1]).text == "all is well"


def test_a_refused_shadow_leaves_its_leader_alone_and_a_refused_leader_takes_it_along(bench: Bench) -> None:
    [hidden] = bench.run(secret())
    good = speech(forced=bench.words("all is well"))
    leader, shadow = bench.run(good, Shadow(good, (hidden,), guard=Shut()))
    assert (leader in bench.held, shadow in bench.held) == (True, False)
    bad = Decode("", (hidden,), forced=bench.words("no"), guard=Shut())
    leader, shadow = bench.run(bad, Shadow(bad, ()))
    assert not {leader, shadow} & bench.held
    assert isinstance(bench.failures()[leader], LeakageError)


def test_nothing_is_read_for_a_call_that_is_refused(small: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watches every read of the store while a call over a secret is refused and another call runs."""
    bench = Bench(small)
    hidden, public = bench.run(secret(), Prefill("Hello."))
    read: set[int] = set()
    real = small.store.gather

    def watched(rows: Tensor, *rest: Any) -> Any:
        read.update(rows.tolist())
        return real(rows, *rest)

    monkeypatch.setattr(small.store, "gather", watched)
    blocks = {id: small.debug.entry(id).block for id in (hidden, public)}
    shut: list[Call] = [Prefill("x", (hidden,), guard=Shut()), Decode("y", (hidden,), forced=(), guard=Shut())]
    bench.run(*shut, Prefill("z", (public,)), speech(public, forced=bench.words("fine")))
    assert {id for id, block in blocks.items() if read & set(block.rows.tolist())} == {public}
    bench.run(Prefill("x", (hidden,)))
    assert read >= set(blocks[hidden].rows.tolist())  # the watch does notice reads
    bench.clear()


def test_the_fake_feeds_nothing_of_a_call_that_is_refused() -> None:
    bench = Bench(FakeEngine())
    [hidden] = bench.run(secret())
    bench.run(Prefill("x", (hidden,), guard=Shut()))
    assert bench.steps[-1].encoded == 0
    bench.clear()


@pytest.mark.parametrize("mode", ["choreographed", "baseline"])
@pytest.mark.parametrize("leakage", ["enforce", "deny", "audit"])
def test_every_call_of_a_game_has_a_guard_but_under_audit(mode: Mode, leakage: Leakage) -> None:
    """In baseline mode too, because the caller's prompt is its own only if the resolver is right."""
    resolver = Resolver(ReusePolicy(mode, leakage))
    metadata = Metadata("alice.0", "decode", "assistant", "alice", EVERYONE, ())
    utterance = resolver.drafts["alice.0"] = Draft(metadata, "", "alice", ReadSet("alice", (), None, ()))
    calls = resolver.decode_plan(utterance).calls
    assert [call.guard is not None for call in calls] == [leakage != "audit"] * len(calls)

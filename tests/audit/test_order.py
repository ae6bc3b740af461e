"""Who can tell from the order of messages how long private ones were, in lines that are written by hand."""

from __future__ import annotations

import pytest

from agentcho.audit import order
from agentcho.audit.order import Raced
from agentcho.flow.views import Act, Move
from agentcho.records.transcript import Entry

from .transcripts import Talk

Said = tuple[str, str | list[str], Act]


def lines(*acts: Said) -> list[Entry]:
    """A game of these messages."""
    talk = Talk()
    for id, to, act in acts:
        talk.say(id, to, act=act)
    return talk.entries


def test_what_is_written_by_hand_is_judged_alike() -> None:
    plan, ready = ("alice.0", ["alice"], Act(after=())), ("alice.1", "everyone", Act(after=("alice.0",)))
    said = "bob.0", "everyone", Act(after=())
    assert list(order.raced(lines(plan, said, ready), ["bob"])) == [Raced("bob", "alice", "alice.1", ("alice.0",))]
    awaited = "bob.0", "everyone", Act(after=("alice.1",))
    assert not list(order.raced(lines(plan, ready, awaited), ["bob"]))


def test_what_has_no_length_of_its_own_races_with_nothing() -> None:
    """Known text takes no step: it was out when the plan had just begun."""
    plan, ready = ("alice.0", ["alice"], Act(after=())), ("alice.1", "everyone", Act(after=("alice.0",)))
    talk = Talk()
    talk.say("bob.0", "everyone", kind="prefill", act=Act(after=()))
    for id, to, act in (plan, ready):
        talk.say(id, to, act=act)
    assert not list(order.raced(talk.entries, ["bob"]))


def test_moves_of_one_round_do_not_race_and_rounds_do() -> None:
    def act(round: int, move: int) -> Act:
        return Act(after=(), moves=(Move(round, move),))

    one: list[Said] = [
        ("alice.0", ["alice"], act(1, 0)),
        ("alice.1", "everyone", act(1, 0)),
        ("bob.0", "everyone", act(1, 1)),
    ]
    assert not list(order.raced(lines(*one), ["bob"]))
    two = [*one[:2], ("bob.0", "everyone", act(2, 0))]
    [told] = order.raced(lines(*two), ["bob"])
    assert (told.owner, told.message) == ("alice", "alice.1")


def test_a_line_that_does_not_say_what_was_awaited_is_not_judged() -> None:
    assert not order.known(lines(("alice.0", "everyone", Act()), ("bob.0", "everyone", Act(after=()))))


@pytest.mark.parametrize("many", [300])
def test_many_messages_one_by_one_are_not_compared(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(order._Level, "_compared")
    said = [(f"bob.{n}", "everyone", Act(after=(f"bob.{n - 1}",) if n else ())) for n in range(many)]
    assert not list(order.raced(lines(*said), ["alice"]))

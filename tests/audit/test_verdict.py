"""The verdict on edges: leaks of every length, and unlabelled readings."""

from __future__ import annotations

import pytest

from agentcho.audit.report import Edge
from agentcho.audit.verdict import GameVerdict
from agentcho.protocol.call import ContextEntry

from .transcripts import Talk, anchored, chain


def only(edges: list[Edge]) -> Edge:
    (edge,) = edges
    return edge


def test_what_one_may_read_over_what_one_may_read_is_clean() -> None:
    talk = Talk()
    rules = talk.say("rules", "everyone", kind="prefill", author=None)
    plan = talk.say("alice.0", ["alice"], [rules])
    whisper = talk.say("alice.1", ["bob"], [rules])
    talk.say("alice.2", ["bob"], [rules, plan, whisper])
    talk.say("bob.0", "everyone", [rules, whisper])
    assert [edge.verdict for edge in talk.edges("alice") + talk.edges("bob")] == ["clean"] * 7
    assert all((edge.secrets, edge.path, edge.hops) == ((), (), 0) for edge in talk.edges("bob"))


def test_a_direct_leak_is_told_by_itself_whatever_it_carries() -> None:
    talk = Talk()
    deeper = talk.say("alice.0", ["alice"])
    secret = talk.say("alice.1", ["alice"], [deeper])
    talk.say("bob.0", "everyone", [secret])
    edge = only(talk.edges("bob"))
    assert (edge.verdict, edge.secrets, edge.path, edge.hops) == ("direct", ("alice.0", "alice.1"), ("alice.1",), 0)
    assert (edge.call, edge.message, edge.encoding, edge.recipe) == ("bob.0", "alice.1", secret, "author")


@pytest.mark.parametrize("hops", [1, 2, 3, 40])
def test_a_transitive_leak_has_the_path_from_what_is_read_to_the_secret(hops: int) -> None:
    talk = Talk()
    last = talk.say("alice.0", ["alice"])
    for number in range(1, hops + 1):
        last = talk.say(f"alice.{number}", "everyone", [last])
    talk.say("bob.0", "everyone", [last])
    edge = only(talk.edges("bob"))
    assert (edge.verdict, edge.hops, edge.secrets) == ("transitive", hops, ("alice.0",))
    assert edge.path == tuple(f"alice.{number}" for number in range(hops, -1, -1))


def test_a_leak_goes_through_others_who_leak_it_on() -> None:
    talk = chain()
    assert [only(talk.edges(who)).path for who in ("bob", "carol")] == [
        ("alice.1", "alice.0"),
        ("bob.0", "alice.1", "alice.0"),
    ]


def test_the_path_is_the_shortest_and_secrets_are_all_of_them_in_order() -> None:
    talk = Talk()
    far, near = talk.say("alice.0", ["alice"]), talk.say("carol.0", ["carol"])
    long = talk.say("alice.1", "everyone", [talk.say("alice.2", "everyone", [far])])
    talk.say("bob.0", "everyone", [talk.say("carol.1", "everyone", [long, near])])
    edge = only(talk.edges("bob"))
    assert edge.secrets == ("alice.0", "carol.0")
    assert edge.path == ("carol.1", "carol.0")
    (reading,) = [r for r in talk.readings() if r.edge.reader == "bob"]
    assert {share.owner: (share.secrets, share.path) for share in reading.shares} == {
        "carol": (("carol.0",), ("carol.1", "carol.0")),
        "alice": (("alice.0",), ("carol.1", "alice.1", "alice.2", "alice.0")),
    }


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_ways_the_shorter_is_told(turned: bool) -> None:
    talk = Talk()
    secret = talk.say("alice.0", ["alice"])
    near, far = talk.say("alice.1", "everyone", [secret]), talk.say("alice.2", "everyone", [secret])
    ways = [near, talk.say("alice.3", "everyone", [far])]
    talk.say("bob.0", "everyone", [talk.say("alice.4", "everyone", ways[::-1] if turned else ways)])
    assert only(talk.edges("bob")).path == ("alice.4", "alice.1", "alice.0")


def test_an_audience_encoding_is_read_by_nobody_and_carries_on() -> None:
    talk = Talk()
    secret = talk.say("alice.0", ["alice"])
    public = talk.say("rules", "everyone", kind="prefill", author=None)
    talk.say("alice.1", "everyone", [secret, public])
    clean, dirty = talk.also("alice.1", [public]), talk.also("alice.1", [public, secret])
    talk.also("alice.1", [public, secret], caller="bob")
    assert len(talk.readings()) == 2, "those of alice.1's own encoding"
    talk.say("bob.0", "everyone", [clean, dirty])
    good, bad = talk.edges("bob")
    assert (good.verdict, good.recipe) == ("clean", "audience")
    assert (bad.verdict, bad.path) == ("transitive", ("alice.1", "alice.0"))


def test_a_prompt_of_ones_own_is_read_by_its_caller() -> None:
    talk = Talk()
    secret = talk.say("alice.0", ["alice"], recipe="baseline", caller="alice")
    mine = talk.say("alice.1", "everyone", [secret], recipe="baseline", caller="alice")
    talk.say("bob.0", "everyone", recipe="baseline", caller="bob")
    again = talk.also("alice.1", recipe="baseline", caller="bob")
    over = talk.also("bob.0", [again, mine], recipe="baseline", caller="bob")
    talk.also("bob.0", [over], recipe="baseline")
    talk.also("bob.0", [over], recipe="baseline", caller=None)
    assert [(e.call, e.encoding, e.verdict) for e in talk.edges("bob")] == [
        ("bob.0", again, "clean"),
        ("bob.0", mine, "transitive"),
    ]
    assert {reading.edge.reader for reading in talk.readings()} == {"alice", "bob"}


def test_everyone_has_those_who_join_late_and_a_list_has_not() -> None:
    talk = Talk()
    public, two = talk.say("alice.0", "everyone"), talk.say("alice.1", ["bob"])
    talk.say("zoe.0", "everyone", [public, two])
    assert [edge.verdict for edge in talk.edges("zoe")] == ["clean", "direct"]


def test_what_was_spoken_was_read_whatever_its_label_says() -> None:
    talk = Talk()
    secret = talk.say("alice.0", ["alice"])
    talk.say("bob.0", "everyone", [secret], recipe="audience")
    assert only(talk.edges("bob")).verdict == "direct"


def test_a_context_without_a_record_is_unlabelled_and_all_that_stands_on_it() -> None:
    talk = chain()
    talk.drop("alice.0")
    bob, carol = only(talk.edges("bob")), only(talk.edges("carol"))
    assert (bob.verdict, bob.message, carol.verdict, carol.message) == ("unlabelled", "alice.1", "unlabelled", "bob.0")
    assert only(talk.edges("alice")).message == "#1"
    assert [reading.fault for reading in talk.readings()] == [
        "encoding 1: there is no record of it",
        "encoding 2: it attends to encoding 1, of which there is no record",
        "encoding 3: it attends to encoding 2: it attends to encoding 1, of which there is no record",
    ]


def test_a_record_whose_message_has_no_line_is_unlabelled() -> None:
    talk = Talk()
    talk.say("alice.0", ["alice"])
    lost = talk.also("alice.7")
    talk.say("bob.0", "everyone", [lost])
    assert (only(talk.edges("bob")).verdict, only(talk.edges("bob")).message) == ("unlabelled", "alice.7")


@pytest.mark.parametrize("cone", [{"alice.1"}, {"alice.0", "alice.1", "bob.0"}, set()])
def test_a_cone_that_the_receipts_do_not_give_is_unlabelled(cone: set[str]) -> None:
    talk = chain()
    talk.forge("alice.1", cone=frozenset(cone))
    assert [only(talk.edges(who)).verdict for who in ("alice", "bob", "carol")] == ["clean", "unlabelled", "unlabelled"]


def test_an_encoding_that_attends_to_itself_is_unlabelled() -> None:
    talk = Talk()
    one = talk.say("alice.0", "everyone")
    two = talk.say("alice.1", "everyone", [one])
    talk.say("bob.0", "everyone", [two])
    talk.forge("alice.0", receipt=talk.entries[1].made[0].receipt._replace(context=(ContextEntry(two, 1, 3),)))
    assert {reading.edge.verdict for reading in talk.readings()} == {"unlabelled"}


def test_two_lines_or_two_records_of_one_thing_are_unlabelled() -> None:
    for again in ("line", "record"):
        talk = Talk()
        one = talk.say("alice.0", "everyone")
        if again == "line":
            talk.entries.append(talk.entries[0]._replace(encoding=9, made=(talk.entries[0].made[0]._replace(id=9),)))
        else:
            talk.change("alice.0", made=talk.entries[0].made * 2)
        talk.say("bob.0", "everyone", [one])
        assert only(talk.edges("bob")).verdict == "unlabelled", again


def test_a_message_without_a_record_of_its_own_encoding_is_a_fault() -> None:
    talk = Talk()
    talk.say("alice.0", "everyone")
    talk.change("alice.0", made=())
    assert GameVerdict(0, talk.entries).cones.roots == {1: "message alice.0 has no record of its own encoding"}


def test_a_reading_says_what_corrected_the_encoding_and_what_came_with_that() -> None:
    (edge,) = anchored().edges("bob")
    assert (edge.message, edge.recipe, edge.verdict, edge.anchors) == (
        "alice.0",
        "repaired",
        "transitive",
        ("carol.1",),
    )
    assert edge.path == ("alice.0", "carol.1", "carol.0")
    assert all(not each.anchors for each in chain().edges("bob"))

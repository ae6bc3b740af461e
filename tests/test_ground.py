"""Audiences, read sets and cones, without an engine."""

import os
import platform
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcho.errors import AudienceError
from agentcho.message import EVERYONE, Audience, Metadata, audience
from agentcho.protocol.call import ContextEntry, Receipt
from agentcho.provenance.labels import Ledger, readers
from agentcho.provenance.views import History, MessageLog, Read, View, granted, shown_to
from agentcho.records.environment import machine_info, processor_named, versions

NAMES = st.frozensets(st.sampled_from(["alice", "bob", "carol"]))
AUDIENCES = st.one_of(st.just(EVERYONE), NAMES.map(Audience))


def said(id: str, *members: str) -> Metadata:
    return Metadata(id, "prefill", "user", None, Audience(frozenset(members)) if members else EVERYONE, ())


def history(messages: list[Metadata]) -> History:
    return History(MessageLog(messages))


def every(message: Metadata) -> bool:
    return True


@given(AUDIENCES, AUDIENCES)
def test_one_audience_covers_another_iff_its_readers_do_whoever_joins(a: Audience, b: Audience) -> None:
    everybody = ["alice", "bob", "carol", "a later agent"]
    assert a.covers(b) == all(a.includes(who) for who in everybody if b.includes(who))


def test_all_of_the_cast_is_not_everyone() -> None:
    cast = audience(["alice", "bob"], ["alice", "bob"])
    assert EVERYONE.covers(cast)
    assert not cast.covers(EVERYONE)


@pytest.mark.parametrize("names", ["bo", "Bob", "bob ", ["alice", "bobby"], ""])
def test_a_name_is_exact(names: str | list[str]) -> None:
    with pytest.raises(AudienceError, match="alice, bob"):
        audience(names, ["alice", "bob"])


def test_a_read_set_holds_what_the_view_names_in_its_order() -> None:
    messages = [said("m0"), said("m1", "bob"), said("m2", "alice", "bob")]
    reads = granted("bob", View((Read("m2", 7), Read("m0"))), every, history(messages))
    assert reads.reads == (Read("m2", 7), Read("m0", None))
    assert reads.direct == ()


def test_reading_outside_the_audience_is_marked_and_nothing_else_is() -> None:
    messages = [said("m0"), said("m1", "alice")]
    reads = granted("bob", View.of(messages), every, history(messages))
    assert reads.direct == ("m1",)


def test_what_an_agent_does_not_see_cannot_be_named() -> None:
    messages = [said("m0"), said("m1")]
    with pytest.raises(AudienceError, match="m1"):
        granted("bob", View.of(messages), lambda m: m.id == "m0", history(messages))


def test_a_view_cannot_name_what_was_not_said() -> None:
    with pytest.raises(AudienceError, match="m9"):
        granted("bob", View.of(["m9"]), every, history([said("m0")]))


@given(st.data())
def test_a_cone_is_what_can_be_reached_through_receipts(data: st.DataObject) -> None:
    ledger, contexts = Ledger(), list[list[int]]()
    for id in range(data.draw(st.integers(1, 12))):
        contexts.append(data.draw(st.lists(st.integers(0, id - 1), max_size=3)) if id else [])
        receipt = Receipt(tuple(ContextEntry(parent, 0, 1) for parent in contexts[-1]), 0, False)
        ledger.record(id, f"m{id}", None, "author", receipt)
    for id in range(len(contexts)):
        reached, open_ = set[int](), [id]
        while open_:
            at = open_.pop()
            reached.add(at)
            open_ += [parent for parent in contexts[at] if parent not in reached]
        assert ledger[id].cone == {f"m{at}" for at in reached}


def test_readers_are_in_every_audience_of_the_cone() -> None:
    audiences = {"m0": EVERYONE, "m1": Audience(frozenset({"alice", "bob"})), "m2": Audience(frozenset({"bob"}))}
    assert readers(["m0", "m1"], audiences, ["alice", "bob", "carol"]) == {"alice", "bob"}
    assert readers(["m0", "m1", "m2"], audiences, ["alice", "bob", "carol"]) == {"bob"}
    assert readers(["m0"], audiences, ["alice", "late"]) == {"alice", "late"}


def test_an_encoding_over_an_unknown_one_is_our_own_fault() -> None:
    with pytest.raises(KeyError):
        Ledger().record(1, "m1", None, "author", Receipt((ContextEntry(7, 0, 1),), 0, False))


def test_a_view_sees_of_anothers_message_only_parents_that_all_its_readers_may_read() -> None:
    everyone, ada = Audience(None), Audience(frozenset({"ada"}))
    out = [
        Metadata("ada.0", "prefill", "system", "ada", ada, ()),
        Metadata("ada.1", "decode", "assistant", "ada", everyone, ("ada.0",)),
        Metadata("ben.0", "decode", "assistant", "ben", everyone, ("ada.1",)),
    ]
    known = {m.id: m for m in out}
    assert [shown_to("ben", m, known.get).parents for m in out[1:]] == [(), ("ada.1",)]
    assert [shown_to("ada", m, known.get).parents for m in out] == [(), ("ada.0",), ("ada.1",)]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (
            ["model name\t: AMD EPYC", "cpu MHz\t: 2600", "flags\t\t: fpu sse avx2 avx512f avx512_bf16 avx512_vnni"],
            "AMD EPYC (AVX2 AVX-512 VNNI BF16)",
        ),
        (["model name\t: Intel(R) Core(TM)2", "flags\t\t: fpu sse"], "Intel(R) Core(TM)2"),
        (["BogoMIPS\t: 50.00", "Features\t: fp asimd bf16 i8mm"], "(NEON I8MM BF16)"),
        ([], ""),
    ],
)
def test_a_processor_is_named_with_its_instruction_sets(lines: list[str], named: str) -> None:
    assert processor_named(lines) == named


def test_results_say_where_they_were_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.records.environment._processor", lambda: "Abacus (beads)")
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?|none", machine_info()["commit"])
    assert set(machine_info()) == {"machine", "system", "commit"}
    assert machine_info()["machine"] == f"{platform.machine()}, Abacus (beads), {os.cpu_count()} cores"
    assert {"python", "agentcho", "torch", "transformers"} <= set(versions())

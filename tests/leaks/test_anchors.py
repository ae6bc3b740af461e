"""Anchors belong to their caller: which offsets a caller uses, whose words reach it through them, and when they end.

Uses engines of sets and the fake, which tell whose words went into what; `numeric` has the same tests on bits.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import anyio
import pytest

from agentcho.config import ReusePolicy
from agentcho.protocol.call import Receipt, Repair
from agentcho.provenance.anchors import MOST, OLDEST, AnchorPools
from agentcho.provenance.call_plans import MissingEncoding
from agentcho.provenance.labels import EncodingRecord
from agentcho.reuse.kvcomm import KVComm
from agentcho.testing import FakeEngine

from .checks import Check
from .interference.engines import fake, sets
from .interference.pairs import Case, drawn, judged
from .played import Played
from .sets import Sets
from .stage import Plan, Talk

ENFORCE = ReusePolicy("choreographed", "enforce", repair=KVComm(1.0))
AUDIT, DENY = ENFORCE._replace(leakage="audit"), ENFORCE._replace(leakage="deny")
WAYS = pytest.mark.parametrize("reuse", [ENFORCE, AUDIT], ids=["enforce", "audit"])


def talked(reuse: ReusePolicy, guarded: bool = False) -> Talk:
    """Ann repeatedly reads public messages after a secret of hers, and then bob reads the same after his."""
    talk = Talk(Sets(guarded), reuse)
    secrets = {name: talk.put(Plan(name, frozenset({name}), f"secret of {name}")) for name in ("ann", "bob")}
    heard = [talk.put(Plan(None, None, f"news {number}")) for number in range(8)]
    for name, secret in secrets.items():
        for upto in range(2, len(heard) + 1):
            reads = tuple((id, None) for id in (secret, *heard[:upto]))
            talk.speak(Plan(name, None, f"{name} on {upto}", reads, generated=True))
        reads = tuple((id, None) for id in reversed(heard))
        talk.speak(Plan(name, None, f"{name} without the secret", reads, generated=True))
    return talk


def repaired(talk: Talk) -> list[EncodingRecord]:
    return [record for record in talk.records.values() if record.recipe == "repaired"]


@WAYS
def test_a_caller_takes_offsets_from_its_own_anchors_alone(reuse: ReusePolicy) -> None:
    """The engine obeys no guard here, so that resolving alone has to be right."""
    talk = talked(reuse)
    Check(talk)()
    made = repaired(talk)
    taken = [record for record in made if record.receipt.anchors]
    assert {record.caller for record in taken} == {"ann", "bob"}
    for record in taken:
        assert {talk.records[id].caller for id in record.receipt.anchors[::2]} == {record.caller}
        other = {"ann": "bob", "bob": "ann"}[record.caller or ""]
        assert not any(id.startswith(other) for id in record.cone)


@WAYS
def test_what_anchors_were_encoded_over_is_in_the_cone_and_in_what_is_gathered(reuse: ReusePolicy) -> None:
    talk, by_them = talked(reuse), 0
    for record in (record for record in repaired(talk) if record.receipt.anchors):
        attended = frozenset[str]().union(*(talk.records[entry.id].cone for entry in record.receipt.context))
        by_them += f"{record.caller}.{record.caller == 'bob':d}" in record.cone - attended
        behind = frozenset[str]().union(*(talk.records[id].cone for id in record.receipt.anchors))
        assert behind <= record.cone
        assert talk.engine.words(record.id) == talk.tokens(record.cone)
    assert by_them, "a secret comes with anchors alone"


def test_a_guard_is_satisfied_with_what_is_resolved() -> None:
    Check(talked(ENFORCE, guarded=True))()


def test_under_deny_no_anchor_carries_a_secret_into_what_was_said_without_it() -> None:
    """Ann's last message was said over the news alone, so bob may read it, whatever she had read before."""
    talk = talked(DENY, guarded=True)
    open_to_all = next(id for id, plan in talk.plans.items() if plan.text == "ann without the secret")
    taken = [record for record in repaired(talk) if record.receipt.anchors]
    assert any(record.message in talk.plans[open_to_all].ids for record in taken)
    talk.speak(Plan("bob", None, "bob on it", ((talk.out[2], None), (open_to_all, None)), generated=True))
    Check(talk)()
    mine = [record for record in talk.records.values() if record.message == open_to_all]
    assert not any("ann.0" in record.cone for record in mine)


@WAYS
def test_each_game_has_its_own(reuse: ReusePolicy) -> None:
    first = talked(reuse)
    again = first.again(1)
    Check(again)()
    theirs, mine = set(first.records), set(again.records)
    taken = [id for record in repaired(again) for id in record.receipt.anchors]
    assert taken
    assert set(taken) <= mine
    assert not set(taken) & theirs
    again.end()
    assert talked(reuse).records == first.records, "and they say nothing in another that is played again"


@WAYS
def test_anchors_of_what_was_given_up_are_none(reuse: ReusePolicy) -> None:
    talk = talked(reuse)
    anchors = {id for record in repaired(talk) for id in record.receipt.anchors}
    gone = {talk.records[id].message for id in anchors}
    for message in gone:
        talk.evict(message)
    before = set(talk.records)
    reads = tuple((id, None) for id in talk.out[1:8])
    talk.speak(Plan("bob", None, "bob once more", reads, generated=True))
    Check(talk)()
    assert not {id for id in talk.records if id not in before} & anchors
    talk.end()
    assert not talk.engine.held


def test_what_another_reads_first_makes_a_caller_no_anchor() -> None:
    """Under audit, what ann told after reading is encoded when somebody reads it: in her own prompt and anew, so that
    whether bob was the first reader does not affect her anchors."""
    kept = list[list[tuple[str, tuple[str, ...]]]]()
    for first in ((), ("bob",)):
        talk = Talk(Sets(False), AUDIT)
        heard = [talk.put(Plan(None, None, f"news {number}")) for number in range(6)]
        told = talk.put(Plan("ann", None, "told", tuple((id, None) for id in reversed(heard))))
        for name in first:
            talk.speak(Plan(name, None, f"{name} now", ((told, None),), generated=True))
        talk.speak(Plan("ann", None, "ann now", tuple((id, None) for id in heard), generated=True))
        mine = [r for r in repaired(talk) if r.caller == "ann" and r.message in heard and r.receipt.anchors]
        kept.append([(r.message, tuple(talk.records[id].message for id in r.receipt.anchors)) for r in mine])
    assert kept[0]
    assert kept[0] == kept[1]


def test_a_game_on_the_engine_without_a_model_leaves_nothing() -> None:
    played = Played(engine := FakeEngine(), ENFORCE)
    heard = [played.put(f"news {number}") for number in range(6)]
    for number in range(2, 7):
        played.say(f"said {number}", "ann", *heard[:number])
    made = [record for record in played.journal._ledger if record.receipt.anchors]
    assert made
    engine.check_integrity()
    engine.release(played.journal.held)
    assert engine.pages == 0


# -- the pool --------------------------------------------------------------------------------------------------


def entered(pools: AnchorPools, *ids: int, used: int | None = None) -> None:
    for id in ids:
        receipt = Receipt((), 1, True) if used is None else Receipt((), 1, True, 1, (used, used + 500))
        pools.enter(("ann", f"m{id}@None"), f"m{id}", id, id + 500, receipt)


def ids(pools: AnchorPools, caller: str = "ann") -> list[Any]:
    return [anchor.real for anchor in pools.of((caller,), {})]


def test_of_the_oldest_the_one_that_was_used_least_goes() -> None:
    pools = AnchorPools()
    entered(pools, *range(10, 10 + MOST))
    assert len(ids(pools)) == MOST
    for used in (10, 10, 11, 13, 14):
        entered(pools, 99, used=used)
    entered(pools, 40)
    assert ids(pools) == [each for each in (*range(10, 10 + MOST), 40) if each != 12]
    for used in (11, 13, 14, 15, 15):
        entered(pools, 99, used=used)
    entered(pools, 41)
    assert 15 in ids(pools)
    assert len(ids(pools)) == MOST
    assert set(range(10 + OLDEST + 1, 10 + MOST)) <= set(ids(pools)), "the young stay, used or not"


def test_they_stand_in_the_order_in_which_they_were_asked_for() -> None:
    pools = AnchorPools()
    entered(pools, 12, 10, 11)
    assert ids(pools) == [10, 11, 12]
    assert ids(pools, "bob") == []
    pools.forget("m10")
    assert ids(pools) == [11, 12]


def test_one_whose_base_was_given_up_meanwhile_is_none() -> None:
    pools = AnchorPools()
    pools.enter(("ann", "m@None"), "m", 3, None, Receipt((), 1, True))
    assert ids(pools) == []


def test_anchors_that_are_to_be_serve_where_all_that_they_read_is_read() -> None:
    call, path = Repair(1, KVComm()), ("ann", "secret@None", "news@None")
    missing: dict[Any, Any] = {("repaired", path): MissingEncoding("news", "repaired", path, call)}
    for scoped, other, there in (
        (True, ("ann", "more@None"), 0),
        (True, (*path, "more@None"), 1),
        (False, path[:1], 1),
    ):
        assert len(AnchorPools(scoped).of(other, missing)) == there


# -- pairs of workflows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [15, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("engine", [sets, fake])
def test_no_reader_can_tell_what_it_may_not_read(engine: Any, many: int) -> None:
    async def work() -> list[str]:
        told, done = list[str](), 0
        for seed in count(6_000_000):
            case = drawn(seed, ("roomy",), exact=False, leakage="enforce")
            way = "rotate" if case.config.reuse == "in-place" else case.config.reuse
            config = case.config.model_copy(update={"repair": "kvcomm:1.0", "reuse": way})
            verdict = await judged(Case(**{**vars(case), "config": config}), engine)
            told += [verdict.apart] if verdict.apart else []
            done += verdict.apart is not None
            if done == many:
                return told
        raise AssertionError

    assert anyio.run(work) == []

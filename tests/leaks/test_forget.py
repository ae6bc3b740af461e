"""What a game releases: encodings come and go, and only the written records remain."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType
from weakref import WeakValueDictionary

import pytest

from agentcho.config import ReusePolicy
from agentcho.errors import LeakageError
from agentcho.message import EVERYONE, Audience
from agentcho.provenance.drafts import Draft
from agentcho.provenance.labels import EncodingRecord, Label, MessageIndex, Monitor
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.kvcomm import KVComm
from agentcho.testing import FakeEngine

from .played import Played

WAYS = [
    ReusePolicy("choreographed", "audit"),
    ReusePolicy("choreographed", "enforce", "always"),
    ReusePolicy("choreographed", "deny"),
    ReusePolicy("choreographed", "enforce", in_place=True),
    ReusePolicy("choreographed", "enforce", repair=FirstK(2)),
    ReusePolicy("choreographed", "enforce", repair=KVComm()),
    ReusePolicy("baseline"),
]
each = pytest.mark.parametrize("reuse", WAYS, ids=str)


def kept(played: Played) -> dict[str, int]:
    """The numbers of records and labels that a journal references, and the total size of its collections, without its
    messages and their index."""
    waiting: list[object] = [played.journal]
    seen, found = {id(played.resolver.drafts)}, {"records": 0, "labels": 0, "things": 0}
    while waiting:
        here = waiting.pop()
        if id(here) in seen or isinstance(here, Draft | MessageIndex | type | FunctionType | ModuleType):
            continue
        seen.add(id(here))
        found["records"] += isinstance(here, EncodingRecord)
        found["labels"] += isinstance(here, Label)
        found["things"] += len(here) if isinstance(here, dict | list | set | frozenset | WeakValueDictionary) else 0
        waiting += gc.get_referents(here)
    return found


def turn(played: Played, number: int) -> None:
    """A told message, two replies at once, words over these, a reply that is given up; old messages are forgotten."""
    told, said, also, more = names = [f"{what}.{number}" for what in ("told", "said", "also", "more")]
    before = [f"{what}.{number - 1}" for what in ("told", "said", "more") if number]
    played.put(told)
    played.say_at_once((said, "alice", *before, told), (also, "bob", *before, told))
    played.put(more, EVERYONE, "alice", told, said)
    played.give_up("lost", "alice", told, said, more)
    if number > 1:
        played.forget(*(f"{name.split('.')[0]}.{number - 2}" for name in names))


@each
def test_a_long_game_that_forgets_stays_as_it_is(reuse: ReusePolicy) -> None:
    played, sizes = Played(FakeEngine(), reuse), list[dict[str, int]]()
    for number in range(50):
        turn(played, number)
        sizes.append(kept(played) | {"pages": played.engine.pages, "held": len(played.journal.held)})
    assert sizes[10:30] == sizes[30:50]


@each
def test_what_was_forgotten_is_made_again_when_it_is_read(reuse: ReusePolicy) -> None:
    played = Played(FakeEngine(), reuse)
    played.put("told")
    played.say("said", "alice", "told")
    first = played.say("heard", "bob", "told", "said")
    played.forget("told", "said")
    assert not set(first) & set(played.journal.held)
    again = played.say("heard again", "bob", "told", "said")
    assert len(again) == len(first)
    assert not set(again) & set(first)
    assert set(again) <= set(played.journal.held)


@each
def test_what_was_not_forgotten_stays(reuse: ReusePolicy) -> None:
    played = Played(FakeEngine(), reuse)
    played.put("told")
    first = played.say("said", "alice", "told")
    played.put("more")
    played.say("also said", "alice", "told", "said", "more")
    played.forget("more", "never there")
    assert played.say("again", "alice", "told") == first


def test_labels_of_what_is_held_or_under_way_stay() -> None:
    monitor = Monitor()
    monitor.guard("held", EVERYONE, EVERYONE).admit(1, [])
    monitor.guard("gone", EVERYONE, EVERYONE).admit(2, [])
    under_way = monitor.guard("under way", EVERYONE, EVERYONE)
    under_way.admit(3, [])
    monitor.forget({1})
    monitor.guard("answer", EVERYONE, EVERYONE).admit(9, [1, 3])
    with pytest.raises(LeakageError, match="encoding 2"):
        monitor.guard("answer", EVERYONE, EVERYONE).admit(10, [2])


def test_a_shadow_that_nobody_has_read_yet_outlives_what_it_was_put_off_over() -> None:
    played = Played(FakeEngine(), ReusePolicy("choreographed", "enforce"))
    played.put("told")
    played.put("his", Audience(frozenset({"bob"})), "bob")
    played.put("hers", Audience(frozenset({"alice"})), "alice")
    played.say("first", "bob", "his", "told")
    played.say("said", "alice", "hers", "told")
    deferred = len(played.engine.debug.deferred)
    played.forget("told", "first")
    played.forget("never there")
    assert len(played.engine.debug.deferred) == deferred - 1 == 1, "what was said is put off, what bob said is gone"
    assert played.say("heard", "bob", "said")


def test_a_guard_that_is_asked_again_knows_what_it_was_asked_about() -> None:
    monitor, secret = Monitor(), Audience(frozenset({"alice"}))
    monitor.guard("told", EVERYONE, EVERYONE).admit(1, [])
    late = monitor.guard("said", EVERYONE, EVERYONE)
    late.admit(2, [1])
    monitor.forget({2})
    late.admit(2, [1])
    monitor.guard("hidden", secret, secret).admit(3, [])
    with pytest.raises(LeakageError, match="hidden"):
        late.admit(2, [1, 3])
    monitor.forget({2})
    with pytest.raises(LeakageError, match="encoding 3"):
        late.admit(2, [1, 3])

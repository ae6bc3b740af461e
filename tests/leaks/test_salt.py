"""Games on one engine share stored keys only if their salts are equal; and authors can read their own messages as
others read them."""

from __future__ import annotations

from itertools import combinations

import pytest

from agentcho.config import Leakage, ReusePolicy
from agentcho.engine.call_layout import KVEntry
from agentcho.errors import RequestError
from agentcho.message import EVERYONE, Audience, Metadata
from agentcho.provenance.views import History, MessageLog, Read, View, granted
from agentcho.reuse.first_k import FirstK
from agentcho.testing import FakeEngine

from .played import Played

WAYS = [
    ReusePolicy("choreographed", "audit"),
    ReusePolicy("choreographed", "enforce"),
    ReusePolicy("choreographed", "enforce", deterministic=True),
    ReusePolicy("choreographed", "audit", repair="full"),
    ReusePolicy("baseline"),
    ReusePolicy("baseline", deterministic=True),
]
ALICE = Audience(frozenset({"alice"}))
SALTS = ("", "one", "other", "one/", '"everyone"', "exact ", '["alice"]', "3/one/")


def game(engine: FakeEngine, reuse: ReusePolicy, salt: str) -> Played:
    """A fixed game."""
    played = Played(engine, reuse, salt)
    played.put("told")
    played.put("brief", ALICE)
    played.say("said", "alice", "told", "brief")
    played.say("heard", "bob", "told", "said")
    return played


def test_games_share_nothing_that_is_stored_where_their_salts_differ() -> None:
    """Whatever their reuse policies."""
    engine, by_salt, games = FakeEngine(), dict[str, set[KVEntry]](), list[Played]()
    for salt in SALTS:
        games += (played := [game(engine, reuse, salt) for reuse in WAYS])
        by_salt[salt] = set().union(*(each.entries() for each in played))
    assert all(not one & other for one, other in combinations(by_salt.values(), 2))
    keys = [{entry.key for entry in entries} for entries in by_salt.values()]
    assert all(not one & other for one, other in combinations(keys, 2))


@pytest.mark.parametrize("salt", SALTS)
@pytest.mark.parametrize("reuse", WAYS, ids=str)
def test_games_of_one_salt_share_what_is_stored(reuse: ReusePolicy, salt: str) -> None:
    engine = FakeEngine()
    first = game(engine, reuse, salt)
    assert game(engine, reuse, salt).entries() & first.entries()


@pytest.mark.parametrize("reuse", [*WAYS[:3], ReusePolicy("choreographed", "deny")], ids=str)
def test_isolated_readers_share_only_what_is_for_the_same_readers(reuse: ReusePolicy) -> None:
    played, read = Played(FakeEngine(), reuse, ""), dict[str, KVEntry]()
    for reader in ("alice", "bob", "carol", "dora"):
        private = Audience(frozenset({reader})) if reader in ("alice", "bob") else EVERYONE
        told = played.put(f"to {reader}", private, text="The code is 4711.")
        [id] = played.say(f"of {reader}", reader, told)
        read[reader] = played.engine._encodings[id].entry
    shared = {pair for pair in combinations(read, 2) if read[pair[0]] is read[pair[1]]}
    assert shared == ({*combinations(read, 2)} if reuse.leakage == "audit" else {("carol", "dora")})


@pytest.mark.parametrize("leakage", ["enforce", "deny"])
def test_what_each_reader_encodes_in_its_own_prompt_is_shared_with_nobody(leakage: Leakage) -> None:
    played = Played(FakeEngine(), ReusePolicy("choreographed", leakage, repair="full"), "")
    played.put("task")
    played.say("drafted", "alice", "task")
    entries = list[set[KVEntry]]()
    for reader in ("bob", "carol"):
        attended = played.say(f"of {reader}", reader, "task", "drafted")
        entries.append({played.engine._encodings[id].entry for id in attended})
    assert [len(each) for each in (*entries, entries[0] & entries[1])] == [2, 2, 1]  # they share the task alone


def read_by_alice(reuse: ReusePolicy, public: bool) -> tuple[str, ...]:
    """The recipes by which alice reads her own message."""
    played = game(FakeEngine(), reuse, "")
    attended = played.say("more", "alice", "told", Read("said", None, public))
    return tuple(played.journal._ledger[id].recipe for id in attended)


def test_an_author_reads_its_own_message_as_it_was_made_or_as_others_read_it() -> None:
    enforce = ReusePolicy("choreographed", "enforce")
    assert read_by_alice(enforce, public=False) == ("audience", "author")
    assert read_by_alice(enforce, public=True) == ("audience", "audience")
    repaired = ReusePolicy("choreographed", "enforce", repair=FirstK(2))
    assert read_by_alice(repaired, public=False) == ("audience", "author")
    assert read_by_alice(repaired, public=True) == ("audience", "repaired")


@pytest.mark.parametrize("repair", [FirstK(2), "full"])
def test_what_is_repaired_behind_a_message_depends_on_how_that_is_read(repair: FirstK) -> None:
    played = game(FakeEngine(), ReusePolicy("choreographed", "enforce", repair=repair), "")
    *_, own = played.say("one", "alice", "said", "heard")
    *_, public = played.say("two", "alice", Read("said", None, True), "heard")
    *_, again = played.say("three", "alice", "said", "heard")
    assert own == again != public
    assert "brief" in played.journal._ledger[own].cone
    assert "brief" not in played.journal._ledger[public].cone


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_prompt_of_ones_own_words_is_as_anybodys_where_it_is_read_so(deterministic: bool) -> None:
    played = game(FakeEngine(), ReusePolicy("baseline", deterministic=deterministic), "")
    own = played.say("one", "alice", "told", "brief", "said")
    public = played.say("two", "alice", "told", "brief", Read("said", None, True))
    assert (own == public) is not deterministic


def test_a_view_keeps_what_is_read_as_others_do() -> None:
    said = History(MessageLog([Metadata("m", "decode", "assistant", "alice", EVERYONE, ())]))
    everything = lambda m: True  # noqa: E731
    for at in (None, 7):
        assert granted("alice", View((Read("m", at, True),)), everything, said).reads == (Read("m", at, True),)
    with pytest.raises(RequestError, match="public of a Read"):
        granted("alice", View((Read("m", None, 1),)), everything, said)  # type: ignore[arg-type]

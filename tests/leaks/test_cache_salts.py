"""Salts for prefix caches: the hits that a reader can observe on a server reveal nothing that it may not read.

The cache is a model: blocks of tokens, kept under a salt, of every request by any agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentcho import Audience, Metadata
from agentcho.errors import AudienceError, RequestError
from agentcho.message import EVERYONE, Message
from agentcho.message import Words as Said
from agentcho.provenance import cache_salts

KEY = b"sixteen bytes!!!"
AGENTS = "ann", "ben", "cat"
AUDIENCES = [EVERYONE, *(Audience(frozenset(some)) for n in (1, 2, 3) for some in combinations(AGENTS, n))]
Words = Sequence[Sequence[int]]
Audiences = Sequence[Audience]
Salts = Callable[[Sequence[Metadata], str], Sequence[str]]


class Request(NamedTuple):
    """The agent that asks, and the indices of its messages; the last one is generated."""

    reader: str
    messages: tuple[int, ...]


class Server:
    """A prefix cache with unlimited memory. With `blockwise`, each block has the salt of the message in which it ends,
    else all have that of the last message. Messages have no framing, so that different ones can look alike."""

    def __init__(self, block: int, blockwise: bool = False) -> None:
        self.block, self.blockwise = block, blockwise
        self.kept: set[tuple[Any, ...]] = set()

    def hits(self, words: Words, salts: Sequence[str]) -> int:
        """Answer a request; returns the number of leading blocks of its prompt that were cached."""
        beginnings = list(self._beginnings(words, salts))
        prompt = sum(map(len, words[:-1])) // self.block
        found = [beginning in self.kept for beginning in beginnings[:prompt]]
        self.kept |= set(beginnings)
        return (*found, False).index(False)

    def _beginnings(self, words: Words, salts: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        tokens = [(token, salt) for said, salt in zip(words, salts, strict=True) for token in said]
        chain: tuple[str, ...] = ()
        for end in range(self.block, len(tokens) + 1, self.block):
            chain = (*chain, tokens[end - 1][1]) if self.blockwise else (salts[-1],)
            yield (chain, tuple(token for token, _ in tokens[:end]))


def observed(server: Server, reader: str, asked: Sequence[Request], said: Audiences, words: Words, salts: Salts) -> Any:
    """The hits of each request of a reader."""
    seen = []
    for request in asked:
        used = salts([message(said[place]) for place in request.messages], request.reader)
        hits = server.hits([words[place] for place in request.messages], used)
        seen += [hits] if request.reader == reader else []
    return seen


def message(readers: Audience) -> Metadata:
    return Metadata("ann.0", "decode", "assistant", "ann", readers, ())


def ours(messages: Sequence[Metadata], reader: str) -> Sequence[str]:
    return cache_salts(messages, reader, key=KEY)


class Runs(NamedTuple):
    """Two runs that differ only in words that `reader` may not read and that no request of it contains."""

    reader: str
    said: Audiences
    asked: Sequence[Request]
    one: Words
    other: Words


@st.composite
def runs(draw: st.DrawFn) -> Runs:
    reader, *others = draw(st.permutations(AGENTS))
    hidden = draw(
        st.lists(st.sampled_from([each for each in AUDIENCES if not each.includes(reader)]), min_size=1, max_size=2)
    )
    said = [*hidden, *draw(st.lists(st.sampled_from(AUDIENCES), min_size=1, max_size=3))]
    places = st.lists(st.integers(0, len(said) - 1), min_size=2, max_size=4).map(tuple)
    own = st.lists(st.integers(len(hidden), len(said) - 1), min_size=2, max_size=4).map(tuple)
    theirs = draw(st.lists(st.builds(Request, st.sampled_from(others), places), min_size=1, max_size=2))
    asked = [*theirs, *draw(st.lists(st.builds(Request, st.just(reader), own), min_size=1, max_size=2))]
    text = st.lists(st.integers(0, 1), min_size=1, max_size=2)
    one = [draw(text) for _ in said]
    other = [draw(text) if place < len(hidden) else words for place, words in enumerate(one)]
    return Runs(reader, said, asked, one, other)


#: A public reply after a note for ben alone: a salt of the reply alone would reveal what the note says.
BEHIND_A_NOTE = Runs(
    reader="cat",
    said=[Audience(frozenset({"ben"})), EVERYONE, EVERYONE, EVERYONE],
    asked=[Request("ben", (0, 1)), Request("cat", (2, 3))],
    one=[[1], [1], [1], [1]],
    other=[[0], [1], [1], [1]],
)


@settings(max_examples=150, deadline=None)
@given(runs(), st.integers(1, 3), st.booleans())
@example(BEHIND_A_NOTE, 1, False)
def test_a_reader_observes_the_same_whatever_it_may_not_read(both: Runs, block: int, blockwise: bool) -> None:
    reader, said, asked, one, other = both
    first, second = (observed(Server(block, blockwise), reader, asked, said, words, ours) for words in (one, other))
    assert first == second


def guess(mine: Audiences, theirs: Audiences, salts: Salts, reader: str, author: str) -> bool:
    """Whether a reader's request reveals that it has guessed another agent's last message."""
    said = [*theirs, *mine]
    asked = [
        Request(author, tuple(range(len(theirs)))),
        Request(reader, tuple(range(len(theirs), len(said)))),
    ]
    right = [[1]] * len(said)
    wrong = [*([[1]] * (len(theirs) - 1)), [0], *([[1]] * len(mine))]
    first, second = (observed(Server(1), reader, asked, said, words, salts) for words in (right, wrong))
    return bool(first != second)


BEN = Audience(frozenset({"ben"}))


@pytest.mark.parametrize(
    ("salts", "told"),
    [
        (lambda messages, reader: ["one for all"] * len(messages), True),
        (lambda messages, reader: [*ours(messages, reader)[:-1], ours(messages, reader)[0]], True),
        (ours, False),
    ],
    ids=["one-salt", "without-the-reply", "ours"],
)
def test_the_model_finds_what_a_wrong_salt_lets_out(salts: Salts, told: bool) -> None:
    assert guess([EVERYONE, EVERYONE, EVERYONE], [EVERYONE, BEN], salts, "ann", "ben") is told


def joined(messages: Sequence[Metadata], reader: str) -> Sequence[str]:
    return ["one for both"] * len(messages)


def test_no_two_salts_could_be_one() -> None:
    for one, two in combinations(AUDIENCES, 2):
        mine, theirs = (one, two) if one.covers(two) else (two, one)
        readers = [agent for agent in (*AGENTS, "dan") if mine.includes(agent) and not theirs.includes(agent)]
        assert readers, "somebody may read the one and not the other"
        for reader, author in product(readers, theirs.members or ()):
            assert guess([mine] * 3, [theirs] * 2, joined, reader, author)
            assert not guess([mine] * 3, [theirs] * 2, ours, reader, author)


def test_readers_share_what_all_of_them_may_read_and_an_agent_its_own_turns() -> None:
    public, private = message(EVERYONE), message(BEN)
    assert ours([public, public], "ann") == ours([public, public, public], "cat")[:2]
    assert ours([private, public], "ben")[-1] == ours([private, public, public, private], "ben")[-1]
    assert ours([public, private], "ben")[0] == ours([public, public], "ann")[0], "a beginning that all may read"
    both = Audience(frozenset({"ann", "ben"}))
    assert ours([message(both), public], "ann")[-1] == ours([public, message(both)], "ben")[-1]
    assert ours([message(both)], "ann") != ours([message(Audience(frozenset(AGENTS)))], "ann")


def test_who_reads_what_is_not_for_him_shares_with_nobody() -> None:
    found = [ours([message(BEN), message(EVERYONE)], reader)[-1] for reader in AGENTS]
    assert len(set(found)) == len(AGENTS)


def test_a_salt_is_long_and_hangs_on_the_key_and_nothing_else() -> None:
    asked = [message(EVERYONE)]
    assert re.fullmatch(r"[\w-]{43}", ours(asked, "ann")[0])
    assert ours(asked, "ann") == cache_salts(iter(asked), "ann", key=KEY) != cache_salts(asked, "ann", key=KEY[::-1])
    one, two = (
        Message("ann.0", game, "decode", "user", "ann", EVERYONE, (), Said("", "hi", (1,), (0, 1))) for game in (0, 1)
    )
    assert cache_salts([one], "ann", key=KEY) == ours([one.metadata], "ann")
    with pytest.raises(RequestError, match=r"several games \(0, 1\); give messages of one game"):
        cache_salts([one, two], "ann", key=KEY)


@pytest.mark.parametrize(
    ("messages", "reader", "key", "error", "what"),
    [
        ([], "ann", KEY, RequestError, "without messages"),
        (None, "ann", KEY, RequestError, "must be a list, not None"),
        (["ann.0"], "ann", KEY, RequestError, "of type str; give a Message or its metadata"),
        ([message(BEN)], "everyone", KEY, AudienceError, "cannot name an agent"),
        ([message(BEN)], "ben", b"short", RequestError, "5 bytes; give at least 16"),
        ([message(BEN)], "ben", "a text of many letters", RequestError, "of type str; give at least 16"),
    ],
)
def test_bad_input_is_told(messages: Any, reader: Any, key: Any, error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        cache_salts(messages, reader, key=key)

"""Drafts the next tokens of a decode from its own text and from what its author may read, so that one forward can
verify several tokens (speculative decoding; drafts as in SuffixDecoding, arXiv 2411.04975, without a draft model).

A draft token that differs from the sampled one is dropped, so drafts never change the text. The number of draft tokens
depends on the length of the match, on the share of right tokens in this decode so far, and on the cost of another token
in the forward. Must not decide who may read what: the corpora are given.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from agentcho.engine.suffix_automaton import Automaton
from agentcho.protocol.forward_costs import CostCurve
from agentcho.protocol.speculation_corpus import Corpus

MOST = 16
"""Maximum number of draft tokens at once."""
KEPT = 1 << 15
"""An index that would exceed this number of tokens is rebuilt from the last messages, with at most half as many."""
LATELY = 32
"""Number of last tokens that are looked up in a new index."""
RIGHT = ((1, 0.30), (2, 0.50), (3, 0.60), (5, 0.70), (9, 0.80), (17, 0.90))
"""Prior probability that a draft token is right, by the minimum length of the match in tokens."""
PRIOR = 8
"""Weight of the prior against a decode's own draft tokens, in tokens."""


class DraftTokens(NamedTuple):
    """Draft tokens, and the probability that each is right if those before it are."""

    tokens: tuple[int, ...]
    right: float


NONE = DraftTokens((), 0.0)


class _Index:
    """The automaton of a corpus. A rebuild replaces `automaton`."""

    def __init__(self) -> None:
        self.automaton, self._read = Automaton(), 0

    def read(self, corpus: Corpus) -> Automaton:
        """Add new messages of the corpus, and return the automaton."""
        messages, there = corpus.messages, len(corpus.messages)
        if self._read == there:
            return self.automaton
        added = sum(map(len, messages[self._read : there]))
        if added + len(self.automaton) > KEPT:
            self.automaton = Automaton()
            self._read = there
            size = 0
            while self._read and size + len(messages[self._read - 1]) <= KEPT // 2:
                self._read -= 1
                size += len(messages[self._read])
        for message in messages[self._read : there]:
            self.automaton.extend(message)
            self.automaton.close()
        self._read = there
        return self.automaton


class CorpusIndexes:
    """The indexes of all corpora in use. Each lives as long as its corpus."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Corpus, _Index] = WeakKeyDictionary()

    def of(self, corpus: Corpus) -> Automaton:
        """The index of one corpus, with all that was added to the corpus."""
        return self._known.setdefault(corpus, _Index()).read(corpus)


class _Place:
    """The position of a decode in the index of one corpus."""

    def __init__(self) -> None:
        self._automaton: Automaton | None = None
        self._state = self._matched = 0

    def follow(self, automaton: Automaton, lately: Sequence[int], fresh: int) -> tuple[int, int]:
        """The state, and the number of last tokens that match, after the `fresh` last tokens of `lately` are added."""
        if automaton is not self._automaton or fresh > len(lately):
            self._automaton = automaton
            self._state = 0
            self._matched = 0
            fresh = len(lately)
        for token in lately[len(lately) - fresh :]:
            self._state, self._matched = automaton.step(self._state, self._matched, token)
        return self._state, self._matched


class Speculator:
    """Drafts tokens for one decode, from its `corpora` and its own text. `before`: the ids before its text."""

    def __init__(self, indexes: CorpusIndexes, corpora: Sequence[Corpus], before: Sequence[int]) -> None:
        self._indexes, self._places = indexes, [(corpus, _Place()) for corpus in corpora]
        self._own = Automaton()
        self._lately = [*before[-LATELY:]]
        self._fresh = len(before[-LATELY:])
        self._own.extend(before)
        self._tried = self._accepted = 0

    def say(self, tokens: Sequence[int]) -> None:
        """Add generated tokens."""
        self._own.extend(tokens)
        self._lately = [*self._lately, *tokens][-LATELY:]
        self._fresh += len(tokens)

    def judge(self, tried: int, accepted: int) -> None:
        """Record how many of the draft tokens were right. Those after the first wrong one do not count."""
        self._accepted += accepted
        self._tried += min(tried, accepted + 1)

    def guess(self, most: int) -> DraftTokens:
        """Draft at most `most` tokens from the longest match. On a tie the decode's own text goes first."""
        most = min(most, MOST)
        tokens, matched = self._own.follow(*self._own.earlier, most)
        for corpus, place in self._places:
            index = self._indexes.of(corpus)
            found = index.follow(*place.follow(index, self._lately, self._fresh), most)
            if found[1] > matched:
                tokens, matched = found
        self._fresh = 0
        if not matched:
            return NONE
        prior = RIGHT[bisect_right(RIGHT, (matched, 1.0)) - 1][1]
        return DraftTokens(tokens, (PRIOR * prior + self._accepted) / (PRIOR + self._tried))


def worthwhile_drafts(guesses: Iterable[DraftTokens], fed: int, costs: CostCurve) -> list[int]:
    """The number of tokens of each draft to add to a forward that feeds `fed` others, for most tokens per second. The
    likeliest are added first."""
    chosen, open = list[int](), list[tuple[float, int, Iterator[float]]]()
    for place, guess in enumerate(guesses):
        chosen.append(0)
        shares = iter([guess.right ** (nth + 1) for nth in range(len(guess.tokens))])
        if (first := next(shares, None)) is not None:
            open.append((-first, place, shares))
    heapq.heapify(open)
    expected = float(len(chosen))
    best, rate = [*chosen], expected / costs.of(fed)
    while open:
        share, place, shares = heapq.heappop(open)
        expected = expected - share
        fed = fed + 1
        chosen[place] += 1
        if expected / costs.of(fed) > rate:  # other kernels may make one more token dear, and those after it cheap
            best, rate = [*chosen], expected / costs.of(fed)
        if (following := next(shares, None)) is not None:
            heapq.heappush(open, (-following, place, shares))
    return best

"""What a decode may say next, guessed from what its author may read and from what it has said, so that one forward can
check several tokens (speculative decoding; the guesses are SuffixDecoding's, arXiv 2411.04975, without a model of their
own).

A token that is not what the coin picks is dropped, so that guesses decide nothing of what is said. How many are made is
weighed: by how long the guess matches, by the share of this decode's guesses that were right so far, and by what
another token costs in the forward. Does not know: who may read what, how a forward computes.
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
"""So many tokens are guessed at once at most."""
KEPT = 1 << 15
"""An index that has more tokens than that begins anew with the later half of them."""
LATELY = 32
"""So many of the last tokens are looked up in an index that is new."""
RIGHT = ((1, 0.30), (2, 0.50), (3, 0.60), (5, 0.70), (9, 0.80), (17, 0.90))
"""How likely a guessed token is right, by the number of tokens from which on a guess matches."""
PRIOR = 8
"""The weight of these figures beside a decode's own guesses, in tokens."""


class DraftTokens(NamedTuple):
    """What may come next, and how likely each token is right if those before it were."""

    tokens: tuple[int, ...]
    right: float


NONE = DraftTokens((), 0.0)


class _Index:
    """The automaton of a corpus. `automaton` is another one after it has begun anew."""

    def __init__(self) -> None:
        self.automaton, self._read = Automaton(), 0

    def read(self, corpus: Corpus) -> Automaton:
        """Take in what is new."""
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
    """The indexes of all corpora that were drawn from, as long as somebody holds these."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Corpus, _Index] = WeakKeyDictionary()

    def of(self, corpus: Corpus) -> Automaton:
        """That of one corpus, with all that was added to it."""
        return self._known.setdefault(corpus, _Index()).read(corpus)


class _Place:
    """Where a decode stands in the index of one corpus."""

    def __init__(self) -> None:
        self._automaton: Automaton | None = None
        self._state = self._matched = 0

    def follow(self, automaton: Automaton, lately: Sequence[int], fresh: int) -> tuple[int, int]:
        """Its state, and how many of the last tokens match, after `fresh` more tokens, the last of `lately`."""
        if automaton is not self._automaton or fresh > len(lately):
            self._automaton = automaton
            self._state = 0
            self._matched = 0
            fresh = len(lately)
        for token in lately[len(lately) - fresh :]:
            self._state, self._matched = automaton.step(self._state, self._matched, token)
        return self._state, self._matched


class Speculator:
    """Guesses for one decode, from its `corpora` and from what it says; `before` is what its text begins after."""

    def __init__(self, indexes: CorpusIndexes, corpora: Sequence[Corpus], before: Sequence[int]) -> None:
        self._indexes, self._places = indexes, [(corpus, _Place()) for corpus in corpora]
        self._own = Automaton()
        self._lately = [*before[-LATELY:]]
        self._fresh = len(before[-LATELY:])
        self._own.extend(before)
        self._tried = self._accepted = 0

    def say(self, tokens: Sequence[int]) -> None:
        """Note what was said."""
        self._own.extend(tokens)
        self._lately = [*self._lately, *tokens][-LATELY:]
        self._fresh += len(tokens)

    def judge(self, tried: int, accepted: int) -> None:
        """Note how many of the guessed tokens were right. Those behind the first wrong one say nothing."""
        self._accepted += accepted
        self._tried += min(tried, accepted + 1)

    def guess(self, most: int) -> DraftTokens:
        """At most `most` tokens, from where most of the last tokens match; what it said itself goes first."""
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
    """How many tokens of each guess go into a forward that feeds `fed` others, so that it brings most tokens a second.
    The likeliest come first; none comes after the first that does not pay."""
    chosen, open = list[int](), list[tuple[float, int, Iterator[float]]]()
    for place, guess in enumerate(guesses):
        chosen.append(0)
        shares = iter([guess.right ** (nth + 1) for nth in range(len(guess.tokens))])
        if (first := next(shares, None)) is not None:
            open.append((-first, place, shares))
    heapq.heapify(open)
    expected, spent = float(len(chosen)), costs.of(fed)
    while open:
        share, place, shares = open[0]
        more = costs.of(fed + 1)
        if -share * spent <= expected * (more - spent):
            break
        expected = expected - share
        spent = more
        fed = fed + 1
        chosen[place] += 1
        following = next(shares, None)
        if following is None:
            heapq.heappop(open)
        else:
            heapq.heapreplace(open, (-following, place, shares))
    return chosen

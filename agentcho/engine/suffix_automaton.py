"""A suffix automaton over token ids, which finds earlier occurrences of the last tokens and what followed them.

Built online (Blumer et al., 1985): a token takes amortised constant time. Used to draft tokens, as SuffixDecoding
(arXiv 2411.04975) uses suffix trees.
"""

from __future__ import annotations

from collections.abc import Sequence

RECENT = 16
"""Number of suffixes, the longest first, for which the last occurrence is kept exactly."""


class Automaton:
    """All substrings of the added ids. `text`: the ids, with a unique id below 0 after each sequence, so that nothing
    matches across two. For state s: `length[s]` is the length of its longest substring; `link[s]` the state of the
    longest suffix that is in another state; `after[s]` the end of an occurrence in `text`, for long ones the last."""

    def __init__(self) -> None:
        self.text: list[int] = []
        self.length = [0]
        self.link = [-1]
        self.after = [0]
        self._next: list[dict[int, int]] = [{}]
        self.last = 0

    def __len__(self) -> int:
        return len(self.text)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append these ids."""
        for token in tokens:
            self._push(token)

    def close(self) -> None:
        """End a sequence: the next ids do not continue it."""
        self._push(-1 - len(self.text))
        self.last = 0

    @property
    def earlier(self) -> tuple[int, int]:
        """The state and the length of the longest suffix of the text that also occurs earlier."""
        state = max(0, self.link[self.last])
        return state, self.length[state]

    def step(self, state: int, matched: int, token: int) -> tuple[int, int]:
        """The state and the length of the longest known suffix after one more token, given those before it."""
        while state and matched <= self.length[self.link[state]]:  # the state was split in the meantime
            state = self.link[state]
        while state and token not in self._next[state]:
            state = self.link[state]
            matched = self.length[state]
        if token in self._next[state]:
            return self._next[state][token], matched + 1
        return 0, 0

    def follow(self, state: int, matched: int, most: int) -> tuple[tuple[int, ...], int]:
        """At most `most` ids that followed an occurrence of the match, up to the end of their sequence, and the length
        of the match. If the occurrence ends a sequence, a shorter suffix of the match is taken."""
        while state:
            found = self.text[self.after[state] : self.after[state] + most]
            if found and found[0] >= 0:
                return tuple(found[: next((i for i, id in enumerate(found) if id < 0), len(found))]), matched
            state = self.link[state]
            matched = self.length[state]
        return (), 0

    def _push(self, token: int) -> None:
        self._recall()
        self.text.append(token)
        end, new = len(self.text), len(self.length)
        self._add(self.length[self.last] + 1, 0, end, {})
        state, self.last = self.last, new
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = new
            state = self.link[state]
        if state >= 0:
            self.link[new] = self._ending(state, token)

    def _recall(self) -> None:
        """Record this place as the last occurrence of the suffixes of the text. This is done only when a token follows:
        until then the place before is the last one that something follows."""
        at, end = self.link[self.last], len(self.text)
        for _ in range(RECENT):
            if at <= 0:
                break
            self.after[at] = end
            at = self.link[at]

    def _ending(self, state: int, token: int) -> int:
        """The state whose longest substring is that of `state` with this token, split off if its state has longer
        ones."""
        target = self._next[state][token]
        if self.length[target] == self.length[state] + 1:
            return target
        clone = len(self.length)
        self._add(self.length[state] + 1, self.link[target], self.after[target], self._next[target].copy())
        while state >= 0 and self._next[state].get(token) == target:
            self._next[state][token] = clone
            state = self.link[state]
        self.link[target] = clone
        return clone

    def _add(self, length: int, link: int, after: int, following: dict[int, int]) -> None:
        self.length.append(length)
        self.link.append(link)
        self.after.append(after)
        self._next.append(following)

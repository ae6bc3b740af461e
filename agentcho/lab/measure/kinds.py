"""The kind of secret in each game, for the probe: few kinds, each with several wordings.

The kinds are those that the games came with (such as the instruction of a trace), or else made by one token: the
secrets that hold it and those that do not. The token is chosen by how often it is there, never by what a probe
makes of it. Does not know: encodings, classifiers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from agentcho.lab.measure.play import Ids, Pair, Play

FEWEST = 4
"""The fewest games of a kind."""


class Kinds(NamedTuple):
    """The kind of each game, from 0, or None where the game is left out. `token` tells two kinds apart, if one token
    does."""

    labels: tuple[int | None, ...]
    classes: int
    token: int | None
    how: str

    def fits(self, label: int, words: Mapping[str, Ids]) -> bool:
        """Whether a secret that was cut to length is still of its kind: the token may have been cut off."""
        return self.token is None or any(self.token in ids for ids in words.values()) == bool(label)

    def putting_aside(self, game: int) -> Kinds:
        """The same without one game."""
        return self._replace(labels=tuple(None if n == game else label for n, label in enumerate(self.labels)))

    @property
    def spare(self) -> int:
        """The game to put aside: the first of the most frequent kind."""
        return max((n for n, label in enumerate(self.labels) if label is not None), key=lambda n: (self._count(n), -n))

    @property
    def smallest(self) -> int:
        """How many games the rarest kind has."""
        return min(self.labels.count(label) for label in range(self.classes))

    def _count(self, game: int) -> int:
        return self.labels.count(self.labels[game])


def kinds(plays: Sequence[Play], pair: Pair, behind: Sequence[frozenset[str]]) -> Kinds | None:
    """The kinds of what `pair.owner` hides behind its utterance (`behind`: messages by game); None: there are no two
    kinds with games enough."""
    given = [play.kind for play in plays]
    if None not in given and len(set(given)) > 1:
        return _enough([str(kind) for kind in given], None, "the kinds that the games came with")
    secrets = [_tokens(play, pair, ids) for play, ids in zip(plays, behind, strict=True)]
    counts = Counter(token for tokens in secrets for token in tokens)
    if not counts:
        return None
    token = min(counts, key=lambda token: (abs(2 * counts[token] - len(plays)), token))
    how = "whether the secret holds the one token that is nearest to being in half of the games"
    return _enough([str(int(token in tokens)) for tokens in secrets], token, how)


def _tokens(play: Play, pair: Pair, behind: frozenset[str]) -> frozenset[int]:
    """The tokens of the owner's private thoughts, or of all that it hides where it has none."""
    hidden = [line for line in play.hidden(pair.owner, pair.reader) if line.message.id in behind]
    thought = [line for line in hidden if line.message.kind == "decode"] or hidden
    return frozenset(token for line in thought for token in line.content)


def _enough(given: Sequence[str], token: int | None, how: str) -> Kinds | None:
    counts = Counter(given)
    names = sorted(name for name, count in counts.items() if count >= FEWEST)
    if len(names) < 2:
        return None
    labels = tuple(names.index(name) if name in names else None for name in given)
    return Kinds(labels, len(names), token, how)


def folds(labels: Sequence[int | None], count: int, seed: int) -> tuple[int | None, ...]:
    """The fold of each game: every kind is dealt evenly, in a seeded order."""
    rng, found = np.random.default_rng((seed, count)), [None] * len(labels)
    dealt: list[int | None] = [*found]
    for label in sorted({label for label in labels if label is not None}):
        games = rng.permutation([game for game, own in enumerate(labels) if own == label])
        for place, game in enumerate(games):
            dealt[int(game)] = place % count
    return tuple(dealt)

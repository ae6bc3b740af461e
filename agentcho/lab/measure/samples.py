"""The probe's samples: keys and values of a public utterance that was encoded over secrets of each kind.

The utterance's words are forced and the same behind every secret, and secrets are put at the length of what was said
there, so that neither words nor positions tell anything. Does not know: classifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcho.audit.measurement import Source
from agentcho.config import ReusePolicy
from agentcho.lab.measure.arms import Experiment
from agentcho.lab.measure.kinds import Kinds
from agentcho.lab.measure.play import Pair, Play
from agentcho.lab.measure.stage import UNENCODABLE, Stage
from agentcho.lab.measure.swap import Secrets, borrowed, donor_order, fitted

Vector = NDArray[np.float32]
Key = tuple[Source, int | None]
"""A source, and the layer of an encoding."""


class Sample(NamedTuple):
    """One game with a secret of one kind behind its utterance: what a reader sees, by source and layer."""

    game: int
    fold: int
    label: int
    seen: dict[Key, Vector]


class Target(NamedTuple):
    """The utterance of one game that is looked into, and what reached it."""

    utterance: str
    behind: frozenset[str]


def target(play: Play, pair: Pair) -> Target | None:
    """The owner's last generated message that the reader may read and that secrets are behind."""
    secrets = {line.message.id for line in play.hidden(pair.owner, pair.reader)}
    for line in reversed(play.decodes(pair.owner)):
        behind = play.behind(line.message.parents)
        if line.message.audience.includes(pair.reader) and secrets & behind:
            return Target(line.message.id, behind)
    return None


@dataclass(frozen=True)
class ProbeGames:
    """The games that a probe looks into, and the kinds of their secrets. `dealt` is the fold of each game; `aside` is
    the game whose secret the reader itself encodes the words over."""

    experiment: Experiment
    pair: Pair
    targets: Sequence[Target]
    kinds: Kinds
    dealt: Sequence[int | None]
    aside: int

    def samples(self, done: Callable[[], None]) -> list[Sample]:
        """The samples of every game whose words could be encoded over secrets of all kinds."""
        found: list[Sample] = []
        for game, fold in enumerate(self.dealt):
            if fold is not None:
                own = self._game(game, fold)
                found += own if len(own) == self.kinds.classes else []
            done()
        return found

    def _game(self, game: int, fold: int) -> list[Sample]:
        """One sample a kind, less the reader's own encoding of the words. The secret is borrowed within the game's own
        fold."""
        expected = self._seen(game, self._secret(game, [self.aside], None))
        found = []
        for label in range(self.kinds.classes) if expected is not None else ():
            seen = self._seen(game, self._secret(game, self._donors(game, fold, label), label))
            if seen is not None and expected is not None:
                less = {key: vector - expected[key] for key, vector in seen.items()}
                found.append(Sample(game, fold, label, {**less, ("text", None): seen["text", None]}))
        return found

    def _donors(self, game: int, fold: int, label: int) -> list[int]:
        order = donor_order(game, len(self.dealt), self.experiment.seed)
        return [other for other in order if self.dealt[other] == fold and self.kinds.labels[other] == label]

    def _secret(self, game: int, donors: Sequence[int], label: int | None) -> Secrets:
        """The first donor's words, cut or repeated to the length of the game's own; empty where no donor has any."""
        play, behind = self.experiment.plays[game], self.targets[game].behind
        secrets = (line for line in play.hidden(self.pair.owner, self.pair.reader) if line.message.id in behind)
        hidden = {line.message.id: line.content for line in secrets}
        for donor in donors:
            words = borrowed(play, self.experiment.plays[donor], hidden)
            shaped = {id: fitted(ids, len(hidden[id])) for id, ids in words.items() if ids}
            if shaped and (label is None or self.kinds.fits(label, _thoughts(play, shaped))):
                return shaped
        return {}

    def _seen(self, game: int, words: Secrets) -> dict[Key, Vector] | None:
        """The vectors by source and layer; None: there are no words, or they cannot be encoded."""
        if not words:
            return None
        play, utterance = self.experiment.plays[game].saying(words), self.targets[game].utterance
        text = np.bincount(play.by_id[utterance].content).astype(np.float32)
        sources: dict[Source, ReusePolicy] = {
            "author": self.experiment.policies.reuse,
            "audience": self.experiment.policies.enforce,
        }
        seen: dict[Key, Vector] = {("text", None): text}
        try:
            for source, reuse in sources.items():
                seen |= self._layers(source, reuse, play, utterance)
        except UNENCODABLE:
            self.experiment.skipped["a probe's secret could not be put behind the words"] += 1
            return None
        return seen

    def _layers(self, source: Source, reuse: ReusePolicy, play: Play, utterance: str) -> dict[Key, Vector]:
        with Stage(self.experiment.engine, play, reuse) as stage:
            layers = stage.cached(utterance, self.pair.reader)
        return {(source, layer): _pooled(keys, values) for layer, (keys, values) in enumerate(layers)}


def _thoughts(play: Play, words: Secrets) -> Secrets:
    """What was thought in private, or everything where nothing was."""
    known = play.by_id
    return {id: ids for id, ids in words.items() if known[id].message.kind == "decode"} or words


def _pooled(keys: Vector, values: Vector) -> Vector:
    """`[heads, tokens, dim]` each to one vector: the mean over tokens, and the last one."""
    parts = (keys.mean(axis=1), keys[:, -1], values.mean(axis=1), values[:, -1])
    return np.concatenate([part.reshape(-1) for part in parts])

"""The probe: how well a linear classifier tells which kind of secret a public utterance was encoded over.

There are few kinds, each with several wordings: those that the games came with (such as the instruction of a trace), or
else two kinds by one token: secrets with it and secrets without. The token is chosen by its frequency, never by the
result of a probe. The utterance's words are forced and the same for every secret, and secrets are fitted to the length
of the game's own, so that neither words nor positions reveal anything. The reader knows the utterance's words, so it
looks at the difference between their keys and values and those of its own encoding of the words over a secret of a game
that is set aside. Each game is tested once, by a classifier trained on other games and on secrets of other games. The
result is a lower bound on the channel: a better classifier may find more. Independent of engines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from agentcho.audit.measurement import Probe, ProbeSource
from agentcho.config import ReusePolicy
from agentcho.lab.measure.arms import Experiment
from agentcho.lab.measure.play import Ids, Pair, Play
from agentcho.lab.measure.stage import UNENCODABLE, Stage
from agentcho.lab.measure.swap import Secrets, borrowed, donor_order, fitted
from agentcho.lab.stats import clopper_pearson, proven_bits

Vector = NDArray[np.float32]
Key = tuple[ProbeSource, int | None]
"""A source, and the layer of an encoding."""
FOLDS = 5
PERMUTATIONS = 20
FEWEST = 4
"""The minimum of games per kind."""


class Kinds(NamedTuple):
    """The kind of each game, from 0, or None if the game is left out. `token` tells two kinds apart, if one token
    does."""

    labels: tuple[int | None, ...]
    classes: int
    token: int | None
    how: str

    def fits(self, label: int, words: Mapping[str, Ids]) -> bool:
        """Whether a secret that was fitted to a length is still of its kind: the token may have been cut off."""
        return self.token is None or any(self.token in ids for ids in words.values()) == bool(label)

    def putting_aside(self, game: int) -> Kinds:
        """The same kinds without one game."""
        return self._replace(labels=tuple(None if n == game else label for n, label in enumerate(self.labels)))

    @property
    def spare(self) -> int:
        """The game to set aside: the first of the most frequent kind."""
        return max((n for n, label in enumerate(self.labels) if label is not None), key=lambda n: (self._count(n), -n))

    @property
    def smallest(self) -> int:
        """The number of games of the rarest kind."""
        return min(self.labels.count(label) for label in range(self.classes))

    def _count(self, game: int) -> int:
        return self.labels.count(self.labels[game])


def kinds(plays: Sequence[Play], pair: Pair, behind: Sequence[frozenset[str]]) -> Kinds | None:
    """The kinds of secrets that `pair.owner` hides behind its utterance (`behind`: messages by game); None: there are
    no two kinds with enough games."""
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
    """The tokens of the owner's private thoughts, or of everything that it hides if it has none."""
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
    rng, dealt = np.random.default_rng((seed, count)), list[int | None]([None] * len(labels))
    for label in sorted({label for label in labels if label is not None}):
        games = rng.permutation([game for game, own in enumerate(labels) if own == label])
        for place, game in enumerate(games):
            dealt[int(game)] = place % count
    return tuple(dealt)


class Sample(NamedTuple):
    """One game with a secret of one kind behind its utterance: what a reader sees, by source and layer."""

    game: int
    fold: int
    label: int
    seen: dict[Key, Vector]


class Target(NamedTuple):
    """The probed utterance of one game, and the messages behind it."""

    utterance: str
    behind: frozenset[str]


def target(play: Play, pair: Pair) -> Target | None:
    """The owner's last generated message that the reader may read and that has secrets behind it."""
    secrets = {line.message.id for line in play.hidden(pair.owner, pair.reader)}
    for line in reversed(play.decodes(pair.owner)):
        behind = play.behind(line.message.parents)
        if line.message.audience.includes(pair.reader) and secrets & behind:
            return Target(line.message.id, behind)
    return None


@dataclass(frozen=True)
class ProbeGames:
    """The games that a probe looks into, and the kinds of their secrets. `dealt` is the fold of each game; `aside` is
    the game whose secret the reader's own encoding of the words is made over."""

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
        """One sample per kind, minus the reader's own encoding of the words. The secret is borrowed within the game's
        own fold."""
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
        """The first donor's words, cut or repeated to the length of the game's own; empty if no donor has any."""
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
        sources: dict[ProbeSource, ReusePolicy] = {
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

    def _layers(self, source: ProbeSource, reuse: ReusePolicy, play: Play, utterance: str) -> dict[Key, Vector]:
        with Stage(self.experiment.engine, play, reuse) as stage:
            layers = stage.cached(utterance, self.pair.reader)
        return {(source, layer): _pooled(keys, values) for layer, (keys, values) in enumerate(layers)}


def _thoughts(play: Play, words: Secrets) -> Secrets:
    """What was thought in private, or everything if nothing was."""
    known = play.by_id
    return {id: ids for id, ids in words.items() if known[id].message.kind == "decode"} or words


def _pooled(keys: Vector, values: Vector) -> Vector:
    """Pool `[heads, tokens, dim]` each into one vector: the mean over tokens, and the last token."""
    parts = (keys.mean(axis=1), keys[:, -1], values.mean(axis=1), values[:, -1])
    return np.concatenate([part.reshape(-1) for part in parts])


def probe(experiment: Experiment, pair: Pair, done: Callable[[], None]) -> tuple[tuple[Probe, ...], str]:
    """The probes of one owner's words, as `pair.reader` would read them, and a note: how kinds were made, or why there
    is no probe. `done` is called after each game."""
    targets = {game: one for game, play in enumerate(experiment.plays) if (one := target(play, pair)) is not None}
    experiment = experiment.of(list(targets))
    found = kinds(experiment.plays, pair, [one.behind for one in targets.values()])
    if found is None:
        return (), f"no probe of {pair.owner}'s words: there are no two kinds of secret behind them with games enough"
    rest = found.putting_aside(found.spare)
    dealt = folds(rest.labels, min(FOLDS, rest.smallest // 2), experiment.seed)
    samples = ProbeGames(
        experiment=experiment, pair=pair, targets=list(targets.values()), kinds=rest, dealt=dealt, aside=found.spare
    ).samples(done)
    if len({sample.fold for sample in samples}) < 2:
        return (), f"no probe of {pair.owner}'s words: secrets of every kind could not be put behind them"
    return tuple(probes(pair.owner, samples, rest.classes, experiment.seed)), f"{pair.owner}'s secrets: {rest.how}"


def probes(owner: str, samples: Sequence[Sample], classes: int, seed: int) -> Iterator[Probe]:
    """Yield one probe per source and layer. Each game is tested with one kind, all kinds equally often, in a seeded
    order."""
    games = sorted({s.game for s in samples})
    asked = dict(zip(games, np.random.default_rng(seed).permutation(np.arange(len(games)) % classes), strict=True))
    tests = [s for s in samples if s.label == asked[s.game]]
    for source, layer in samples[0].seen:
        right = _right(samples, tests, (source, layer), [s.label for s in samples])
        dealt = (_dealt(samples, np.random.default_rng((seed, n))) for n in range(PERMUTATIONS))
        drawn = [_right(samples, tests, (source, layer), labels) for labels in dealt]
        interval = clopper_pearson(right, len(tests))
        yield Probe(
            owner=owner,
            source=source,
            layer=layer,
            classes=classes,
            trained=_trained(samples),
            tested=len(tests),
            accuracy=right / len(tests),
            interval=interval,
            chance=1 / classes,
            control=sum(drawn) / (PERMUTATIONS * len(tests)),
            bits=proven_bits(interval.low, classes),
        )


def _trained(samples: Sequence[Sample]) -> int:
    """The smallest number of samples that a classifier was trained on."""
    return min(sum(s.fold != fold for s in samples) for fold in {s.fold for s in samples})


def _right(samples: Sequence[Sample], tests: Sequence[Sample], key: Key, labels: Sequence[int]) -> int:
    """How many of the tests are classified correctly after training with these labels."""
    right = 0
    for fold in sorted({s.fold for s in tests}):
        trained = [(s, label) for s, label in zip(samples, labels, strict=True) if s.fold != fold]
        asked = [s for s in tests if s.fold == fold]
        matrix = _matrix([s.seen[key] for s in (*(s for s, _ in trained), *asked)])
        reader = make_pipeline(StandardScaler(), RidgeClassifier(alpha=float(matrix.shape[1])))
        reader.fit(matrix[: len(trained)], [label for _, label in trained])
        told = _told(reader, matrix[len(trained) :])
        right += sum(guess == s.label for guess, s in zip(told, asked, strict=True))
    return right


def _told(reader: Any, rows: NDArray[np.float64]) -> Sequence[int]:
    """The predicted kind of each row; the first kind if scores differ only by rounding, as when all samples are
    equal."""
    scores = np.round(reader.decision_function(rows), 9)
    places = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
    return [int(reader[-1].classes_[place]) for place in places]


def _matrix(vectors: Sequence[Vector]) -> NDArray[np.float64]:
    """One row per vector; shorter bags of ids are padded with zeros."""
    width = max(map(len, vectors))
    return np.stack([np.pad(vector.astype(np.float64), (0, width - len(vector))) for vector in vectors])


def _dealt(samples: Sequence[Sample], rng: np.random.Generator) -> list[int]:
    """The labels of each game in a random order."""
    labels = [s.label for s in samples]
    for game in sorted({s.game for s in samples}):
        places = [place for place, s in enumerate(samples) if s.game == game]
        for place, label in zip(places, rng.permutation([samples[p].label for p in places]), strict=True):
            labels[place] = int(label)
    return labels

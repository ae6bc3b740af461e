"""The probe: how well a linear reader tells which kind of secret lay behind a public utterance.

The reader knows the utterance's words, so it looks at how their keys and values differ from those that it gets by
encoding the words itself behind a secret of a game that is put aside. Each game is tested once, by a reader that was
trained on other games and on secrets of other games. What such a reader finds is a lower bound on the channel: a
better one may find more. Does not know: engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from agentcho.audit.measurement import Probe
from agentcho.lab.measure.arms import Experiment
from agentcho.lab.measure.kinds import folds, kinds
from agentcho.lab.measure.play import Pair
from agentcho.lab.measure.samples import Key, ProbeGames, Sample, Vector, target
from agentcho.lab.stats import clopper_pearson, proven_bits

FOLDS = 5
PERMUTATIONS = 20


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
    samples = ProbeGames(experiment, pair, list(targets.values()), rest, dealt, found.spare).samples(done)
    if len({sample.fold for sample in samples}) < 2:
        return (), f"no probe of {pair.owner}'s words: secrets of every kind could not be put behind them"
    return tuple(probes(pair.owner, samples, rest.classes, experiment.seed)), f"{pair.owner}'s secrets: {rest.how}"


def probes(owner: str, samples: Sequence[Sample], classes: int, seed: int) -> Iterator[Probe]:
    """One probe a source and layer. Each game is asked for one kind, all kinds equally often, in a seeded order."""
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
    """The fewest samples that a reader was trained on."""
    return min(sum(s.fold != fold for s in samples) for fold in {s.fold for s in samples})


def _right(samples: Sequence[Sample], tests: Sequence[Sample], key: Key, labels: Sequence[int]) -> int:
    """How many of the tests are classified right after training with these labels."""
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
    """The predicted kind of each row; the first kind where scores differ by rounding alone, as where all samples are
    equal."""
    scores = np.round(reader.decision_function(rows), 9)
    places = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
    return [int(reader[-1].classes_[place]) for place in places]


def _matrix(vectors: Sequence[Vector]) -> NDArray[np.float64]:
    """One row each; shorter bags of ids end in zeros."""
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

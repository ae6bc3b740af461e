"""The probe: a reader that finds a signal if there is one, nothing otherwise, and is never trained on test samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from agentcho import Engine
from agentcho.audit.measurement import Probe
from agentcho.lab.measure.arms import Experiment
from agentcho.lab.measure.play import Pair, Play, of_workflow
from agentcho.lab.measure.probe import Kinds, ProbeGames, Sample, folds, kinds, probe, probes, target
from agentcho.lab.measure.whole import measure

from .talks import FRUITS, STONES, talk, talks

BOB = Pair("bob", "alice")


def samples(signal: float, games: int = 40, classes: int = 2, width: int = 30) -> list[Sample]:
    """Hand-made samples: noise of the game's words, noise of the secret's wording, and a signal of its kind."""
    rng = np.random.default_rng(1)
    found = []
    for game in range(games):
        words = rng.normal(size=width)
        for label in range(classes):
            seen = words * 0.1 + rng.normal(size=width) * 0.3
            seen[label] += signal
            author, text = seen.astype(np.float32), words.astype(np.float32)
            found.append(Sample(game, game % 5, label, {("author", 2): author, ("text", None): text}))
    return found


def by_source(found: Sequence[Probe]) -> dict[str, Probe]:
    """One probe per source."""
    return {one.source: one for one in found}


# -- the reader ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_a_signal_is_found_and_proves_bits(classes: int) -> None:
    found = by_source(list(probes("alice", samples(3.0, classes=classes), classes, seed=0)))
    assert found["author"].accuracy > 0.9
    assert 0 < found["author"].bits <= np.log2(classes)
    assert found["author"].chance == 1 / classes
    assert found["author"].tested == 40, "one test a game"
    assert found["author"].trained == 32 * classes


@pytest.mark.slow
def test_no_signal_is_not_found_and_proves_nothing() -> None:
    found = by_source(list(probes("alice", samples(0.0), 2, seed=0)))
    assert found["author"].interval.low < 0.5 < found["author"].interval.high
    assert found["author"].bits == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_permuted_labels_and_equal_samples_are_at_chance(classes: int) -> None:
    found = by_source(list(probes("alice", samples(3.0, games=60, classes=classes), classes, seed=0)))
    assert found["author"].control == pytest.approx(1 / classes, abs=0.1)
    assert found["text"].accuracy == pytest.approx(1 / classes, abs=1 / 60), (
        "a tie is the first kind, whatever rounding says"
    )


@pytest.mark.slow
def test_a_reader_is_never_trained_on_what_it_is_asked() -> None:
    """Each sample contains its label under the index of its own game: only a reader trained on that fold could tell."""
    rng = np.random.default_rng(0)
    secret = [
        Sample(s.game, s.fold, s.label, {("author", 0): np.eye(40, dtype=np.float32)[s.game] * (2 * s.label - 1)})
        for s in samples(0.0)
    ]
    found = next(probes("alice", secret, 2, seed=int(rng.integers(9))))
    assert found.interval.low < 0.5 < found.interval.high


# -- kinds, folds and secrets ----------------------------------------------------------------------------


def test_kinds_of_the_games_come_first() -> None:
    plays = [play._replace(kind="ab"[n % 2]) for n, play in enumerate(_plays(10))]
    found = kinds(plays, BOB, _behind(plays))
    assert found is not None
    assert found.labels == (0, 1) * 5
    assert found.token is None


def test_else_a_token_that_is_nearest_to_half_tells_them_apart() -> None:
    words: Any = _Words()
    plays = [of_workflow(talk(n, secret=f"{n} {'sweet' if n % 2 else 'ripe'} figs"), words) for n in range(12)]
    found = kinds(plays, BOB, _behind(plays))
    assert found is not None
    assert found.labels.count(1) == 6
    assert found.token in {words.known["sweet"], words.known["ripe"]}
    for play, label in zip(plays, found.labels, strict=True):
        assert label is not None
        assert found.fits(label, {"plan": play.by_id["plan"].content})
        assert not found.fits(1 - label, {"plan": play.by_id["plan"].content})


def test_too_few_of_a_kind_are_none() -> None:
    plays = _plays(7)
    assert kinds(plays, BOB, _behind(plays)) is None
    same = [play._replace(kind="a") for play in _plays(7)]
    assert kinds(same, BOB, _behind(same)) is None


def test_a_game_of_the_most_frequent_kind_is_put_aside() -> None:
    found = Kinds((0, 1, 1, 0, 1, None), 2, None, "by hand")
    assert found.spare == 1
    assert found.putting_aside(1).labels == (0, None, 1, 0, 1, None)
    assert found.smallest == 2


def test_folds_hold_every_kind_evenly() -> None:
    labels = (0, 1) * 10 + (None,)
    dealt = folds(labels, 5, seed=2)
    assert dealt[-1] is None
    for fold in range(5):
        held = [label for label, own in zip(labels, dealt, strict=True) if own == fold]
        assert sorted(held, key=str) == [0, 0, 1, 1]


def test_a_secret_is_borrowed_within_its_fold_at_the_same_length_and_of_its_kind(three: Engine) -> None:
    plays = [of_workflow(talk(n), three)._replace(kind="ab"[n % 2]) for n in range(14)]
    found = kinds(plays, BOB, _behind(plays))
    assert found is not None
    dealt = folds(found.labels, 3, 0)
    targets = [one for play in plays if (one := target(play, BOB)) is not None]
    looking = ProbeGames(Experiment(three, plays, 0, True), BOB, targets, found, dealt, 0)
    for game, fold in enumerate(dealt):
        assert fold is not None
        for label in (0, 1):
            donors = looking._donors(game, fold, label)
            assert donors
            assert game not in donors
            assert {(dealt[donor], found.labels[donor]) for donor in donors} == {(fold, label)}
            words = looking._secret(game, donors, label)
            assert {id: len(ids) for id, ids in words.items()} == {
                id: len(plays[game].by_id[id].content) for id in ("rules", "plan")
            }


def test_what_is_looked_into_is_the_last_public_message_with_secrets_behind_it() -> None:
    (play,) = _plays(1)
    found = target(play, BOB)
    assert found is not None
    assert found.utterance == "hello"
    assert found.behind == {"rules", "plan"}
    assert target(play._replace(lines=play.lines[:2]), BOB) is None


# -- on a model ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_encodings_of_the_author_tell_and_those_of_the_audience_do_not(three: Engine) -> None:
    """Even a random model carries its context along; its first layer depends on the words alone."""
    games = [talk(n) for n in range(31)]
    kinds_ = ["fruit" if n % 2 == 0 else "stone" for n in range(31)]
    found = measure(games, three, parts={"probe"}, kinds=kinds_)
    alices = {(p.source, p.layer): p for p in found.probes if p.owner == "alice"}
    assert set(alices) == {("text", None), *(("author", n) for n in range(3)), *(("audience", n) for n in range(3))}
    best = max((p for key, p in alices.items() if key[0] == "author"), key=lambda p: p.accuracy)
    assert best.interval.low > 0.5
    assert best.bits > 0
    assert best.control < best.interval.low
    blind = [p for key, p in alices.items() if key[0] != "author" or key[1] == 0]
    assert all(p.accuracy == pytest.approx(0.5, abs=0.03) for p in blind)
    assert any("lower bound" in note for note in found.notes)


@pytest.mark.slow
def test_a_game_that_ended_early_takes_no_part(three: Engine) -> None:
    plays = [of_workflow(talk(n), three)._replace(kind="ab"[n % 2]) for n in range(10)]
    torn = plays[0]._replace(lines=plays[0].lines[:2])
    found, _ = probe(Experiment(three, [torn, *plays[1:]], 0, True), BOB, lambda: None)
    assert {one.tested for one in found} == {8}, "one is torn, one is put aside"


def test_no_probe_says_why(three: Engine) -> None:
    found, note = probe(Experiment(three, [of_workflow(game, three) for game in talks(3)], 0, True), BOB, lambda: None)
    assert found == ()
    assert note.startswith("no probe of alice's words")


def test_secrets_have_more_wordings_than_folds() -> None:
    assert len(set(FRUITS)) > 5
    assert len(set(STONES)) > 5


class _Words:
    """Token ids for the words of a play, without a model."""

    def __init__(self) -> None:
        self.framing, self.content, self.fingerprint, self.default = self, self, dict[str, str](), None
        self.known: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        return [self.known.setdefault(word, len(self.known)) for word in text.split()]

    def opening(self, role: str, name: str | None, answer: bool = False) -> tuple[int, ...]:
        return (1001,)

    def closing(self, role: str) -> tuple[int, ...]:
        return (1002,)


def _plays(count: int) -> list[Play]:
    words: Any = _Words()
    return [of_workflow(talk(n), words) for n in range(count)]


def _behind(plays: Sequence[Play]) -> list[frozenset[str]]:
    return [one.behind for play in plays if (one := target(play, BOB)) is not None]

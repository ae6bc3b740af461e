"""Attacks find what is planted, and nothing in noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agentcho.lab.leaks import asked as asking
from agentcho.lab.leaks.asked import asked
from agentcho.lab.leaks.evidence import recovered
from agentcho.lab.leaks.guesses import Case, Effort, log_probabilities, sharpened
from agentcho.lab.leaks.inversion import inversion
from agentcho.lab.leaks.measured import Attack
from agentcho.lab.leaks.probes import linear, mlp
from agentcho.lab.measure.play import Play

from .planted import case, p_of

LEARNED = [linear, mlp, pytest.param(inversion, marks=pytest.mark.slow)]


@pytest.mark.slow
@pytest.mark.parametrize("attack", LEARNED)
def test_a_planted_secret_is_found_and_told_in_bits(attack: Attack) -> None:
    planted = case(3.0)
    found = attack(planted)
    assert not isinstance(found, str)
    assert p_of(planted, found) < 1e-12
    bits = recovered(found.logq.tolist(), found.entropy, 1)
    assert 0.5 < bits.interval.low < bits.middle <= found.entropy
    assert found.entropy == pytest.approx(np.log2(6**4 - 300))
    assert found.chance == 1 / (6**4 - 300)


@pytest.mark.parametrize("attack", LEARNED)
@pytest.mark.slow
def test_in_noise_nothing_is_found(attack: Attack) -> None:
    noise = case(0.0)
    found = attack(noise)
    assert not isinstance(found, str)
    assert p_of(noise, found) > 0.01
    assert recovered(found.logq.tolist(), found.entropy, 1).interval.low == 0


def test_the_layer_is_chosen_where_the_secret_is() -> None:
    found = linear(case(2.0))
    assert found.where == "layer 5"


@pytest.mark.parametrize("attack", LEARNED)
@pytest.mark.slow
def test_what_is_the_same_behind_every_secret_tells_nothing_and_breaks_nothing(attack: Attack) -> None:
    same = case(0.0)
    same.seen.vectors[:] = same.seen.vectors[0]
    found = attack(same)
    assert not isinstance(found, str)
    assert (found.symbols == found.symbols[0]).all()
    assert recovered(found.logq.tolist(), found.entropy, 1).middle == 0


@pytest.mark.slow
@pytest.mark.parametrize("attack", LEARNED)
def test_samples_of_several_lengths_are_attacked_too(attack: Attack) -> None:
    mixed = case(3.0)
    mixed.seen.lengths[::2] = 2
    mixed.seen.vectors[::2, :, 2] = 0
    assert not mixed.seen.level
    found = attack(mixed)
    assert not isinstance(found, str)
    assert p_of(mixed, found) < 1e-6


class Oracle:
    """Replaces a stage: answers one question by the secret and all others by noise; one answer is always more likely
    than the others."""

    rng = np.random.default_rng(1)

    def __init__(self, engine: Any, play: Any, policy: Any) -> None:
        self._secret = play

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def rows(self, decode: str) -> NDArray[np.float32]:
        template, slot = map(int, decode.removeprefix("answer").split("."))
        row = self.rng.normal(size=6) * 0.5
        row[2] += 3.0
        if template == 2:
            row[self._secret[slot]] += 2.0
        return row[None].astype(np.float32)


def told(monkeypatch: pytest.MonkeyPatch, templates: int) -> tuple[Case, Any]:
    monkeypatch.setattr(asking, "Stage", Oracle)
    monkeypatch.setattr(Case, "plays", lambda case, part: [tuple(case.symbols[number]) for number in part])
    given = case(0.0)
    given = Case(**(vars(given) | {"effort": Effort(templates=templates)}))
    return given, asked(given)


def test_the_question_that_serves_best_is_kept_and_what_is_always_likely_taken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, found = told(monkeypatch, 4)
    assert found.where == "question 3 of 4"
    assert p_of(given, found) < 1e-12
    assert (found.symbols == given.of(given.split.test)).mean() > 0.8


def test_questions_that_nobody_answers_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given, found = told(monkeypatch, 2)
    assert p_of(given, found) > 0.01


def test_scores_become_probabilities_and_no_more_than_was_checked_is_trusted() -> None:
    scores = np.array([[0.0, 5.0, 1.0], [2.0, 2.0, 2.0]])
    for sharpness in (0.0, 1.0, 1e6):
        made = np.exp(log_probabilities(scores, sharpness, 0.1))
        assert made.sum(axis=1) == pytest.approx([1, 1])
        assert made.min() >= 0.1 / 3 - 1e-12
    assert np.exp(log_probabilities(scores, 0.0, 0.0)) == pytest.approx(1 / 3)
    right = np.eye(4)[[0, 1, 2, 3] * 5]
    sure = sharpened([right], np.array([[0], [1], [2], [3]] * 5))
    assert sure.sharpness > 1
    assert sure.doubt == 1 / 21
    none = sharpened([np.random.default_rng(1).normal(size=(400, 4))], np.arange(400)[:, None] % 4)
    assert none.sharpness < 0.2
    assert none.bits == pytest.approx(2, abs=0.02)


def test_a_case_knows_how_many_secrets_it_can_be() -> None:
    assert case(0.0, n=100).unseen == 6**4 - 75
    assert isinstance(case(0.0, n=100).scene.play, Play)

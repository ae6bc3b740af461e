"""Tests the statistics against closed forms and against properties that hold for all inputs."""

from __future__ import annotations

from math import comb, log, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy import special

from agentcho.audit.measurement import Interval
from agentcho.lab.stats import (
    clopper_pearson,
    clustered,
    distance,
    holm,
    log_softmax,
    mcnemar,
    pooled_mean,
    proven_bits,
)

SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=12)
LOGITS = arrays(np.float32, (3, 7), elements=st.floats(-30, 30, width=32))


def ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def log_rows(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Normalized in float32, as the rows of an engine are."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    rows: NDArray[np.float32] = (shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))).astype(np.float32)
    return rows


def test_distances_of_two_known_distributions() -> None:
    p, q = np.log(np.array([[0.5, 0.25, 0.25]])), np.log(np.array([[0.25, 0.25, 0.5]]))
    found = distance(p, q)
    assert found.tv[0] == pytest.approx(0.25)
    assert found.kl[0] == pytest.approx(0.5 * log(2) - 0.25 * log(2))


@given(LOGITS)
def test_log_probabilities_are_those_of_another_library(logits: NDArray[np.float32]) -> None:
    logits[0, 0] = -np.inf
    found = log_softmax(logits)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, special.log_softmax(logits.astype(np.float64), axis=1), rtol=1e-6, atol=1e-6)


@given(LOGITS, LOGITS)
def test_a_total_variation_is_zero_where_rows_are_equal_and_nowhere_else(
    a: NDArray[np.float32], b: NDArray[np.float32]
) -> None:
    one, two = log_rows(a), log_rows(b)
    found, back = distance(one, two), distance(two, one)
    assert ((found.tv == 0) == (one == two).all(axis=1)).all()
    assert (found.tv >= 0).all()
    assert (found.tv <= 1).all()
    assert (found.kl >= 0).all()
    assert found.tv == pytest.approx(back.tv)
    assert (found.tv <= np.sqrt(found.kl / 2) + 2e-3).all(), "Pinsker's inequality, for rows rounded to float32"


@given(LOGITS, st.integers(0, 2), st.integers(0, 6))
def test_one_bit_of_one_number_is_enough(logits: NDArray[np.float32], row: int, column: int) -> None:
    before = log_rows(logits)
    after = before.copy()
    after[row, column] = np.nextafter(after[row, column], np.float32(-np.inf))
    found = distance(before, after).tv
    assert [place for place, tv in enumerate(found) if tv > 0] == [row]


def test_what_underflows_is_still_a_difference() -> None:
    before = np.array([[0.0, -800.0]], dtype=np.float32)
    after = np.array([[0.0, -900.0]], dtype=np.float32)
    assert 0 < distance(before, after).tv[0] < 1e-300


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (np.full((1, 2), np.nan), "a log-probability is NaN"),
        (np.zeros((2, 2)), r"one shape, got \(1, 2\) and \(2, 2\)"),
        (np.zeros((1, 3)), r"one shape, got \(1, 2\) and \(1, 3\)"),
    ],
    ids=["nan", "rows", "width"],
)
def test_what_cannot_be_compared_is_refused(other: NDArray[np.float64], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        distance(np.zeros((1, 2)), other)


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_the_exact_sign_test(gained: int, lost: int) -> None:
    total, extreme = gained + lost, max(gained, lost)
    tail = sum(comb(total, k) for k in range(extreme, total + 1)) / 2**total
    assert mcnemar(gained, lost) == pytest.approx(min(1.0, 2 * tail))
    assert mcnemar(gained, lost) == mcnemar(lost, gained)


def test_mcnemar_of_six_against_none() -> None:
    assert mcnemar(6, 0) == pytest.approx(2 / 2**6)


@pytest.mark.parametrize("total", [1, 10, 60])
def test_clopper_pearson_at_the_ends_has_a_closed_form(total: int) -> None:
    none, every = clopper_pearson(0, total), clopper_pearson(total, total)
    assert none.low == 0
    assert none.high == pytest.approx(1 - 0.025 ** (1 / total))
    assert every.high == 1
    assert every.low == pytest.approx(0.025 ** (1 / total))


@given(st.integers(1, 80).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_clopper_pearson_holds_the_share_and_puts_little_beyond_either_end(case: tuple[int, int]) -> None:
    count, total = case
    low, high = ends(clopper_pearson(count, total))
    assert low <= count / total <= high
    beyond = sum(comb(total, k) * low**k * (1 - low) ** (total - k) for k in range(count, total + 1))
    below = sum(comb(total, k) * high**k * (1 - high) ** (total - k) for k in range(count + 1))
    assert count == 0 or beyond == pytest.approx(0.025)
    assert count == total or below == pytest.approx(0.025)


def test_an_interval_of_nothing_is_everything() -> None:
    assert ends(clopper_pearson(0, 0)) == (0, 1)


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx((0.06, 0.03, 0.06))


@given(SHARES)
def test_holm_lies_between_the_value_and_bonferroni_and_keeps_the_order(values: list[float]) -> None:
    adjusted = holm(values)
    for value, new in zip(values, adjusted, strict=True):
        assert value <= new <= min(1.0, value * len(values)) + 1e-12
    order = sorted(range(len(values)), key=lambda place: values[place])
    assert [adjusted[place] for place in order] == sorted(adjusted)
    assert adjusted[order[0]] == min(1.0, values[order[0]] * len(values)), "the least one is Bonferroni's"


@given(st.lists(arrays(np.float64, st.integers(0, 5), elements=st.floats(0, 1)), min_size=2, max_size=8))
def test_the_bootstrap_stays_within_the_games_and_holds_their_mean_where_all_are_alike(
    games: list[NDArray[np.float64]],
) -> None:
    low, high = ends(clustered(games, seed=1))
    means = [game.mean() for game in games if len(game)]
    assert not means or min(means) - 1e-9 <= low <= high <= max(means) + 1e-9
    assert len(set(means)) > 1 or low == pytest.approx(high)


def test_the_bootstrap_draws_games_not_rows() -> None:
    """Two hundred equal rows per game count only as one number per game."""
    alike = [np.full(200, value) for value in (0.0, 0.0, 1.0, 1.0)]
    low, high = ends(clustered(alike, seed=3))
    assert low == 0.0
    assert high == 1.0


def test_the_bootstrap_is_seeded_and_covers_the_normal_interval() -> None:
    rng = np.random.default_rng(0)
    games = [rng.normal(1.0, 0.2, size=1) for _ in range(60)]
    low, high = ends(clustered(games, seed=7))
    spread = np.std([game[0] for game in games]) / np.sqrt(60)
    assert clustered(games, seed=7) == Interval(low=low, high=high, method="bootstrap clustered by game")
    assert low == pytest.approx(pooled_mean(games) - 1.96 * spread, abs=0.02)
    assert high == pytest.approx(pooled_mean(games) + 1.96 * spread, abs=0.02)


def test_one_game_has_no_interval() -> None:
    assert clustered([np.array([0.1, 0.3])], seed=0).method == "one game: no interval"


def test_bits_of_known_channels() -> None:
    assert proven_bits(1.0, 2) == 1.0
    assert proven_bits(1.0, 8) == 3.0
    assert proven_bits(0.5, 2) == 0.0
    assert proven_bits(0.9, 2) == pytest.approx(1 + 0.9 * log2(0.9) + 0.1 * log2(0.1))


@given(st.floats(0, 1), st.integers(2, 10))
def test_bits_are_never_more_than_there_are_and_grow_with_accuracy(accuracy: float, classes: int) -> None:
    bits = proven_bits(accuracy, classes)
    assert 0 <= bits <= log2(classes) + 1e-12
    assert proven_bits(min(1.0, accuracy + 0.05), classes) >= bits - 1e-12

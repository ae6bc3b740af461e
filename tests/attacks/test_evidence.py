"""What guesses prove, against closed forms and channels of known information."""

from __future__ import annotations

from math import comb, log2

import numpy as np
import pytest
from scipy import stats

from agentcho.lab.leaks.evidence import above_chance, equivalent, more, recovered


def test_the_exact_test_is_the_tail_of_a_binomial() -> None:
    assert above_chance(3, 3, 0.1) == pytest.approx(0.001)
    tail = sum(comb(20, k) * 0.25**k * 0.75 ** (20 - k) for k in range(9, 21))
    assert above_chance(9, 20, 0.25) == pytest.approx(tail)
    assert above_chance(0, 20, 0.25) == 1
    assert above_chance(0, 0, 0.25) == 1


def test_bits_of_who_knows_all_and_of_who_knows_nothing() -> None:
    everything, nothing = recovered([0.0] * 50, 12.0, 1), recovered([-12.0] * 50, 12.0, 1)
    assert (everything.middle, everything.interval.low) == (12, 12)
    assert (nothing.middle, nothing.interval.low, nothing.interval.high) == (0, 0, 0)
    wrong = recovered([-20.0] * 50, 12.0, 1)
    assert (wrong.middle, wrong.interval.high) == (0, 0), "who is sure and wrong proves nothing, and nothing below it"


@pytest.mark.parametrize(("options", "right"), [(4, 0.7), (10, 0.3), (2, 0.95)])
@pytest.mark.slow
def test_bits_of_a_symmetric_channel_are_its_information(options: int, right: float) -> None:
    wrong = (1 - right) / (options - 1)
    information = log2(options) + right * log2(right) + (options - 1) * wrong * log2(wrong)
    hits = np.random.default_rng(4).random(4000) < right
    found = recovered(np.where(hits, log2(right), log2(wrong)).tolist(), log2(options), 2)
    assert found.interval.low < information < found.interval.high
    assert found.interval.high - found.interval.low < 0.15


def test_what_never_differs_is_the_same_only_where_there_is_enough_of_it() -> None:
    assert equivalent([0.0] * 98, [0.0] * 98).p > 0.05, "0.97 to the power of 98"
    assert equivalent([0.0] * 99, [0.0] * 99).p < 0.05
    assert equivalent([0.0] * 99, [0.0] * 99).p == pytest.approx(0.97**99)
    assert equivalent([1.0] * 99, [0.0] * 99).p == 1


def test_equivalence_is_two_one_sided_tests() -> None:
    rng = np.random.default_rng(5)
    these, those = (rng.random((2, 3000)) < 0.1).astype(float)
    apart = these - those
    error = apart.std(ddof=1) / np.sqrt(len(apart))
    tails = [stats.t.sf((0.03 - side * apart.mean()) / error, len(apart) - 1) for side in (1, -1)]
    found = equivalent(these.tolist(), those.tolist())
    assert found.p == pytest.approx(max(tails), rel=1e-9)
    assert found.p < 0.001
    assert found.method == "paired t"
    assert equivalent((these + 0.05).tolist(), those.tolist()).p > 0.9, "5 points apart are not the same"
    assert equivalent((these - 0.05).tolist(), those.tolist()).p > 0.9, "in either direction"


def test_more_is_an_exact_sign_test() -> None:
    assert more([1.0] * 10 + [0.0] * 5, [0.0] * 15) == pytest.approx(2**-10)
    assert more([0.0] * 15, [0.0] * 15) == 1
    assert more([0.0] * 10, [1.0] * 10) == 1

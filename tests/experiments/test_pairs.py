"""Means, paired differences and their tests, compared with values computed by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import multinomial, ttest_1samp

from agentcho.audit.measurement import Interval
from agentcho.lab.compare.comparison import Difference
from agentcho.lab.compare.pairs import Scores, exactly, metrics
from agentcho.lab.stats import changed_share, mcnemar, resampled, sign_flips


def scored(values: Sequence[float | None], name: str = "m") -> Scores:
    return {game: {name: value} for game, value in enumerate(values) if value is not None}


def test_a_binary_metric_gets_exact_tests() -> None:
    before, after = [1.0] * 10 + [0.0] * 2, [1.0] * 4 + [0.0] * 6 + [1.0] + [0.0]
    (metric,) = metrics({"a": scored(before), "b": scored(after)}, 0)
    assert metric.binary
    assert (metric.means["a"].value, metric.means["b"].value) == (10 / 12, 5 / 12)
    assert metric.means["a"].span.method == "clopper-pearson"
    found = metric.differences["b"]
    assert (found.gained, found.lost, found.games) == (1, 6, 12)
    assert found.value == pytest.approx(-5 / 12)
    assert found.p == pytest.approx(2 * (1 + 7) / 2**7)
    assert found.span.low < found.value < found.span.high


def test_any_other_metric_gets_a_bootstrapped_interval_and_flipped_signs() -> None:
    dice = np.random.default_rng(1)
    before = dice.normal(0.5, 0.3, 80)
    after = before + dice.normal(0.05, 0.1, 80)
    (metric,) = metrics({"a": scored(list(before)), "b": scored(list(after))}, 0)
    assert not metric.binary
    found = metric.differences["b"]
    known = ttest_1samp(after - before, 0).confidence_interval()
    assert found.span.low == pytest.approx(known.low, abs=0.005)
    assert found.span.high == pytest.approx(known.high, abs=0.005)
    assert found.test == "sign flips"
    assert found.p == pytest.approx(ttest_1samp(after - before, 0).pvalue, abs=0.01)
    assert found.gained is None
    unpaired = np.sqrt(before.var() / 80 + after.var() / 80) * 1.96
    assert found.span.high - found.span.low < unpaired


def test_only_games_that_both_have_are_pairs() -> None:
    (metric,) = metrics({"a": scored([1, 0, None, 1]), "b": scored([None, 0, 1, 0])}, 0)
    assert (metric.means["a"].games, metric.means["b"].games) == (3, 3)
    assert (metric.differences["b"].games, metric.differences["b"].lost) == (2, 1)


def test_holm_is_over_the_columns_of_a_metric() -> None:
    same, worse = [1.0] * 10, [1.0] * 3 + [0.0] * 7
    (metric,) = metrics({"a": scored(same), "b": scored(worse), "c": scored([1.0] * 4 + [0.0] * 6)}, 0)
    b, c = metric.differences["b"], metric.differences["c"]
    assert (b.p, c.p) == (2 / 2**7, 2 / 2**6)
    assert (b.holm, c.holm) == (2 * b.p, c.p) if 2 * b.p > c.p else (2 * b.p, max(2 * b.p, c.p))


def test_a_metric_that_some_games_lack_is_there_and_one_without_pairs_says_nothing() -> None:
    found = metrics({"a": {0: {"x": 1.0}, 1: {"x": 0.0, "y": 2.5}}, "b": {0: {"x": 1.0}, 1: {"x": 1.0}}}, 0)
    assert [metric.name for metric in found] == ["x", "y"]
    lonely = found[1].differences["b"]
    assert (lonely.games, lonely.p) == (0, 1.0)
    assert lonely.span.method == "fewer than two: no interval"


def test_a_bootstrap_is_its_seed() -> None:
    values = [0.31, 0.12, 0.43, 0.24, 0.57, 0.93, 0.71]
    assert resampled(values, 3) == resampled(values, 3) != resampled(values, 4)


def test_few_differences_of_one_sign_prove_little() -> None:
    assert sign_flips([0.31, 0.12, 0.43, 0.24], 3) == 2 / 2**4
    assert sign_flips([0.31, 0.12, 0.43, 0.24, 0.57, 0.93, 0.71, 0.0], 3) == 2 / 2**7, (
        "a pair without change says nothing"
    )
    assert sign_flips([0.0] * 9, 3) == sign_flips([0.5], 3) == sign_flips([], 3) == 1.0
    assert sign_flips([1.0, 1.0, 1.0, -1.0, 1.0], 3) == mcnemar(4, 1)
    assert sign_flips([1.0, 2.0, float("inf"), float("nan"), 1.0], 3) == 1.0
    many = [-1.0, 1.0] * 20
    assert sign_flips(many, 3) == sign_flips(many, 3) > 0.5


@pytest.mark.parametrize(("gained", "lost"), [(0, 4), (0, 5), (0, 6), (1, 7), (1, 8), (3, 12), (0, 0), (9, 9)])
def test_the_interval_of_a_share_leaves_out_0_exactly_where_its_test_does(gained: int, lost: int) -> None:
    span = changed_share(gained, lost, 200)
    assert (span.low > 0 or span.high < 0) is (mcnemar(gained, lost) < 0.05)
    assert span.low < (gained - lost) / 200 < span.high


@pytest.mark.parametrize(
    ("games", "gain", "loss"), [(20, 0.0, 0.0), (20, 0.1, 0.0), (60, 0.05, 0.05), (60, 0.9, 0.0), (60, 0.3, 0.1)]
)
def test_the_interval_of_a_share_holds_the_true_difference_often_enough(games: int, gain: float, loss: float) -> None:
    covered = 0.0
    for gained in range(games + 1):
        for lost in range(games + 1 - gained):
            chance = multinomial.pmf([gained, lost, games - gained - lost], games, [gain, loss, 1 - gain - loss])
            if chance > 1e-7:
                span = changed_share(gained, lost, games)
                covered += chance * (span.low <= gain - loss <= span.high)
    assert covered >= 0.95


def test_few_games_without_a_change_show_little() -> None:
    span = changed_share(0, 0, 3)
    assert span.high == -span.low == pytest.approx(0.708, abs=0.001)


def test_an_older_file_has_the_interval_of_today() -> None:
    (metric,) = metrics({"a": scored([1.0] * 200), "b": scored([0.0] * 4 + [1.0] * 196)}, 0)
    old = Interval(low=-0.04, high=-0.005, method="paired bootstrap")
    found = metric.differences["b"]
    assert found.span.low < -0.02 < 0 < found.span.high
    assert found.p == 0.125
    assert exactly(found.model_copy(update={"span": old})) == found
    other = Difference(games=4, value=0.1, span=old, test="paired bootstrap", p=0.5, holm=0.5)
    assert exactly(other) is other

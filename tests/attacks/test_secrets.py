"""Secrets: uniform, without repeats, and disjoint between training and testing."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest

from agentcho.errors import ConfigError
from agentcho.lab.leaks.secrets import KINDS, Kind, drawn, kind, split

EVERY = list(KINDS.values())


@pytest.mark.parametrize("of", EVERY, ids=lambda of: of.name)
def test_a_kind_is_what_it_says(of: Kind) -> None:
    assert {len(slot) for slot in of.slots} == {of.options}
    assert all(len(set(slot)) == of.options for slot in of.slots)
    assert len(of.leads) == len(of.slots) == of.private.count("{}")
    assert of.entropy == pytest.approx(len(of.slots) * log2(of.options))
    assert of.size >= 2500, "2,000 different ones, and some to be left"
    words = {of.words(secret) for secret in drawn(of, 500, 1)}
    assert len(words) == 500


@pytest.mark.parametrize("of", EVERY, ids=lambda of: of.name)
def test_secrets_are_drawn_once_and_evenly(of: Kind) -> None:
    found = drawn(of, 2000, 7)
    assert len(np.unique(found, axis=0)) == 2000
    for column in found.T:
        counts = np.bincount(column, minlength=of.options)
        assert (abs(counts - 2000 / of.options) < 5 * np.sqrt(2000 / of.options)).all()
    assert (drawn(of, 2000, 7) == found).all()
    assert (drawn(of, 2000, 8) != found).any()


def test_a_pool_begins_with_those_that_must_be_in_it() -> None:
    first = drawn(kind("codes"), 30, 1)
    pool = drawn(kind("codes"), 100, 2, first)
    assert (pool[:30] == first).all()
    assert len(np.unique(pool, axis=0)) == 100


def test_no_secret_that_is_tested_was_trained_on_or_chosen_by() -> None:
    parts = split(2000, 1)
    assert [len(part) for part in parts] == [1200, 300, 500]
    assert sorted(np.concatenate(parts).tolist()) == list(range(2000))


def test_what_cannot_be_drawn_or_split_says_why() -> None:
    with pytest.raises(ConfigError, match="there are only 4096 secrets of the kind names, but 5000 were requested"):
        drawn(kind("names"), 5000, 1)
    with pytest.raises(ConfigError, match="unknown kind of secret 'pins'; give one of codes, names"):
        kind("pins")
    with pytest.raises(ConfigError, match="give 20 or more"):
        split(19, 1)

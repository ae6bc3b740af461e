"""What a reader may not read changes nothing for it, bit for bit: words, length, presence, and the tensors themselves.

Others' public words are forced to be the same in both plays (the claim is conditional on what is released); the
reader's own words are sampled with its seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agentcho import Engine
from tests.engine.families import Family
from tests.engines import Engines

from .script import Act, Swap, absent, chain, other_length, same_length, secret_of, workflow
from .stage import AUDIT, BITWISE, FAST, LONG, Played, Profile, differences, movement, others, play

SWAPS: dict[str, Swap] = {"same length": same_length, "other length": other_length, "absent": absent}
READERS = ("alice", "bob", "carol", "dave")
SEEDS = (0, pytest.param(1, marks=pytest.mark.slow))
SLOW: tuple[dict[str, Any], ...] = ({"turn": LONG}, {"shadow": "never"})


def swapped(engine: Engine, acts: tuple[Act, ...], reader: str, swap: Swap, first: Played, profile: Profile) -> Played:
    """The workflow again, with other words for everything that the reader may not read."""
    return play(engine, secret_of(acts, reader, swap), reader, others(first, acts, reader), profile)


def forced(engine: Engine, acts: tuple[Act, ...], reader: str, profile: Profile) -> Played:
    """The workflow with others' words generated freely first, and then forced as in the second play, because where the
    author's encodings are read, a forced token is fed separately from the closing, and is rounded differently."""
    return play(engine, acts, reader, others(play(engine, acts, reader, profile=profile), acts, reader), profile)


@pytest.mark.parametrize("seed", SEEDS)
def test_hidden_words_change_no_bit_for_a_reader(deep_engine: Engine, seed: int) -> None:
    acts, reader = workflow(seed), READERS[seed % 4]
    first = forced(deep_engine, acts, reader, BITWISE)
    assert first.double.own
    for name, swap in SWAPS.items():
        assert differences(first, swapped(deep_engine, acts, reader, swap, first, BITWISE)) == [], name


@pytest.mark.parametrize(
    ("seed", "swaps"),
    [(0, ("same length",)), *(pytest.param(seed, tuple(SWAPS), marks=pytest.mark.slow) for seed in (0, 1))],
)
def test_the_same_workflows_leak_where_nothing_is_enforced(
    deep_engine: Engine, seed: int, swaps: tuple[str, ...]
) -> None:
    acts, reader = workflow(seed), READERS[seed % 4]
    first = forced(deep_engine, acts, reader, AUDIT)
    for name in swaps:
        assert movement(first, swapped(deep_engine, acts, reader, SWAPS[name], first, AUDIT)) > 1e-6, name


@pytest.mark.slow
@pytest.mark.parametrize(
    "repair",
    [
        "top-k:0.4",
        *(pytest.param(way, marks=pytest.mark.nightly) for way in ("first-k:3", "cacheblend:0.4", "full")),
    ],
)
def test_repair_changes_nothing_about_it(deep_engine: Engine, repair: str) -> None:
    profile = replace(BITWISE, repair=repair)
    acts, reader = workflow(1), READERS[1]
    first = forced(deep_engine, acts, reader, profile)
    for name, swap in SWAPS.items():
        assert differences(first, swapped(deep_engine, acts, reader, swap, first, profile)) == [], name
    free = replace(AUDIT, repair=repair)
    first = forced(deep_engine, acts, reader, free)
    moved = max(movement(first, swapped(deep_engine, acts, reader, swap, first, free)) for swap in SWAPS.values())
    assert (moved > 1e-6) == (repair != "full")


@pytest.mark.slow
@pytest.mark.parametrize("repair", [None, "top-k:0.4"])
def test_judging_changes_nothing_about_it(deep_engine: Engine, repair: str | None) -> None:
    """Every second act, including the reader's last, has a view that judges."""
    profile = replace(BITWISE, repair=repair)
    plain, reader = workflow(1), READERS[1]
    acts = tuple(replace(act, judges=act.number % 2 == 0) for act in plain)
    first = forced(deep_engine, acts, reader, profile)
    assert movement(first, play(deep_engine, plain, reader, others(first, acts, reader), profile)) > 1e-6
    for name, swap in SWAPS.items():
        assert differences(first, swapped(deep_engine, acts, reader, swap, first, profile)) == [], name
    free = replace(AUDIT, repair=repair)
    first = forced(deep_engine, plain, reader, free)
    moved = [movement(first, swapped(deep_engine, plain, reader, each, first, free)) for each in SWAPS.values()]
    assert max(moved) > 1e-6, "without enforcement what is swapped shows, where nobody judges"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_weighing_changes_nothing_about_it(deep_engine: Engine, seed: int) -> None:
    """Which messages are placed side by side depends on what their reader may read of their contexts, nothing else."""
    profile = replace(BITWISE, reuse="ape:0.6,0.8")
    acts, reader = workflow(seed), READERS[seed % 4]
    first = forced(deep_engine, acts, reader, profile)
    assert movement(first, play(deep_engine, acts, reader, others(first, acts, reader), BITWISE)) > 1e-6
    for name, swap in SWAPS.items():
        assert differences(first, swapped(deep_engine, acts, reader, swap, first, profile)) == [], name
    free = replace(AUDIT, reuse="ape:0.6,0.8")
    first = forced(deep_engine, acts, reader, free)
    assert max(movement(first, swapped(deep_engine, acts, reader, each, first, free)) for each in SWAPS.values()) > 1e-6


@pytest.mark.parametrize("repair", ["first-k:3", "top-k:0.4", "full"])
def test_what_stands_first_is_repaired_or_not_by_what_is_public_of_it(
    llama_of: Callable[[int], Engine], repair: str
) -> None:
    profile, acts = replace(BITWISE, repair=repair), chain(1)
    first = forced(llama_of(6), acts, "bob", profile)
    for name, swap in SWAPS.items():
        assert differences(first, swapped(llama_of(6), acts, "bob", swap, first, profile)) == [], name


@pytest.mark.parametrize("seed", SEEDS)
def test_not_a_number_in_all_that_is_hidden_reaches_no_reader(deep_engine: Engine, seed: int) -> None:
    acts, reader = workflow(10 + seed), READERS[3 - seed]
    first = play(deep_engine, acts, reader)
    poisoned = play(deep_engine, acts, reader, others(first, acts, reader), poison=True)
    assert differences(first, poisoned) == []


@pytest.mark.slow
def test_hidden_words_change_no_bit_where_keys_and_values_are_rounded(engines: Engines, deep_family: Family) -> None:
    engine = engines(deep_family, kv_dtype="int8")
    acts, reader = workflow(2), READERS[2]
    first = forced(engine, acts, reader, BITWISE)
    assert first.double.own
    for name, swap in SWAPS.items():
        assert differences(first, swapped(engine, acts, reader, swap, first, BITWISE)) == [], name
    assert differences(first, play(engine, acts, reader, others(first, acts, reader), poison=True)) == []
    free = forced(engine, acts, reader, AUDIT)
    assert movement(free, swapped(engine, acts, reader, same_length, free, AUDIT)) > 1e-6, "nothing would have shown"


@pytest.mark.parametrize(
    "profile", [FAST, *(pytest.param(replace(FAST, **how), marks=pytest.mark.slow) for how in SLOW)]
)
def test_in_the_fast_profile_hidden_words_change_no_word_and_no_number_beyond_rounding(
    deep_engine: Engine, profile: Profile
) -> None:
    acts, reader = workflow(20), "bob"
    first = play(deep_engine, acts, reader, profile=profile)
    for name, swap in SWAPS.items():
        second = swapped(deep_engine, acts, reader, swap, first, profile)
        assert differences(first, second, 1e-4) == [], name
    poisoned = play(deep_engine, acts, reader, others(first, acts, reader), profile, poison=True)
    assert differences(first, poisoned, 1e-4) == []


@pytest.mark.parametrize("hops", [1, *(pytest.param(hops, marks=pytest.mark.slow) for hops in (2, 3))])
def test_a_secret_reaches_the_last_of_a_chain_through_public_words_alone(
    llama_of: Callable[[int], Engine], hops: int
) -> None:
    acts, reader = chain(hops), ("alice", "bob", "carol", "dave")[hops]

    def moved(layers: int, profile: Profile) -> float:
        first = forced(llama_of(layers), acts, reader, profile)
        return movement(first, swapped(llama_of(layers), acts, reader, same_length, first, profile))

    assert moved(6, AUDIT) > 1e-6
    assert moved(hops + 1, AUDIT) > 1e-6
    assert moved(hops, AUDIT) == 0, "k hops are not to be seen in k layers: shallow models make these tests blind"
    assert moved(6, BITWISE) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [100, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(101, 112))])
def test_hidden_words_change_no_bit_for_any_reader_of_many_workflows(deep_engine: Engine, seed: int) -> None:
    acts = workflow(seed, steps=10)
    for reader in READERS:
        first = play(deep_engine, acts, reader, backend="trio")
        for name, swap in SWAPS.items():
            assert differences(first, swapped(deep_engine, acts, reader, swap, first, BITWISE)) == [], (reader, name)
        poisoned = play(deep_engine, acts, reader, others(first, acts, reader), poison=True)
        assert differences(first, poisoned) == [], reader

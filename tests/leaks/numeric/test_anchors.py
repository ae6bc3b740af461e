"""Encodings composed from anchors carry nothing that their reader may not read, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agentcho import Engine

from .script import workflow
from .stage import AUDIT, BITWISE, Played, differences, movement
from .test_noninterference import READERS, SWAPS, forced, swapped

ANCHORED = replace(BITWISE, repair="kvcomm:1.0")
SEEDS = [2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (5, 6, 7, 9))]


def taken(played: Played, reader: str) -> int:
    """The number of encodings that were composed from a reader's anchors."""
    made = (record for entry in played.entries for record in entry.made)
    return sum(bool(record.receipt.anchors) and record.caller == reader for record in made)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.slow
def test_hidden_words_change_no_bit_of_what_anchors_correct(llama_of: Callable[[int], Engine], seed: int) -> None:
    acts, engine = workflow(seed), llama_of(3)
    reader = READERS[seed % 4]
    first = forced(engine, acts, reader, ANCHORED)
    assert taken(first, reader)
    for name, swap in SWAPS.items():
        assert differences(first, swapped(engine, acts, reader, swap, first, ANCHORED)) == [], name


@pytest.mark.slow
def test_where_nothing_is_enforced_they_do(llama_of: Callable[[int], Engine]) -> None:
    acts, engine, reader = workflow(2), llama_of(3), READERS[2]
    free = replace(AUDIT, repair=ANCHORED.repair)
    first = forced(engine, acts, reader, free)
    assert taken(first, reader)
    assert movement(first, swapped(engine, acts, reader, SWAPS["same length"], first, free)) > 1e-6

"""The nightly shares are complete and disjoint, and the committed result says that no reader could tell."""

from __future__ import annotations

import json

import pytest

from agentcho.records.environment import machine_info

from .nightly import BITWISE, RESULTS, WORKFLOWS, Done, Share, report, shares, sound
from .pairs import Result


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_shares_come_to_the_whole_and_none_is_played_twice(workers: int) -> None:
    parts = list(shares(1001, 101, workers, 7))
    for engine, pairs in (("sets", 1001), ("fake", 1001), ("model", 101)):
        mine = [part for part in parts if part.engine == engine]
        assert sum(part.pairs for part in mine) == pairs
        assert len({part.seed for part in mine}) == len(mine) == workers
    models = {part.seed for part in parts if part.engine == "model"}
    assert not models & {part.seed for part in parts if part.engine != "model"}


def found(compared: int = 5, told: tuple[str, ...] = ()) -> dict[str, object]:
    """The result of one share per engine."""
    parts = [
        Done(Share(engine, 5, 0), Result(compared, 1, 40, {"swapped": compared}, told), 1.0)
        for engine in ("sets", "fake", "model")
    ]
    return report(parts, 0, 2.0, machine_info())


def test_too_few_and_any_that_was_told_apart_are_no_success() -> None:
    assert sound(found())
    assert not sound(found(compared=4))
    assert not sound(found(told=("seed 3: entry 1",)))
    assert "agentcho/records:" in str(found()["trees"])


def test_what_is_kept_with_its_commit_is_whole() -> None:
    if RESULTS.is_file():
        kept = json.loads(RESULTS.read_text())
        assert sound(kept)
        compared = {engine: each["compared"] for engine, each in kept["engines"].items()}
        assert compared == {"sets": WORKFLOWS, "fake": WORKFLOWS, "model": BITWISE}
        assert len(kept["commit"].removesuffix("-dirty")) == 40

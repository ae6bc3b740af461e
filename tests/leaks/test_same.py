"""What is hidden from a reader makes no difference to it: not its words, not its length, not whether it was said.

A random script is played twice, the second time with everything hidden from one reader changed. Whatever the reader
attended to must be made of the same tokens at the same positions, in the same class, by the same recipe, over the same
context, transitively. This holds by resolving alone: the engine here ignores guards. Under audit the same scripts must
show differences, or the test would be blind.
"""

from __future__ import annotations

from random import Random
from typing import get_args

import pytest

from agentcho.config import RepairBy, ReusePolicy, Shadowing
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.kvcomm import KVComm
from agentcho.reuse.top_k import TopK

from .scripts import READER, Change, Line, changed, hidden, perform, script
from .sets import Sets
from .stage import Talk

CHANGES: tuple[Change, ...] = get_args(Change)
SCRIPTS = pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 250), marks=pytest.mark.slow)], ids=len)


def heard(lines: dict[int, Line], reuse: ReusePolicy) -> dict[int, object]:
    """What each message that the reader generated was made of and over, by number. (Not of known texts: the reader
    cannot see which of their two encodings was made first.)"""
    talk = Talk(Sets(guarded=False), reuse)
    ids = perform(talk, lines)
    said = [entry for entry in talk.entries if entry.message.author == READER and entry.message.kind == "decode"]
    own = {entry.message.id: entry.encoding or 0 for entry in said}
    return {number: talk.engine.storage(own[id]).key for number, id in ids.items() if id in own}


def differ(seeds: range, change: Change, reuse: ReusePolicy) -> int:
    """The number of scripts, among those that hide something, in which the reader could tell."""
    told = 0
    for seed in seeds:
        lines = script(Random(seed))
        if hidden(lines):
            told += heard(dict(enumerate(lines)), reuse) != heard(changed(lines, change), reuse)
    return told


@SCRIPTS
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("shadow", "deterministic"), [("auto", False), ("never", False), ("auto", True)])
def test_what_is_hidden_makes_no_difference(
    change: Change, shadow: Shadowing, deterministic: bool, seeds: range
) -> None:
    assert differ(seeds, change, ReusePolicy("choreographed", "enforce", shadow, deterministic)) == 0


@pytest.mark.slow
@SCRIPTS
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("repair", [FirstK(2), TopK(0.5), "full", KVComm()])
def test_nor_where_readers_repair_what_they_read(change: Change, repair: RepairBy, seeds: range) -> None:
    assert differ(seeds, change, ReusePolicy("choreographed", "enforce", repair=repair)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "shadow", ["auto", *(pytest.param(way, marks=pytest.mark.nightly) for way in ("always", "never"))]
)
def test_what_is_hidden_makes_no_difference_in_thousands_of_scripts(change: Change, shadow: Shadowing) -> None:
    assert differ(range(1000, 3000), change, ReusePolicy("choreographed", "enforce", shadow)) == 0


@pytest.mark.parametrize("change", CHANGES)
def test_the_same_scripts_tell_the_reader_under_audit(change: Change) -> None:
    assert differ(range(40), change, ReusePolicy("choreographed", "audit")) > 20


def test_a_reader_that_is_told_is_told() -> None:
    """A visible change is noticed, so that the comparison does not pass vacuously."""
    lines = script(Random(3))
    of_all = {n: line._replace(plan=line.plan._replace(text="other words")) for n, line in enumerate(lines)}
    reuse = ReusePolicy("choreographed", "enforce")
    assert heard(of_all, reuse) != heard(dict(enumerate(lines)), reuse)

"""What a reader may not read changes nothing that its own code can see, whatever is played and however.

These tests play dozens of pairs on sets and the fake (hundreds in the slow suite), and eight on a tiny model, bit by
bit; `make nightly` plays thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import anyio
import pytest

from agentcho import RunConfig
from agentcho.testing import FakeEngine
from tests.leaks.sets import Sets

from ...engines import Engines
from ..looks import Look
from .engines import Models, fake, sets
from .pairs import Case, Room, Verdict, compared, judged
from .workflows import CHANGES, Act, Change, changed, hidden

OVERFLOWS = pytest.mark.xfail(
    not hasattr(FakeEngine, "frame"), reason="what an author's own encoding cannot bear fails others than the author"
)
MANY = pytest.mark.parametrize("many", [20, pytest.param(300, marks=pytest.mark.slow)])
BITWISE = 8
ENGINES: dict[str, Callable[[Room], Sets | FakeEngine]] = {"sets": sets, "fake": fake}


@pytest.fixture(scope="module")
def models(engines: Engines) -> Models:
    """Engines of a tiny model, loaded on demand."""
    return Models(engines)


@MANY
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_no_reader_can_tell_in_many_workflows(engine: Callable[[Room], Any], many: int) -> None:
    result = compared(many, count(1_000_000), engine, ("roomy",))
    assert result.told == ()
    assert result.compared == many
    assert result.entries > 5 * many
    assert not result.parted


@MANY
@OVERFLOWS
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_nor_where_calls_overflow(engine: Callable[[Room], Any], many: int) -> None:
    result = compared(many // 3, count(1_000_000), engine, ("short",))
    assert result.told == ()
    assert result.compared == many // 3
    assert result.parted <= many / 10


@pytest.mark.slow
def test_no_reader_can_tell_by_a_bit_in_eight(models: Models) -> None:
    result = compared(BITWISE, count(2_000_000), models, models.ROOMS, exact=True)
    assert result.told == ()
    assert result.compared == BITWISE


@pytest.mark.slow
def test_with_nothing_enforced_the_same_pairs_tell() -> None:
    """Otherwise the comparison would be blind."""
    result = compared(40, count(3_000_000), sets, ("roomy",), leakage="audit", most=1000)
    assert all(sum(change in told for told in result.told) >= 5 for change in CHANGES)


def test_with_nothing_enforced_bits_tell(models: Models) -> None:
    assert compared(3, count(4_000_000), models, ("roomy",), exact=True, leakage="audit").told


# -- concurrent agents -----------------------------------------------------------------------------------------


@MANY
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_side_by_side_in_lockstep_no_reader_can_tell(engine: Callable[[Room], Any], many: int) -> None:
    result = compared(many // 3, count(7_000_000), engine, ("roomy",), schedule="lockstep")
    assert (result.told, result.compared, result.parted) == ((), many // 3, 0)
    assert result.entries > 2 * many


@MANY
def test_side_by_side_as_each_is_done_some_readers_can(many: int) -> None:
    """Uses the fake, because on sets a message takes one step, however long it is."""
    result = compared(many // 3, count(7_000_000), fake, ("roomy",), schedule="free", most=many)
    assert len(result.told) > many / 30


@pytest.mark.slow
def test_side_by_side_in_lockstep_not_a_bit_moves(models: Models) -> None:
    result = compared(BITWISE, count(8_000_000), models, ("roomy", "adapted"), exact=True, schedule="lockstep")
    assert (result.told, result.compared, result.parted) == ((), BITWISE, 0)


@pytest.mark.slow
def test_what_is_drawn_covers_all_ways_of_playing() -> None:
    covered = compared(100, count(5_000_000), sets, ("roomy", "short")).covered
    kinds = Counter(what.split(" ")[0] for what in covered)
    assert kinds["repair"] == 4
    assert kinds["choreographed"] + kinds["baseline"] == 4
    shadows = {"shadow auto", "shadow always", "shadow never", "deterministic"}
    assert {*CHANGES, *shadows, "beside True", "calls True", "streamed True"} <= covered.keys()


# -- regressions -----------------------------------------------------------------------------------------------


def pair(engine: Callable[[Room], Any], acts: tuple[Act, ...], change: Change, config: RunConfig) -> Verdict:
    """Compare two plays of a workflow for bob."""
    case = Case(0, "bob", change, config, "roomy", acts, beside=False)

    async def work() -> Verdict:
        return await judged(case, engine)

    return anyio.run(work)


def told() -> tuple[Act, ...]:
    """Alice speaks to everyone over a secret of hers; bob has no secret, and speaks over her words."""
    return (
        Act(0, "join", "alice", ("alice",), "red oak"),
        Act(1, "join", "bob", ("bob",), ""),
        Act(2, "say", "alice", None, "sun ice fox", (Look(0),)),
        Act(3, "say", "bob", None, "", (Look(2),)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("repair", [None, "first-k:2", "top-k:0.5", "full"])
def test_words_over_a_secret(models: Models, change: Change, repair: str | None) -> None:
    config = RunConfig(leakage="enforce", deterministic=True, repair=repair, max_tokens=3)
    assert pair(models, told(), change, config).apart == ""


@pytest.mark.parametrize("change", CHANGES)
def test_a_prompt_that_begins_as_its_authors_began_but_for_a_secret(models: Models, change: Change) -> None:
    config = RunConfig(mode="baseline", leakage="enforce", deterministic=True, max_tokens=3)
    assert pair(models, told(), change, config).apart == ""


@pytest.mark.parametrize("change", CHANGES)
def test_an_error_about_what_was_not_said_names_nothing_hidden(change: Change) -> None:
    acts = (*told(), Act(4, "say", "bob", None, "", (Look(2),), trouble="unsaid"))
    assert pair(sets, acts, change, RunConfig(leakage="enforce", max_tokens=3)).apart == ""


def calling() -> tuple[Act, ...]:
    """Alice calls a tool after reading a secret of hers, in private and in public; bob reads the public messages."""
    return (
        *told()[:2],
        Act(2, "streamed", "scenario", ("alice",), "red oak sun ice"),
        Act(3, "say", "alice", ("alice",), "ice fox", (Look(0), Look(2)), calls=True),
        Act(4, "say", "alice", None, "sun ice fox", (Look(0), Look(3)), calls=True),
        Act(5, "streamed", "scenario", None, "sea fox red"),
        Act(6, "say", "bob", None, "", (Look(4), Look(5)), calls=True),
    )


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_what_was_called_and_what_came_in_pieces(engine: Callable[[Room], Any], change: Change) -> None:
    found = pair(engine, calling(), change, RunConfig(leakage="enforce", max_tokens=3))
    assert (found.apart, found.entries) == ("", 4)
    assert pair(engine, calling(), change, RunConfig(leakage="audit", max_tokens=3)).apart


# -- the changes -----------------------------------------------------------------------------------------------


def test_a_change_changes_what_is_hidden_and_nothing_else() -> None:
    acts = (*told(), Act(4, "release", "alice", None, "", (), of=2), Act(5, "tell", "alice", ("alice",), "sea sea"))
    assert hidden(acts, "bob") == {0, 5}
    for change in CHANGES:
        there = {act.number: act for act in changed(acts, "bob", change)}
        assert all(there[act.number] == act for act in acts if act.number not in (0, 5))
        assert there[0].words != acts[0].words
        assert 5 not in there if change == "absent" else there[5].words != acts[5].words


def test_what_somebody_releases_is_no_secret() -> None:
    plan = Act(2, "say", "alice", ("alice",), "red")
    acts = (*told()[:2], plan, Act(3, "release", "alice", ("alice", "carol"), "", of=2))
    assert 2 in hidden(acts, "bob")
    assert 2 not in hidden((*acts, Act(4, "release", "alice", None, "", of=3)), "bob")

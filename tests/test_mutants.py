"""Deliberately broken code does not pass the tests. See `tests/mutants`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from agentcho.records.environment import digest_unit, tree_digest
from tests.mutants.mutant import Mutant
from tests.mutants.run import ROOT, Fate, copy, fate, once, report
from tests.mutants.table import ENFORCEMENT, MUTANTS


def each(mutants: Iterable[Mutant]) -> pytest.MarkDecorator:
    """One test for each mutant."""
    return pytest.mark.parametrize("mutant", mutants, ids=lambda mutant: mutant.name.replace(" ", "-"))


def first_of_each_file(mutants: Iterable[Mutant]) -> Iterator[Mutant]:
    """The first mutant of each file."""
    return iter({mutant.file: mutant for mutant in reversed(list(mutants))}.values())


@each(MUTANTS)
def test_what_a_mutant_breaks_is_there_exactly_once(mutant: Mutant) -> None:
    assert once(mutant)
    assert mutant.old != mutant.new
    compile((ROOT / mutant.file).read_text().replace(mutant.old, mutant.new), mutant.file, "exec")


def test_a_result_holds_digests_of_the_code_that_mutants_break() -> None:
    files = {mutant.file for mutant in MUTANTS}
    units = {digest_unit(Path(file)) for file in files}
    named = str(report([Fate(mutant, None, 1.0) for mutant in MUTANTS], {})["trees"]).split()
    assert named == [f"{name}:{tree_digest(ROOT, name)}" for name in sorted(units)]
    assert not any(each.endswith(":gone") for each in named)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The copy of the code that is mutated."""
    with copy() as folder:
        yield folder


@pytest.mark.slow
@each(list(first_of_each_file(ENFORCEMENT)))
def test_a_mutant_of_enforcement_is_killed(mutant: Mutant, folder: Path) -> None:
    """One mutant of each enforcing file; `make mutants`, and so `make nightly`, runs all."""
    assert fate(mutant, folder).killer is not None

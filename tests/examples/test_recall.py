"""The example in which a recorder is asked what others said: its words, its layouts, and what it could leak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcho.audit.audit import audit_run
from agentcho.records.record import SavedRun
from tests.examples.test_gallery import played


def recalled(folder: Path, *, leakage: str = "enforce", **options: Any) -> SavedRun:
    return played("recall", folder, given=options, leakage=leakage)


@pytest.mark.parametrize("layout", ["serial", "parallel"])
def test_statements_stand_where_the_layout_says(layout: str, tmp_path: Path) -> None:
    run = recalled(tmp_path, n=3, layout=layout)
    (entries,) = run.games().values()
    asked = [entry for entry in entries if entry.message.kind == "decode" and entry.message.author == "rec"]
    assert len(asked) == 3
    for entry in asked:
        assert entry.own is not None
        _, *statements = entry.own.receipt.context
        assert len(statements) == 3, "it reads no other answer"
        assert len({offset for _, offset, _ in statements}) == (1 if layout == "parallel" else 3)


def test_halves_have_no_name_and_no_town_in_common(tmp_path: Path) -> None:
    """With twelve witnesses a game uses all names and all towns of its half."""
    statements = [
        {entry.message.text for entry in entries if " lives in " in entry.message.text}
        for half in (1, 2)
        for entries in recalled(tmp_path / f"{half}", n=12, half=half).games().values()
    ]
    for column in (0, -1):
        one, two = ({each.split()[column] for each in said} for said in statements)
        assert len(one) == len(two) == 12
        assert not one & two


@pytest.mark.parametrize(("leakage", "leaks"), [("audit", True), ("enforce", False)])
def test_a_friends_town_is_in_the_encodings_of_its_author_alone(leakage: str, leaks: bool, tmp_path: Path) -> None:
    found = audit_run(recalled(tmp_path, n=2, leakage=leakage)).findings
    assert any(finding.level == "error" for finding in found) is leaks

"""The results of playing all families: the committed file, the page made from it, and, nightly, the games."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentcho.integrations.textarena.names import REFUSED
from tools.pages import textarena as tables

from .families import FAMILIES
from .sweep import ENDLESS, RESULTS, played, right

PAGE = RESULTS.parents[1] / "how-to" / "textarena.md"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(RESULTS.read_text())
    return whole


def test_all_that_run_offline_were_played_to_an_end_twice_the_same_and_nothing_leaked(found: dict[str, Any]) -> None:
    assert {row["family"]: row["players"] for row in found["played"]} == FAMILIES
    assert len(FAMILIES) == 49
    assert all(right(row) for row in found["played"])
    assert all(row["same"] for row in found["played"])


def test_those_that_are_refused_fail_where_textarena_plays_them_alone(found: dict[str, Any]) -> None:
    assert {row["family"]: row["why"] for row in found["refused"]} == dict(REFUSED)
    assert "it ran" not in {row["seen"] for row in found["refused"]}
    assert len(REFUSED) == 16


def test_the_page_has_the_tables_of_the_file() -> None:
    text = PAGE.read_text()
    assert tables.page(RESULTS.parent, text) == text, "run python -m tools.pages.textarena docs/results " + str(PAGE)


@pytest.mark.clients
@pytest.mark.nightly
@pytest.mark.usefixtures("textarena")
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_family_is_played_at_random_to_its_end(kind: str, tmp_path: Path) -> None:
    first, second = (played(kind, tmp_path / name) for name in ("a", "b"))
    assert first == second
    assert right(first), first
    assert kind in ENDLESS or not first["ended"].startswith("given up")

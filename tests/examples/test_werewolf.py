"""The werewolf example: who is told what, and that its page shows this."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcho import RunConfig
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.message import audience
from agentcho.records.record import SavedRun, find
from agentcho.viewer.page import page
from agentcho.viewer.page_content import page_content

EXAMPLE = Path(__file__).parents[2] / "examples" / "werewolf.py"


@pytest.fixture
def run(tmp_path: Path) -> SavedRun:
    scenario = library.scenario(str(EXAMPLE))
    played = play(RunRequest(scenario(), RunConfig(model="fake", games=1, seed=3), out=tmp_path))
    assert not played.errors
    return find("last", tmp_path)


def test_roles_and_nights_are_secret_and_days_are_not(run: SavedRun) -> None:
    (entries,) = run.games().values()
    wolves = {name for name, role in run.info.cast.items() if role == "werewolf"}
    assert len(run.info.cast) == 9
    assert len(wolves) == 2
    for message in (entry.message for entry in entries):
        if message.role == "system":
            assert message.audience == audience([message.author or ""])
        if message.text.startswith("Werewolves, open"):
            assert message.audience.members is not None
            assert message.audience.members <= wolves
    assert {entry.message.audience.members for entry in entries} >= {None, frozenset(wolves)}
    (over,) = run.finished().values()
    assert over.outcome is not None
    assert over.outcome["winner"] in ("villagers", "werewolves")
    whole = page(page_content([run]))
    assert all(name in whole for name in run.info.cast)

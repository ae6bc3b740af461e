"""Merging parts of a run with people and tool calls: every file in their folders is merged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import agentcho
from agentcho import Agent, Game, RunConfig, Scenario
from agentcho.audit import audit_run
from agentcho.errors import CallFailed
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.run_shards import merge
from agentcho.games.runs.runtime import play
from agentcho.records.names import INFO, LINES
from agentcho.records.record import SavedRun
from agentcho.testing import FakeEngine

from .said import Scripted

CONFIG = RunConfig(model="fake", games=2)


@agentcho.tool(audience="nobody")
def look() -> str:
    """Look."""
    return "seen"


class Talk(Scenario):
    """Ann looks, Bob speaks."""

    name = "talk"

    class Outcome(Scenario.Outcome):
        bob: str

    async def play(self, game: Game) -> Scenario.Outcome:
        ann, bob = (game.cast(Agent, name, audience="everyone") for name in ("ann", "bob"))
        await ann.say(tools=[look], tool_choice="required", max_calls=1)
        return self.Outcome(bob=(await bob.say()).text)


class Breaks(FakeEngine):
    """Fails when a person's words are submitted."""

    def submit(self, calls: Any, *more: Any) -> Any:
        if any(getattr(call, "name", None) == "bob" and getattr(call, "forced", None) for call in calls):
            raise CallFailed("the device is gone")
        return super().submit(calls, *more)


def parts(folder: Path) -> list[SavedRun]:
    """Two parts; the second failed after its person had spoken."""
    for part, engine, word in (("1/2", FakeEngine(), "one"), ("2/2", Breaks(), "typed once")):
        config, bob = CONFIG.model_copy(update={"part": part}), Scripted([word])
        play(RunRequest(Talk(), config, engine=engine, people={"bob": bob}, out=folder))
    return [*map(SavedRun, sorted(folder.iterdir()))]


def test_every_file_of_the_parts_is_in_the_whole_which_goes_on_and_asks_nobody_twice(tmp_path: Path) -> None:
    found = parts(tmp_path / "parts")
    assert {file.name for part in found for file in part.path.iterdir()} == {INFO, *LINES}
    merged = merge(found, tmp_path / "whole", missing="accept")
    for name in LINES:
        assert (merged.path / name).read_bytes() == b"".join((part.path / name).read_bytes() for part in found), name
    assert merged.typed() == {0: {"bob.0": "one"}, 1: {"bob.0": "typed once"}}
    lost = [audit_run(part).subject.lost for part in (*found, merged)]
    assert [*lost[0], *(each for each in lost[1] if "call" in each)] == [each for each in lost[2] if "call" in each]
    bob = Scripted()
    again = play(RunRequest.resuming(merged, Talk(), engine=FakeEngine(), people={"bob": bob}))
    assert ([*again.errors], bob.asked) == ([], [])
    assert SavedRun(merged.path).finished()[1].outcome == {"bob": "typed once"}
    assert not audit_run(SavedRun(merged.path)).subject.lost


def test_files_of_records_are_named_in_one_place() -> None:
    names = re.compile(rf"[\"'/]({'|'.join(map(re.escape, (INFO, *LINES)))})[\"']")
    root = Path(agentcho.__file__).parent
    rooms = [
        file
        for room in ("records", "games", "audit", "viewer", "cluster", "results")
        for file in (root / room).rglob("*.py")
    ]
    assert [file.name for file in rooms if names.search(file.read_text())] == ["names.py"]

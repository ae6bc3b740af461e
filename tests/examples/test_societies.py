"""The examples of races, streams, memories and lockstep work as they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentcho import RunConfig, Scenario
from agentcho.events import Ended, Event
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.records.transcript import TranscriptEntry

EXAMPLES = Path(__file__).parents[2] / "examples"


def played(name: str) -> tuple[dict[str, Any], list[TranscriptEntry]]:
    """The outcome of an example on the fake engine, and its transcript."""
    events = list[Event]()
    scenario: Scenario = library.scenario(str(EXAMPLES / f"{name}.py"))()
    result = play(RunRequest(scenario, RunConfig(model="fake", seed=1), sink=events.append))
    [over] = result.games
    assert over.ended is None, over.error
    assert over.outcome is not None
    return over.outcome, [event.entry for event in events if isinstance(event, Ended)]


def test_a_race() -> None:
    outcome, entries = played("race")
    whole = {entry.message.author for entry in entries if entry.ended is None and entry.message.author}
    given_up = {entry.message.author for entry in entries if entry.ended == "cancelled"}
    assert outcome["winner"] in whole
    assert whole | given_up == {"ann", "bob", "carol"}
    assert len(whole) < 3 or not given_up


def test_a_stream() -> None:
    outcome, entries = played("stream")
    page, said = (entry.message for entry in entries)
    assert len(page.text) > 1000
    assert page.audience.members == frozenset({"reader"})
    assert said.parents == (page.id,)
    assert outcome["summary"] == said.text


def test_memories() -> None:
    _, entries = played("remember")
    said = {entry.message.id: entry.message for entry in entries}
    assert not any(entry.act.tainted_by for entry in entries)
    recent = [m for m in said.values() if m.author == "recent" and m.kind == "decode"]
    assert [len(m.parents) for m in recent] == [1, 4, 4, 4]
    asked = [m for m in said.values() if m.author == "searching" and m.kind == "decode"]
    assert all(len(m.parents) <= 3 for m in asked)
    assert said[asked[-1].parents[0]].text == "Where is the key?"
    summing = [m for m in said.values() if m.author == "summing" and m.kind == "decode"]
    summaries = {m.id for m in summing if m.audience.members == frozenset({"summing"})}
    assert summaries
    assert summing[-1].parents[0] in summaries
    assert max(len(m.parents) for m in summing) <= 9 < len(said) // 2


def test_a_meeting_in_lockstep() -> None:
    outcome, entries = played("lockstep")
    assert outcome["order"] == ["ann", "bob", "ann", "bob"]
    assert len({entry.message.id for entry in entries if entry.message.audience.members is not None}) == 8

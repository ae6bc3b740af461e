"""Names are checked in one place, whether an agent joins a game or appears in a trace or in a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentcho import Agent, RunConfig
from agentcho.audit import audit_run, audit_traces
from agentcho.errors import AudienceError, RecordBroken
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.message import agent_name, audience, cast_name, natural
from agentcho.records.record import SavedRun
from agentcho.records.trace import workflow
from tests.choreography.stage import Scripted

NO_NAMES = [
    *("", " ", "bob ", "\tbob", "bob\n", "b\u2028b"),
    *("scenario", "Scenario", "SCENARIO", "\uff33cenario", "everyone", "Everyone", "\uff25VERYONE"),
    *("bo\x1bb", "bob\x07", "bo\u202eb", "bob\u200b", "\x9bbob", "\ud800"),
    *("\u2800", "bob\u3164", "bo\u034fb", "bob\ufe0f"),
]
NAMES = ["bob", "Bob", "bob 2", "Дмитрий", "小明", "agent.7/x", "o'neil", "scenarios", "everyone else"]


@pytest.mark.parametrize("word", [*NO_NAMES, 1, None, b"bob"])
def test_what_names_nobody_is_refused(word: Any) -> None:
    for check in (agent_name, cast_name, lambda each: audience([each])):
        with pytest.raises(AudienceError) as refused:
            check(word)
        assert str(refused.value).isprintable()


@pytest.mark.parametrize("word", NAMES)
def test_a_name_of_any_script_is_one(word: str) -> None:
    assert agent_name(word) == word


def test_names_stand_as_people_count() -> None:
    names = ["agent2", "agent", "agent10", "agent01", "agent1", "b", "agent1x2", "agent1x10", "agent\u0662", "9", "10"]
    ordered = [
        "9",
        "10",
        "agent",
        "agent01",
        "agent1",
        "agent1x2",
        "agent1x10",
        "agent2",
        "agent10",
        "agent\u0662",
        "b",
    ]
    for start in range(len(names)):
        assert sorted(names[start:] + names[:start], key=natural) == ordered
    assert sorted(["a", None, ""], key=natural)[-1] == "a"
    assert natural("9" * 10_000) < natural("1" + "0" * 10_000)


def line(who: str) -> dict[str, Any]:
    """A workflow in which somebody reads a message of another's audience."""
    said = {"id": "a.0", "kind": "decode", "role": "assistant", "author": "a", "audience": ["a"], "parents": []}
    read = {"id": "b.0", "kind": "decode", "role": "assistant", "author": who, "audience": [who], "parents": ["a.0"]}
    words = {"text": "x", "header": ""}
    return {
        "format": "agentcho-trace/1",
        "workflow": "w",
        "id": "w0",
        "agents": ["a", who],
        "messages": [said | words, read | words],
    }


@pytest.mark.parametrize("word", NO_NAMES)
def test_a_trace_names_nobody_so(word: str) -> None:
    with pytest.raises(RecordBroken, match="name"):
        workflow(line(word))


@pytest.mark.parametrize("word", NAMES)
def test_a_reader_of_any_name_is_judged(word: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps(line(word)))
    report = audit_traces(tmp_path / "t.jsonl", "choreographed", "audit")
    assert [(row.reader, row.verdict) for row in report.readers if row.readings] == [(word, "direct")]


async def _talk(game: Any) -> None:
    alice, bob = game.cast(Agent, "alice"), game.cast(Agent, "bob")
    await alice.say(to="bob")
    await bob.say(to="alice")


def _rename(path: Path, old: str, new: str, files: tuple[str, ...]) -> None:
    for file in files:
        text = (path / file).read_text()
        (path / file).write_text(text.replace(json.dumps(old), json.dumps(new)))


@pytest.mark.slow
@pytest.mark.parametrize("word", NO_NAMES)
@pytest.mark.parametrize("file", ["run.json", "transcript.jsonl"])
def test_a_record_names_nobody_so(word: str, file: str, tmp_path: Path) -> None:
    record = play(RunRequest(Scripted(_talk), RunConfig(model="fake"), out=tmp_path)).record
    assert record is not None
    _rename(record, "bob", word, (file,))
    with pytest.raises(RecordBroken, match="name"):
        SavedRun(record).entries()
    with pytest.raises(RecordBroken, match="name"):
        audit_run(SavedRun(record))


def test_a_game_says_what_there_is_to_name(tmp_path: Path) -> None:
    with pytest.raises(AudienceError, match="alice, bob"):
        audience(["everyone"], ["alice", "bob"])

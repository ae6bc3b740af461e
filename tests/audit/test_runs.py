"""Recorded runs: what is audited, whose key seals it, and that no damage makes a run clean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcho.audit import AuditReport, audit_run
from agentcho.audit.report import Finding
from agentcho.audit.wording import headline
from agentcho.config import Limits, RunConfig
from agentcho.records.calls import CallLine, CallLines
from agentcho.records.names import CALLS
from agentcho.records.record import GameOver, RunRecord, SavedRun, write_info

from .transcripts import Talk, chain


def found(report: AuditReport, rule: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == rule]


def clean(game: int = 0) -> Talk:
    talk = Talk(game)
    talk.say("bob.0", "everyone", [talk.say("alice.0", "everyone")])
    return talk


def recorded(folder: Path, *talks: Talk, games: int = 1, over: int = 1, **config: Any) -> SavedRun:
    """A run's record on disk, with an outcome for the first `over` games."""
    options = {"secret": "the colour of the moon"}
    engine = {"model": "abc", "tokenizer": "def"}
    with RunRecord.create(folder, "talk", options, RunConfig(games=games, **config), engine) as record:
        record.joined("alice", "talker")
        record.joined("mute", "talker")
        for talk in talks:
            for entry in talk.entries:
                record.said(entry)
        for game in range(over):
            record.over(GameOver(game, {}, {}, None, 1.0))
    return SavedRun(record.path)


def test_plain_markers_of_any_model_are_told(tmp_path: Path) -> None:
    run = recorded(tmp_path, clean())
    engines = {"small": {"model": "s"}, "other": {"model": "o", "markers": "plain"}}
    write_info(run.path, run.info.model_copy(update={"engines": engines}))
    report = audit_run(SavedRun(run.path))
    assert [finding.level for finding in found(report, "AC010")] == ["warning"]
    assert report.subject.environment["engine small model"] == "s"
    assert not found(audit_run(recorded(tmp_path, clean())), "AC010")


@pytest.mark.parametrize("limit", Limits.model_fields)
def test_every_limit_of_a_run_is_told(limit: str, tmp_path: Path) -> None:
    report = audit_run(recorded(tmp_path, clean(), limits=Limits(**{limit: 40})))
    [finding] = found(report, "AC006")
    assert finding.message.endswith(f": {limit} 40")
    assert not found(audit_run(recorded(tmp_path, clean())), "AC006")


def test_a_whole_run_is_audited_from_its_record(tmp_path: Path) -> None:
    report = audit_run(recorded(tmp_path, chain(), leakage="enforce", seed=5))
    subject = report.subject
    assert (subject.scenario, subject.leakage, subject.planned, subject.games, subject.lost) == (
        "talk",
        "enforce",
        False,
        1,
        (),
    )
    assert subject.agents == ("alice", "bob", "carol", "mute")
    assert (subject.environment["engine model"], subject.environment["seed"]) == ("abc", "5")
    assert subject.reproduce.startswith("agentcho audit ")
    assert "colour of the moon" not in report.model_dump_json()
    assert {f.rule for f in report.findings} == {"AC002", "AC005", "AC007"}
    assert report.exit_code("error") == 1


def test_digests_are_of_the_run_and_of_no_other(tmp_path: Path) -> None:
    run, other = recorded(tmp_path, chain()), recorded(tmp_path, chain())
    assert audit_run(run).drawn == audit_run(run).drawn != audit_run(other).drawn
    assert audit_run(run, key=b"k").drawn == audit_run(other, key=b"k").drawn != audit_run(run).drawn
    assert run.info.key not in audit_run(run).model_dump_json()
    file = run.path / "run.json"
    file.write_text(file.read_text().replace(run.info.key, ""))
    keyless = SavedRun(run.path)
    assert audit_run(keyless).drawn != audit_run(keyless).drawn, "no key that anybody could know"


def test_games_without_an_outcome_are_lost_and_their_edges_count(tmp_path: Path) -> None:
    report = audit_run(recorded(tmp_path, clean(0), chain(1), games=3, over=1))
    assert report.subject.lost == ("game 1 has no outcome", "game 2 has no outcome")
    assert [f.games for f in found(report, "AC002")] == [1, 1]
    many = audit_run(recorded(tmp_path, clean(0), games=9))
    told = [reason for reason in many.reasons if reason.startswith("not whole")]
    assert (len(many.subject.lost), len(told), told[-1]) == (8, 4, "not whole: 5 more")
    assert headline(many).sentence == "not whole: 8 games have no outcome"
    report = audit_run(recorded(tmp_path, clean(0), games=2, over=2))
    assert headline(report).sentence == "not whole: game 1 has an outcome and no message"
    assert (report.subject.lost, report.conclusion) == (("game 1 has an outcome and no message",), "inconclusive")


def again(talk: Talk, attempt: int) -> Talk:
    """The same lines in a later attempt: encodings are numbered from one again."""
    talk.entries = [entry._replace(attempt=attempt) for entry in talk.entries]
    return talk


@pytest.mark.parametrize("leaking", [1, 2, 3])
def test_of_several_attempts_each_is_judged_and_the_one_that_leaks_is_drawn(tmp_path: Path, leaking: int) -> None:
    talks = [again(chain() if attempt == leaking else clean(), attempt) for attempt in (1, 2, 3)]
    run = recorded(tmp_path, *talks)
    assert run.games()[0] == talks[-1].entries, "who plays on reads the last"
    report = audit_run(run)
    assert (report.conclusion, report.exit_code("error"), report.subject.games) == ("findings", 1, 1)
    [leak] = found(report, "AC002")[:1]
    assert (leak.owner, leak.games) == ("alice", 1)
    assert {edge.message for edge in report.edges} == {"alice.1", "bob.0"}
    assert report.clean_edges == 1 + 2
    assert [said.id for said in report.drawn] == [entry.message.id for entry in talks[leaking - 1].entries]


@pytest.mark.parametrize("odd", [1, 2])
def test_what_nobody_can_account_for_in_one_attempt_is_not_hidden_by_another(tmp_path: Path, odd: int) -> None:
    """The damaged encoding has the number of one that is read, and clean, in the other attempt."""
    damaged, whole = again(clean(), odd), again(clean(), 3 - odd)
    damaged.forge("alice.0", cone=frozenset())
    damaged.drop("bob.0")
    report = audit_run(recorded(tmp_path, *sorted([damaged, whole], key=lambda talk: talk.entries[0].attempt)))
    assert [finding.rule for finding in report.findings if finding.level == "error"] == ["AC004"]
    assert report.conclusion != "clean"


@pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
def test_a_run_that_did_not_end_well_is_inconclusive(tmp_path: Path, status: str) -> None:
    run = recorded(tmp_path, clean())
    file = run.path / "run.json"
    file.write_text(file.read_text().replace('"done"', f'"{status}"'))
    report = audit_run(SavedRun(run.path))
    shown = "died" if status == "running" else status
    assert (report.subject.lost, report.exit_code("error")) == ((f"the run's status is {shown}",), 3)


def test_a_torn_transcript_is_never_clean_at_any_byte(tmp_path: Path) -> None:
    talk = clean()
    talk.say("alice.1", "everyone", [2])
    run = recorded(tmp_path, talk)
    file = run.path / "transcript.jsonl"
    whole = file.read_bytes()
    assert audit_run(run).exit_code("error") == 0
    for length in range(0, len(whole), 37):
        file.write_bytes(whole[:length])
        assert audit_run(run).exit_code("error") in {1, 3}, length
    for name in ("transcript.jsonl", "outcomes.jsonl"):
        file.write_bytes(whole)
        (run.path / name).unlink()
        assert f"there is no {name}" in audit_run(run).subject.lost


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_call_that_was_begun_and_has_no_result_is_never_clean(tmp_path: Path, idempotent: bool) -> None:
    run = recorded(tmp_path, clean())
    assert audit_run(run).conclusion == "clean"
    lines = CallLines(run.path / CALLS)
    lines.write(CallLine(game=0, call="alice.0", tool="pay", idempotent=idempotent))
    lines.close()
    report = audit_run(run)
    assert (report.conclusion, report.subject.lost) == (
        "inconclusive",
        ("call alice.0 of game 0 was begun, and has no result",),
    )

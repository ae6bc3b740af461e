"""The record of a run: after a kill, when opened, and when exported."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentcho.config import RunConfig
from agentcho.errors import CannotWrite, RecordBroken, RecordError, RecordNotFound
from agentcho.message import EVERYONE, Audience
from agentcho.protocol.call import ContextEntry, Receipt
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.files import LineFile
from agentcho.records.record import GameOver, RunRecord, SavedRun, find, runs
from agentcho.records.transcript import MessageUsage, TranscriptEntry, read_transcript
from tests.said import message as said


def entry(number: int, game: int = 0, author: str = "alice") -> TranscriptEntry:
    """A message that reads the one before it."""
    before = (f"{author}.{number - 1}",) if number else ()
    message = said(
        id=f"{author}.{number}", game=game, kind="decode", role="assistant", author=author,
        audience=EVERYONE if number % 2 else Audience(frozenset({author})), parents=before,
        header="To Bob: ", text=f"“naïve”\n{number}", tokens=(1, 2, 3 + number), content=(1, 3),
        sampled=(1, 3), name=author, stopped="stop",
    )  # fmt: skip
    context = tuple(ContextEntry(number - 1, 1, 3) for _ in before)
    made = EncodingRecord(number, message.id, author, "author", Receipt(context, 4, True), frozenset({message.id}))
    return TranscriptEntry(message, number, (made,), (), MessageUsage(3, 4, 0.25, 0.5))


def begin(folder: Path) -> RunRecord:
    """A record of a run that has just begun."""
    return RunRecord.create(folder, "talk", {"first": "bob"}, RunConfig(seed=3), {"tokenizer": "abc"})


def test_a_record_reads_back_as_written(tmp_path: Path) -> None:
    said = [entry(0), entry(1), entry(0, game=1)]
    with begin(tmp_path) as record:
        record.joined("alice", "prisoner")
        for each in said:
            record.said(each)
        record.over(GameOver(1, {"alice": "DEFECT"}, {"alice": 5.5, "bob": 2**60 + 1}, None, 1.5))
    saved = find("last", tmp_path)
    assert saved.entries() == said
    assert saved.games() == {0: said[:2], 1: said[2:]}
    assert saved.finished()[1].outcome == {"alice": "DEFECT"}
    assert saved.finished()[1].score == {"alice": 5.5, "bob": 2**60 + 1}
    assert type(saved.finished()[1].score["bob"]) is int
    assert (saved.info.status, saved.info.cast, saved.info.config.seed) == ("done", {"alice": "prisoner"}, 3)
    assert saved.info.versions["agentcho"]


def test_the_last_of_two_runs_of_one_second_is_the_one_that_was_played_last(tmp_path: Path) -> None:
    for number, name in enumerate(("20261128-070100-script", "20261128-070100-debate", "20261128-070059-zebra")):
        with begin(tmp_path) as record:
            pass
        record.path.rename(tmp_path / name)
        os.utime(tmp_path / name, ns=(number, number))
    assert find("last", tmp_path).path.name == "20261128-070100-debate"
    with pytest.raises(RecordNotFound):
        find("last", tmp_path / "nowhere")


@pytest.mark.slow
def test_a_kill_at_any_byte_loses_at_most_the_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)
    path = tmp_path / "transcript.jsonl"
    said = [entry(0), entry(1), entry(2)]
    with LineFile(path) as lines:
        for each in said:
            lines.append(each.to_json())
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        kept = list(read_transcript(path))
        assert kept == said[: whole[:length].count(b"\n")]
        with LineFile(path) as lines:
            lines.append(entry(9).to_json())
        assert list(read_transcript(path)) == [*kept, entry(9)]


def test_a_run_that_was_killed_opens_as_running(tmp_path: Path) -> None:
    record = begin(tmp_path)
    record.said(entry(0))
    (record.path / "run.json.new").write_text("{")
    saved = SavedRun(record.path)
    assert (saved.info.status, saved.info.ended, len(saved.entries())) == ("running", None, 1)
    assert len(saved.export()) == 1
    record.close("interrupted")


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt, "interrupted"), (ValueError, "failed"), (SystemExit, "interrupted")]
)
def test_the_way_out_is_the_status(tmp_path: Path, error: type[BaseException], status: str) -> None:
    with pytest.raises(error), begin(tmp_path) as record:  # noqa: PT012
        record.said(entry(0))
        raise error
    assert SavedRun(record.path).info.status == status
    assert len(SavedRun(record.path).entries()) == 1


def test_a_run_that_was_renamed_is_the_last_only_where_there_is_no_other(tmp_path: Path) -> None:
    for name, started in (("paper", "2026-11-28T07:01:01+00:00"), ("best", "2026-11-28T07:01:02+00:00")):
        with begin(tmp_path) as record:
            pass
        file = record.path.rename(tmp_path / name) / "run.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"started": started}))
    assert find("last", tmp_path).path.name == "best"
    with begin(tmp_path) as record:
        pass
    assert find("last", tmp_path).path == record.path


def test_ids_are_never_used_twice_and_are_found_by_how_they_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)  # no name is not the folder in which the command runs
    names = []
    for _ in range(3):
        with begin(tmp_path) as record:
            names.append(record.path.name)
    assert len(set(names)) == 3
    assert [run.path.name for run in runs(tmp_path)] == sorted(names)
    assert find(names[2], tmp_path).path == tmp_path / names[2] == find(str(tmp_path / names[2]), Path()).path
    for missing in ("nobody", ""):
        with pytest.raises(RecordNotFound, match="that folder does not exist; `agentcho run SCENARIO` records a run"):
            find(missing, tmp_path / "nowhere")
        with pytest.raises(RecordNotFound, match=f"no run '{missing}' in .*ls --runs"):
            find(missing, tmp_path)
    with pytest.raises(RecordNotFound, match=f"3 runs in .* begin so: {', '.join(sorted(names))}; give more of the id"):
        find("2", tmp_path)
    monkeypatch.chdir(tmp_path / names[0])
    with pytest.raises(RecordNotFound):
        find("", tmp_path)


def test_damage_elsewhere_than_at_the_end_is_told_with_its_line(tmp_path: Path) -> None:
    with begin(tmp_path) as record:
        record.said(entry(0))
        record.said(entry(1))
    path = record.path / "transcript.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"kind"', b'"kin"', 1))
    with pytest.raises(RecordBroken, match=r"transcript\.jsonl:1: .*kind"):
        SavedRun(record.path).entries()
    (record.path / "outcomes.jsonl").write_text('{"game": 0}\n')
    with pytest.raises(RecordBroken, match=r"outcomes\.jsonl:1"):
        SavedRun(record.path).finished()
    (record.path / "run.json").write_text(json.dumps({"id": "x"}))
    with pytest.raises(RecordBroken, match=r"run\.json:1: scenario"):
        SavedRun(record.path)


def test_a_game_exports_to_a_trace_with_its_tokens(tmp_path: Path) -> None:
    with begin(tmp_path) as record:
        record.said(entry(0))
        record.said(entry(1))
        record.over(GameOver(0, None, {}, "limit: tokens", 1.0))
    (trace,) = SavedRun(record.path).export()
    assert trace.id == f"{record.path.name}-0"
    assert trace.agents == ("alice",)
    assert trace.meta["ended"] == "limit: tokens"
    second = trace.messages[1]
    assert (second.parents, second.audience, second.header) == (("alice.0",), "everyone", "To Bob: ")
    assert (second.tokens, second.tokenizer, second.text) == ((1, 2, 4), "abc", "“naïve”\n1")


def test_what_another_process_has_continued_is_read_again_first(tmp_path: Path) -> None:
    with begin(tmp_path) as record:
        record.said(entry(0))
    read = SavedRun(record.path)
    with RunRecord.go_on(SavedRun(record.path), {}) as other:
        other.said(entry(1))
    with pytest.raises(RecordError, match="was continued by another process"):
        RunRecord.go_on(read, {})
    RunRecord.go_on(SavedRun(record.path), {}).close("done")
    assert len(SavedRun(record.path).info.resumed) == 2


def test_a_record_that_cannot_be_opened_is_left_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with begin(tmp_path) as record:
        record.said(entry(0))
    (record.path / "run.json.new").mkdir()
    for _ in range(2):
        with pytest.raises(CannotWrite):
            RunRecord.go_on(SavedRun(record.path), {})
    (record.path / "run.json.new").rmdir()
    with monkeypatch.context() as patch:
        patch.setattr(
            "agentcho.records.writer_lock.os.ftruncate", lambda *_: (_ for _ in ()).throw(OSError(28, "No space"))
        )
        with pytest.raises(CannotWrite):
            RunRecord.go_on(SavedRun(record.path), {})
    RunRecord.go_on(SavedRun(record.path), {}).close("done")
    assert SavedRun(record.path).status == "done"


@pytest.mark.parametrize("name", ["../../up", "a/b", "\x00", "x" * 500, "ümlaut und Leerzeichen", "."])
def test_a_folder_is_made_of_any_name(tmp_path: Path, name: str) -> None:
    with RunRecord.create(tmp_path, name, {}, RunConfig(), {}) as record:
        pass
    assert record.path.parent == tmp_path
    assert SavedRun(record.path).info.scenario == name

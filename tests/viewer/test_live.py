"""The live page of a run: who may see it, and that it follows the record until the run ends or is killed."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio
import httpx
import pytest

from agentcho.errors import ConfigError, RecordNotFound
from agentcho.records.record import RunRecord, SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.viewer.costs import GameCosts, game_costs
from agentcho.viewer.live import LiveRecords, application, serve
from agentcho.viewer.under_way import UnderWay

from ..audit.browser import visited
from .pages import recorded
from .test_page import canaries
from .test_prompts import islands, played

COMMAND = (sys.executable, "-c", "from agentcho.cli import main; main()", "view", "--serve")
WRITER = """
import signal, sys
from pathlib import Path
from agentcho import RunConfig
from agentcho.records.record import RunRecord
from tests.viewer.test_page import canaries
with RunRecord.create(Path(sys.argv[1]), "talk", {}, RunConfig(games=1), {"tokenizer": "t"}) as record:
    record.joined("bob", "agent")
    for entry in canaries().entries:
        record.said(entry)
        print("said", flush=True)
        sys.stdin.readline()
"""


def asked(source: LiveRecords, *paths: str, host: str = "127.0.0.1:80", method: str = "GET") -> list[httpx.Response]:
    """The responses of the live application, whose token is "token"."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(application(source, "token", 80))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:80") as client:
            return [await client.request(method, path, headers={"host": host}) for path in paths]

    return anyio.run(ask)


def test_only_who_has_the_whole_address_sees_it(tmp_path: Path) -> None:
    run = recorded(tmp_path, canaries().entries, bob="agent")
    source = LiveRecords(str(run.path), tmp_path)
    page, data = asked(source, "/token/", "/token/data")
    assert (page.status_code, data.status_code) == (200, 200)
    assert "canary" not in page.text
    assert "canary5" in data.text
    assert "connect-src 'self'" in page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    for answer in (page, data):
        assert (answer.headers["referrer-policy"], answer.headers["cache-control"]) == ("no-referrer", "no-store")
    others = asked(source, "/", "/data", "/tokem/", "/token/run.json", "/token/data/x", "/docs")
    assert {answer.status_code for answer in others} == {404}
    assert {answer.status_code for answer in asked(source, "/token/", "/token/data", method="POST")} == {405}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1:81", "127.0.0.1.evil.example:80", ""])
def test_a_name_of_another_site_that_points_here_is_refused(tmp_path: Path, host: str) -> None:
    source = LiveRecords(str(recorded(tmp_path, canaries().entries).path), tmp_path)
    (answer,) = asked(source, "/token/data", host=host)
    assert answer.status_code == 421
    assert "canary" not in answer.text


def test_it_tells_what_is_new_and_else_nothing(tmp_path: Path) -> None:
    run = recorded(tmp_path, canaries().entries[:2], over=False, bob="agent")
    source = LiveRecords(str(run.path), tmp_path)
    first = asked(source, "/token/data?game=0")[0].json()
    assert len(first["talk"]["messages"]) == 2
    assert first["head"]["status"] == "died"
    has = urlencode(first["versions"])
    again, other, odd = asked(source, *(f"/token/data?{has}&game={n}" for n in ("0", "7", "x")))
    assert again.status_code == other.status_code == odd.status_code == 204
    assert "talk" not in asked(source, "/token/data?game=7")[0].json()
    with RunRecord.go_on(run, {}) as record:
        record.said(canaries().entries[2])
        source._next = 0.0
        more = asked(source, f"/token/data?{has}")[0].json()
    assert len(more["talk"]["messages"]) == 3
    assert more["head"]["status"] == "running"
    (run.path / "transcript.jsonl").write_text("{}\n{}\n")
    assert asked(source, "/token/data")[0].status_code == 503


def speaking(folder: Path) -> tuple[RunRecord, LiveRecords]:
    """A run in progress: Bob has said a word, and Alice a private one."""
    run = recorded(folder, canaries().entries[:2], over=False, alice="agent", bob="agent")
    talk = canaries()
    record = RunRecord.go_on(run, {})
    for id, text in (("bob.0", "forbob7"), ("alice.1", "canary77")):
        entry = next(entry for entry in talk.entries if entry.message.id == id)
        record.begun(entry._replace(message=entry.message.saying(text="", tokens=(), content=(0, 0))))
        record.heard(0, id, 1, text)
    record.flush()
    return record, LiveRecords(str(run.path), folder)


def test_words_come_while_they_are_said_and_without_reading_the_record_again(tmp_path: Path) -> None:
    record, source = speaking(tmp_path)
    with record:
        read = source._read
        first = asked(source, "/token/words?game=0")[0].json()
        assert [(each["id"], each["by"], each["text"]) for each in first["words"]] == [
            ("bob.0", "bob", "forbob7"),
            ("alice.1", "alice", "canary77"),
        ]
        again = f"/token/words?game=0&version={first['version']}"
        assert asked(source, again, "/token/words?game=7")[0].status_code == 204
        record.heard(0, "bob.0", 2, " and more")
        record.flush()
        assert asked(source, again)[0].json()["words"][0]["text"] == "forbob7 and more"
        record.said(next(entry for entry in canaries().entries if entry.message.id == "bob.0"))
        assert [each["id"] for each in asked(source, again)[0].json()["words"]] == ["alice.1"]
        assert source._read is read


def test_words_that_are_being_said_are_shown_to_their_author_alone(tmp_path: Path) -> None:
    record, whole = speaking(tmp_path)
    with record:
        (run,) = tmp_path.glob("*/run.json")
        shown = {
            name: asked(LiveRecords(str(run.parent), tmp_path, name), "/token/words?game=0")[0]
            for name in ("bob", "alice")
        }
        assert [each["id"] for each in shown["bob"].json()["words"]] == ["bob.0"]
        assert "canary" not in shown["bob"].text
        assert [each["id"] for each in shown["alice"].json()["words"]] == ["alice.1"]
        version = shown["bob"].json()["version"]
        source = LiveRecords(str(run.parent), tmp_path, "bob")
        record.heard(0, "alice.1", 3, " canary78")
        record.flush()
        assert asked(source, f"/token/words?game=0&version={version}")[0].status_code == 204, "not even a count"
        assert len(asked(whole, "/token/words?game=0")[0].json()["words"]) == 2


def test_lines_that_are_torn_or_of_no_message_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "heard.jsonl"
    begun = {"game": 0, "id": "a.0", "kind": "decode", "role": "assistant", "author": "a", "audience": "everyone"}
    damaged = ({"id": "c.0", "audience": ["b", 3]}, {"id": "d.0", "audience": None}, {"id": ["e.0"]}, {"game": "0"})
    wrong = [json.dumps(begun | change) for change in damaged]
    lines = [
        *wrong,
        json.dumps(begun),
        "no json",
        "[" * 100_000,
        "[1]",
        '{"game": 0}',
        '{"game": 0, "id": "b.0", "text": "late"}',
    ]
    file.write_text("\n".join([*lines, '{"game": 0, "id": "a.0", "text": "so"}', '{"game": 0, "id"']))
    under_way = UnderWay(tmp_path)
    assert [each["text"] for each in under_way.words(0, 1)[1]] == ["so"]
    with file.open("a") as more:
        more.write(': "a.0", "text": " far"}\n')
    assert [each["text"] for each in under_way.words(0, 1)[1]] == ["so far"]
    (tmp_path / "transcript.jsonl").write_text('{"game": 0, "encodings": []}\n{"game": 0, "id": "a.0"}\n')
    file.write_text(file.read_text() + '{"game": 0, "id": "a.0", "text": "!"}\n')
    assert under_way.words(0, 1)[1] == []


def test_it_serves_what_one_agent_may_read(tmp_path: Path) -> None:
    run = recorded(tmp_path, canaries().entries, alice="rolecanary", bob="forbobrole")
    page, data = asked(LiveRecords(str(run.path), tmp_path, "bob"), "/token/", "/token/data")
    assert "canary" not in page.text + data.text
    assert "forbob1" in data.text


def three_games(folder: Path) -> SavedRun:
    """A run of three games that died in the third."""
    games = [entry for game in range(3) for entry in played(islands().entries, game)]
    return recorded(folder, games[:-1], over=False)


def test_costs_of_all_games_are_current_and_unchanged_games_are_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = three_games(tmp_path)
    made = list[int]()

    def counted(entries: Sequence[TranscriptEntry]) -> GameCosts | None:
        made.append(entries[0].message.game)
        return game_costs(entries)

    monkeypatch.setattr("agentcho.viewer.page_content.game_costs", counted)
    source = LiveRecords(str(run.path), tmp_path)
    first = asked(source, "/token/data?game=0")[0].json()
    assert [(each["games"], each["rows"][-1]["calls"]) for each in first["head"]["costs"]] == [(3, 5)]
    assert made == [0, 1, 2]
    with RunRecord.go_on(run, {}) as record:
        record.said(played(islands().entries, 2)[-1])
        source._next = 0.0
        more = asked(source, f"/token/data?game=0&{urlencode(first['versions'])}")[0].json()
    assert more["head"]["costs"][0]["rows"][-1]["calls"] == 6
    assert "talk" not in more, "the first game has not changed"
    assert made == [0, 1, 2, 2]


def test_a_second_game_is_answered_from_what_was_read_for_the_first(tmp_path: Path) -> None:
    run = three_games(tmp_path)
    source = LiveRecords(str(run.path), tmp_path)
    first = asked(source, "/token/data?game=0")[0].json()
    source._next = float("inf")
    head = first["versions"]["head"]
    second = asked(source, f"/token/data?game=2&head={head}")[0].json()
    assert (second["game"], "head" in second, len(second["talk"]["messages"])) == (2, False, 3)
    assert asked(source, f"/token/data?game=2&{urlencode(second['versions'])}")[0].status_code == 204


def test_games_of_two_runs_keep_their_numbers_while_the_first_run_goes_on(tmp_path: Path) -> None:
    going = recorded(tmp_path / "a", played(islands().entries, 0), over=False, alice="agent", bob="agent")
    other = recorded(tmp_path / "b", islands().entries, alice="agent", bob="agent")
    source = LiveRecords(str(going.path), tmp_path, beside=str(other.path))
    first = asked(source, "/token/data")[0].json()
    assert first["head"]["beside"]
    assert [(talk["side"], talk["number"]) for talk in first["head"]["talks"]] == [(0, 0), (1, 1)]
    with RunRecord.go_on(going, {}) as record:
        record.said(played(islands().entries, 1)[0])
        source._next = 0.0
        more = asked(source, f"/token/data?game=1&{urlencode(first['versions'])}")[0].json()
    assert [(talk["side"], talk["number"]) for talk in more["head"]["talks"]] == [(0, 0), (0, 2), (1, 1)]
    assert more["talk"]["messages"][0]["id"] == "scenario.0"


def test_of_two_runs_too_it_serves_what_one_agent_may_read_and_says_nothing_when_others_speak(tmp_path: Path) -> None:
    entries = canaries().entries
    runs = [recorded(tmp_path / each, entries, over=False, alice="rolecanary", bob="role") for each in "ab"]
    source = LiveRecords(str(runs[0].path), tmp_path, "bob", beside=str(runs[1].path))
    answers = asked(source, "/token/", "/token/data?game=0", "/token/data?game=1", "/token/words?game=1")
    assert all("canary" not in answer.text and run.info.id not in answer.text for answer in answers for run in runs)
    first, second = answers[1].json(), answers[2].json()
    assert first["head"]["costs"] == []
    assert not {"costs", "runs"} & (first["talk"].keys() | second["talk"].keys() | first["head"].keys() - {"costs"})
    with RunRecord.go_on(runs[1], {}) as record:
        source._next = 0.0
        before = asked(source, "/token/data?game=1")[0].json()["versions"]
        secret = next(entry for entry in entries if not entry.message.audience.includes("bob"))
        record.said(secret._replace(message=replace(secret.message, id="alice.99")))
        source._next = 0.0
        assert asked(source, f"/token/data?game=1&{urlencode(before)}")[0].status_code == 204


def test_bad_input_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RecordNotFound):
        LiveRecords("last", tmp_path)
    source = LiveRecords(str(recorded(tmp_path, canaries().entries).path), tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port}: .*; give another --port, or 0"):
            serve(source, port, print)


@contextmanager
def served(*options: str) -> Iterator[str]:
    """The address of a server in its own process."""
    with subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield re.findall(r"http://\S+/", process.stdout.readline())[0]
        finally:
            process.terminate()


def told(address: str) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(f"{address}data").raise_for_status().json()
    return answer


@pytest.mark.server
def test_it_follows_a_run_that_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdout.readline()
        with served("last", "--out", str(tmp_path)) as address:
            assert urlsplit(address).hostname == "127.0.0.1"
            before = told(address)
            assert (len(before["talk"]["messages"]), before["head"]["status"]) == (1, "running")
            writer.stdin.write("\n")
            writer.stdin.flush()
            writer.stdout.readline()
            assert len(told(address)["talk"]["messages"]) == 2
            writer.kill()
            writer.wait()
            after = told(address)
            assert (len(after["talk"]["messages"]), after["head"]["status"]) == (2, "died")


@pytest.mark.browser
def test_a_browser_shows_it(tmp_path: Path) -> None:
    run = recorded(tmp_path, canaries().entries, over=False, bob="agent")
    with served(str(run.path)) as address:
        shown = visited(address, tmp_path, "--window-size=1280,2000")
    assert shown.console == []
    assert shown.told("rows") == shown.told("messages") == len(canaries().entries)
    assert 'class="status died"' in shown.dom


@pytest.mark.browser
@pytest.mark.parametrize("eyes", [(), ("--eyes", "bob")])
def test_a_browser_shows_what_is_being_said(tmp_path: Path, eyes: tuple[str, ...]) -> None:
    record, _ = speaking(tmp_path)
    with record, served(str(record.path), *eyes) as address:
        shown = visited(address, tmp_path, "--window-size=1280,2000")
    assert shown.console == []
    assert shown.told("messages") == (2 if eyes else 4)
    assert "forbob7" in shown.dom
    assert 'aria-label="being generated"' in shown.dom


@pytest.mark.browser
def test_a_browser_shows_costs_of_all_games(tmp_path: Path) -> None:
    run = three_games(tmp_path)
    with served(str(run.path)) as address:
        shown = visited(f"{address}#view=costs", tmp_path)
    assert shown.console == []
    assert "Cost by agent, all 3 games" in shown.dom


@pytest.mark.browser
@pytest.mark.parametrize("eyes", [(), ("--eyes", "bob")])
def test_a_browser_shows_two_runs_side_by_side(tmp_path: Path, eyes: tuple[str, ...]) -> None:
    runs = [recorded(tmp_path / each, islands().entries, over=False, alice="agent", bob="agent") for each in "ab"]
    with served(str(runs[0].path), "--beside", str(runs[1].path), *eyes) as address:
        shown = visited(address, tmp_path, "--window-size=1280,3000")
    assert shown.console == []
    assert 'data-view="beside" aria-selected="true"' in shown.dom
    assert shown.told("rows") == shown.told("messages") == len(islands().entries)
    assert f"{len(islands().entries)} messages in both, 0 with other words" in shown.dom

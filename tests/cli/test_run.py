"""`agentcho run` and `show` end to end on the fake engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentcho.records.record import SavedRun, find
from agentcho.records.trace import read_traces
from agentcho.testing import FakeEngine

from .conftest import PLAY, Command, Ran

CHAIN = '''
import signal
import agentcho

class Chain(agentcho.Scenario):
    """Says one, then does {what}, then says two."""
    name = "chain"

    async def play(self, game):
        ada = game.cast(agentcho.Agent, name="ada", system="You are Ada.", audience="everyone")
        await ada.say(header="one ")
        if game.index == {when}:
            {what}
        await ada.say(header="two ")
        return self.Outcome()
'''


def chain(here: Path, what: str, when: int = 0) -> str:
    """Writes a scenario file that executes a statement between two messages of one game."""
    path = here / "chain.py"
    path.write_text(CHAIN.replace("{what}", what).replace("{when}", str(when)))
    return str(path)


def last() -> SavedRun:
    return find("last", Path("runs"))


def messages(run: SavedRun, game: int = 0) -> list[dict[str, Any]]:
    """The transcript lines of one game, without costs and times."""
    lines = [json.loads(line) for line in (run.path / "transcript.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "usage"} for line in lines if line["game"] == game]


def test_a_game_is_shown_whole_and_recorded(agentcho: Command) -> None:
    ran = agentcho(*PLAY, "--seed", "7")
    assert (ran.code, ran.err) == (0, "")
    run = last()
    assert (run.info.status, run.info.cast, run.info.config.seed) == (
        "done",
        {"alice": "prisoner", "bob": "prisoner"},
        7,
    )
    assert run.info.options["strategy"] == "none"
    said = messages(run)
    assert len(said) == 12 + 2
    for line in said:
        assert line["header"] + line["text"] in ran.out
        assert {"game", "id", "kind", "author", "audience", "parents", "header", "text", "tokens"} <= line.keys()
    outcome = run.finished()[0].outcome
    assert outcome is not None
    decisions = {line["author"]: line["header"] + line["text"] for line in said if line["header"] == '{"decision": '}
    assert {who: json.loads(words)["decision"] for who, words in decisions.items()} == {
        who: outcome[who] for who in ("alice", "bob")
    }
    for word in ("encoded", "reused", "first token", "tokens/s", str(run.path)):
        assert word in ran.out


def test_the_same_seed_gives_the_same_transcript(agentcho: Command) -> None:
    said = []
    for seed in ("1", "1", "2"):
        agentcho(*PLAY, "--seed", seed)
        said.append(messages(last()))
    assert said[0] == said[1] != said[2]


@pytest.mark.slow
def test_many_games_are_each_as_if_alone(agentcho: Command) -> None:
    ran = agentcho(*PLAY, "--games", "5", "--set", "predict=true")
    assert ran.code == 0
    together = last()
    assert sorted(together.finished()) == [0, 1, 2, 3, 4]
    agentcho(*PLAY, "--games", "5", "--set", "predict=true", "--at-once", "1")
    for game in range(5):
        words = [[(m["id"], m["text"]) for m in messages(run, game)] for run in (together, last())]
        assert sorted(words[0]) == sorted(words[1])
    texts = {tuple(m["text"] for m in messages(together, game)) for game in range(5)}
    assert len(texts) == 5
    assert "outcomes of 5 games" in ran.out
    assert all(f"game {game}: alice=" in ran.out for game in range(5))


def test_both_modes_play(agentcho: Command) -> None:
    assert agentcho(*PLAY, "--mode", "baseline").code == 0
    baseline = last()
    agentcho(*PLAY)
    by_id = [{m["id"]: m["tokens"] for m in messages(run) if m["kind"] == "prefill"} for run in (baseline, last())]
    assert by_id[0] == by_id[1]
    assert len(by_id[0]) == 6
    recipes = {made.recipe for entry in baseline.entries() for made in entry.made}
    assert recipes == {"baseline"}


def test_none_shows_nothing_and_show_shows_it_again(agentcho: Command) -> None:
    assert agentcho(*PLAY, "--display", "none") == Ran(0, "", "")
    again = agentcho("show", "last")
    assert all(m["header"] + m["text"] in again.out for m in messages(last()))
    assert "done: 1 of 1 games over" in again.out
    assert "┊" in agentcho("show", "last", "--display", "rich").out
    assert last().path.name in agentcho("ls", "--runs").out


def test_a_run_exports_to_traces_and_to_a_picture(agentcho: Command, here: Path) -> None:
    agentcho(*PLAY, "--games", "2")
    assert agentcho("show", "last", "--trace", "one.jsonl", "--svg", "t.svg", "--game", "1") == Ran(0, "", "")
    assert [trace.meta["game"] for trace in read_traces(here / "one.jsonl")] == [1]
    assert agentcho("show", "last", "--trace", "t.jsonl") == Ran(0, "", "")
    traces = read_traces(here / "t.jsonl")
    assert [trace.meta["game"] for trace in traces] == [0, 1]
    assert [m.id for m in traces[1].messages] == [m["id"] for m in messages(last(), 1)]
    picture = (here / "t.svg").read_text()
    assert picture.startswith("<svg")
    assert "make&#160;your&#160;private&#160;plan" in picture.lower()
    assert "no game 2" in agentcho("show", "last", "--game", "2").err


def test_options_reach_the_scenario_as_their_types(agentcho: Command) -> None:
    agentcho(*PLAY, "--set", "T=9", "--set", "rounds=1", "--set", "first=bob", "--set", "strategy=always-defect")
    talk = [m for m in messages(last()) if m["audience"] == "everyone"]
    assert [m["author"] for m in talk] == ["bob", "alice"]
    told = {m["author"]: m["text"] for m in messages(last()) if m["role"] == "system"}
    assert "gets 9 points" in told["bob"]
    assert "always DEFECT" in told["alice"]
    assert "always" not in told["bob"]


def test_a_bug_of_a_scenario_is_told_with_its_line_and_the_record_is_kept(agentcho: Command, here: Path) -> None:
    ran = agentcho("run", chain(here, "{}['x']"), "--model", "fake")
    assert (ran.code, ran.err.splitlines()[0]) == (1, "error: chain.py:13: KeyError: 'x'")
    assert last().info.status == "failed"
    assert [m["header"] for m in messages(last()) if m["kind"] == "decode"] == ["one "]


def test_an_error_in_one_game_leaves_the_others_alone(agentcho: Command, here: Path) -> None:
    ran = agentcho("run", chain(here, "await ada.say(to='nobody')", when=1), "--model", "fake", "--games", "3")
    assert ran.code == 1
    assert "1 of 3 games ended with an error\n  game 1: chain.py:13: AudienceError: no agent named 'nobody'" in ran.err
    ends = {game: finished.ended for game, finished in last().finished().items()}
    assert (ends[0], ends[2]) == (None, None)
    assert ends[1] is not None
    assert ends[1].startswith("error: AudienceError")
    assert last().info.status == "failed"


def test_a_limit_ends_a_game_as_an_outcome(agentcho: Command) -> None:
    ran = agentcho(*PLAY, "--limit", "game_messages=3")
    assert ran.code == 0
    finished = last().finished()[0]
    assert finished.outcome is None
    assert finished.ended is not None
    assert finished.ended.startswith("limit: ")
    assert finished.ended in ran.out
    assert all(m["text"] for m in messages(last()))


def test_ctrl_c_stops_cleanly_with_the_record_whole(here: Path) -> None:
    path = chain(here, "signal.raise_signal(signal.SIGINT)")
    code = "from agentcho.cli import main; main()"
    words = [sys.executable, "-c", code, "run", path, "--model", "fake", "--games", "2"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, "")
    assert "interrupted" in ended.stdout
    run = last()
    assert run.info.status == "interrupted"
    assert ended.stdout.splitlines()[-1] == f"to continue: agentcho run --resume {run.path.name}"
    headers = [entry.message.header for entry in run.entries() if entry.message.kind == "decode"]
    assert headers.count("one ") >= 1
    assert not [m for m in messages(run) if m["header"] == "two "]


def test_ctrl_c_while_the_model_loads_says_that_nothing_was_recorded(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", interrupted)
    ran = agentcho(*PLAY)
    assert ran.code == 130
    assert "interrupted while the model was being loaded: nothing was played or recorded\n" in ran.err
    assert not (here / "runs").exists()


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it_quietly(here: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    code = "from agentcho.cli import main; main()"
    words = [sys.executable, "-c", code, *PLAY]
    ended = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (
        1,
        "error: the reader of standard output has closed it; nothing was started\n",
    )


def test_an_engine_that_fails_ends_the_run_with_its_error(agentcho: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(config: object, tell: object) -> FakeEngine:
        engine = FakeEngine()
        engine.broken = RuntimeError("out of memory")
        return engine

    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", load)
    ran = agentcho(*PLAY)
    assert ran.code == 1
    assert "out of memory" in ran.err
    assert last().info.status == "failed"


@pytest.mark.parametrize("name", ["--runs-dir", "--out"])
def test_the_folder_of_runs_has_one_name_in_all_commands_and_its_former_one(agentcho: Command, name: str) -> None:
    ran = agentcho("run", "direct", "--model", "fake", name, "elsewhere", "--display", "none")
    assert ran.code == 0, ran.err
    for words in (("show", "last"), ("view", "last"), ("audit", "last")):
        found = agentcho(*words, name, "elsewhere")
        assert found.code in (0, 1), found.err
        assert agentcho(*words).code == 2
    assert "direct" in agentcho("ls", "--runs", name, "elsewhere").out

"""Recorded tool calls: results on record are reused without a call; a call without a result stops its game, and no
other, until the user decides."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import agentcho
from agentcho import Agent, Game, RunConfig, Scenario
from agentcho.audit.audit import audit_run
from agentcho.errors import GamesFailed, RecordBroken, ResumeMismatch, ScenarioError, ToolFailed
from agentcho.games.runs.request import OnFailure, RunRequest
from agentcho.games.runs.resume import how_to_continue, open_calls
from agentcho.games.runs.run_shards import merge
from agentcho.games.runs.runtime import RunResult, play
from agentcho.lab.collect import Playing, completed
from agentcho.lab.compare.columns import columns
from agentcho.lab.compare.compare import Comparing, Effort
from agentcho.lab.display.compare import text
from agentcho.lab.tune.sampling import beside, sample
from agentcho.protocol.progress import no_progress
from agentcho.records.record import SavedRun
from agentcho.testing import FakeEngine
from agentcho.testing.rehearsal import Lines

CONFIG = RunConfig(model="fake", games=2, max_tokens=64)


class Bank:
    """Counts payments. Payments in `fails` raise an error."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.fails: set[int] = set()
        self.idempotent = False

    @property
    def pay(self) -> agentcho.Tool:
        @agentcho.tool(audience="nobody", idempotent=self.idempotent)
        async def pay(amount: int) -> str:
            self.paid.append(amount)
            if len(self.paid) in self.fails:
                raise ToolFailed("the bank is gone")
            return f"paid {len(self.paid)}"

        return pay


class Paying(Scenario):
    """Ann pays twice, then speaks."""

    name = "paying"

    def __init__(self, bank: Bank, after: Callable[[int], None] = lambda game: None) -> None:
        super().__init__()
        self._bank, self._after = bank, after

    async def play(self, game: Game) -> Scenario.Outcome:
        ann = game.cast(Agent, "ann", tools=[self._bank.pay])
        await ann.say(to="everyone", tool_choice="required", max_calls=1)
        await ann.say(to="everyone", tool_choice="required", max_calls=1)
        self._after(game.index)
        return self.Outcome()


def saved(played: RunResult) -> SavedRun:
    assert played.record is not None
    return SavedRun(played.record)


def results(run: SavedRun, game: int) -> list[str]:
    return [entry.message.text for entry in run.games()[game] if entry.origin == "tool"]


def lines(run: SavedRun) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "calls.jsonl").read_text().splitlines()]


def test_a_call_is_on_record_before_it_is_made_and_after(tmp_path: Path) -> None:
    bank, seen = Bank(), list[int]()
    pay = bank.pay
    original = pay.function

    async def looking(amount: int) -> Any:
        [file] = tmp_path.glob("*/calls.jsonl")
        seen.append(len(file.read_text().splitlines()))
        return await original(amount)

    pay.function = looking

    class One(Paying):
        async def play(self, game: Game) -> Scenario.Outcome:
            await game.cast(Agent, "ann", tools=[pay]).say(to="everyone", tool_choice="required", max_calls=1)
            return self.Outcome()

    run = saved(play(RunRequest(One(bank), CONFIG.model_copy(update={"games": 1}), engine=FakeEngine(), out=tmp_path)))
    assert seen == [1]
    first, second = lines(run)
    declared = {"name": "pay", "audience": [], "effect": False, "trusted": False}
    assert first == {"game": 0, "call": "ann.0.step0", "tool": "pay", "use": declared}
    assert (second["call"], second["ended"]) == ("ann.0.step0", "returned")


def test_a_game_that_failed_later_takes_its_results_from_the_record(tmp_path: Path) -> None:
    bank, fail = Bank(), [True]

    def after(game: int) -> None:
        if game == 1 and fail.pop():
            raise ValueError("later")

    run = saved(play(RunRequest(Paying(bank, after), CONFIG, engine=FakeEngine(), out=tmp_path)))
    said, paid = results(run, 1), len(bank.paid)
    fail.append(False)
    again = play(RunRequest.resuming(run, Paying(bank, after), engine=FakeEngine(), changed="accept"))
    assert not again.errors
    assert len(bank.paid) == paid == 4
    assert results(run, 1) == said


class Leaving(Scenario):
    """Ann's call is cancelled while it runs, then she speaks."""

    name = "leaving"

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self._fails, self.called = fails, list[int]()

    async def play(self, game: Game) -> Scenario.Outcome:
        ann = game.cast(Agent, "ann", tools=[self.slow])
        async with anyio.create_task_group() as group:
            group.start_soon(partial(ann.say, to="everyone", tool_choice="required"))
            while not any(message.id == "ann.0.step0" for message in game.said) or (self._fails and not self.called):
                await anyio.sleep(0.001)
            group.cancel_scope.cancel()
        await ann.say(to="everyone", tools=[])
        if self._fails:
            raise ValueError("later")
        return self.Outcome()

    @property
    def slow(self) -> agentcho.Tool:
        @agentcho.tool(audience="nobody")
        async def slow() -> str:
            self.called.append(1)
            await anyio.sleep_forever()
            return "done"

        return slow


def test_a_call_that_was_cancelled_is_cancelled_again_and_not_made_again(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"games": 1})
    run = saved(play(RunRequest(first := Leaving(fails=True), config, engine=FakeEngine(), out=tmp_path)))
    said = [entry.message.text for entry in run.games()[0]]
    assert results(run, 0) == [
        "Error: this call was cancelled before it had a result. Nobody knows whether it was made"
    ]
    again = play(RunRequest.resuming(run, second := Leaving(fails=False), engine=FakeEngine(), changed="accept"))
    assert not again.errors
    assert (first.called, second.called) == ([1], [])
    assert [entry.message.text for entry in run.games()[0]] == said


def test_a_retry_takes_results_too(tmp_path: Path) -> None:
    bank, fail = Bank(), [True]

    def after(game: int) -> None:
        if fail and fail.pop():
            raise ConnectionError("once")

    played = play(
        RunRequest(Paying(bank, after), CONFIG, engine=FakeEngine(), out=tmp_path, on_failure=OnFailure(retries=1))
    )
    assert not played.errors
    assert len(bank.paid) == 4


@pytest.mark.parametrize("retries", [0, 2])
def test_a_call_without_a_result_stops_its_game_and_no_other(tmp_path: Path, retries: int) -> None:
    bank = Bank()
    bank.fails = {2}
    how = OnFailure(retries=retries)
    run = saved(play(RunRequest(Paying(bank), CONFIG, engine=FakeEngine(), out=tmp_path, at_once=1, on_failure=how)))
    assert len(bank.paid) == 4  # game 0's second payment is not retried; game 1 is complete
    again = play(RunRequest.resuming(run, Paying(bank), engine=FakeEngine(), changed="accept"))
    assert isinstance(again.error, ResumeMismatch)
    assert "game 0 cannot continue: ann.1.step0 called a tool" in str(again.error)
    assert "--redo 0:ann.1.step0" in str(again.error)
    assert len(bank.paid) == 4
    assert list(again.errors) == [0]


@pytest.mark.parametrize(
    ("settled", "paid", "told"), [("redo", 5, "paid 5"), ("skip", 4, "Error: this call was begun")]
)
def test_what_is_to_be_done_with_it_can_be_said(tmp_path: Path, settled: str, paid: int, told: str) -> None:
    bank = Bank()
    bank.fails = {2}
    run = saved(play(RunRequest(Paying(bank), CONFIG, engine=FakeEngine(), out=tmp_path, at_once=1)))
    how: dict[str, Any] = {settled: ["0:ann.1.step0"]}
    again = play(RunRequest.resuming(run, Paying(bank), engine=FakeEngine(), changed="accept", **how))
    assert not again.errors
    assert len(bank.paid) == paid
    assert results(run, 0)[1].startswith(told)
    assert results(run, 0)[0] == "paid 1"


def test_a_call_that_may_be_made_twice_is_made_again(tmp_path: Path) -> None:
    bank = Bank()
    bank.fails, bank.idempotent = {2}, True
    run = saved(play(RunRequest(Paying(bank), CONFIG, engine=FakeEngine(), out=tmp_path, at_once=1)))
    assert not play(RunRequest.resuming(run, Paying(bank), engine=FakeEngine(), changed="accept")).errors
    assert results(run, 0) == ["paid 1", "paid 5"]


@pytest.mark.parametrize(
    ("settled", "paid"),
    [
        ({"redo": ["all"]}, 6),
        ({"skip": ["all"]}, 4),
        ({"redo": ["all"], "skip": ["1:ann.1.step0"]}, 5),
        ({"redo": ["0:ann.1.step0"], "skip": ["all"]}, 5),
    ],
)
def test_all_calls_can_be_settled_at_once(tmp_path: Path, settled: dict[str, Any], paid: int) -> None:
    bank = Bank()
    bank.fails = {2, 4}
    run = saved(play(RunRequest(Paying(bank), CONFIG, engine=FakeEngine(), out=tmp_path, at_once=1)))
    assert open_calls(run) == ["0:ann.1.step0", "1:ann.1.step0"]
    lines = how_to_continue(run)
    assert lines[0].endswith(": 0:ann.1.step0, 1:ann.1.step0")
    assert lines[-1].startswith("to continue: agentcho run ")
    assert f"--resume {run.info.id}" in lines[-1]
    assert not play(RunRequest.resuming(run, Paying(bank), engine=FakeEngine(), changed="accept", **settled)).errors
    assert len(bank.paid) == paid
    assert open_calls(run) == []


def test_a_record_that_cannot_be_read_does_not_hide_an_interrupt(tmp_path: Path) -> None:
    bank = Bank()
    bank.fails = {2}
    run = saved(play(RunRequest(Paying(bank), CONFIG, engine=FakeEngine(), out=tmp_path, at_once=1)))
    assert len(how_to_continue(run)) > 1
    file = run.path / "transcript.jsonl"
    file.write_text("{\n" + file.read_text())
    with pytest.raises(RecordBroken):
        open_calls(run)
    assert f"--resume {run.info.id}" in how_to_continue(run)[-1]


@pytest.mark.parametrize("settled", [{"redo": ["all"], "skip": ["all"]}, {"redo": ["9:ann.1.step0", "all"]}])
def test_all_does_not_hide_a_contradiction(tmp_path: Path, settled: dict[str, Any]) -> None:
    bank = Bank()
    bank.fails = {2}
    run = saved(play(RunRequest(Paying(bank), CONFIG, engine=FakeEngine(), out=tmp_path, at_once=1)))
    with pytest.raises(ResumeMismatch, match=r"give (one of 0:ann\.1\.step0, or `all`|it to one of them)"):
        play(RunRequest.resuming(run, Paying(bank), engine=FakeEngine(), changed="accept", **settled))


def test_a_call_without_an_effect_is_made_again_without_asking(tmp_path: Path) -> None:
    looked: list[int] = []

    @agentcho.tool(audience="nobody", effect=False)
    async def look() -> str:
        looked.append(1)
        if len(looked) == 1:
            raise ToolFailed("gone")
        return "seen"

    class Looking(Paying):
        async def play(self, game: Game) -> Scenario.Outcome:
            await game.cast(Agent, "ann", tools=[look]).say(tool_choice="required", max_calls=1)
            return self.Outcome()

    one = CONFIG.model_copy(update={"games": 1})
    run = saved(play(RunRequest(Looking(Bank()), one, engine=FakeEngine(), out=tmp_path)))
    assert open_calls(run) == []
    assert not play(RunRequest.resuming(run, Looking(Bank()), engine=FakeEngine())).errors
    assert len(looked) == 2


@pytest.mark.parametrize(
    "named", [{"redo": ["0:ann.9"]}, {"skip": ["ann.1.step0"]}, {"redo": ["0:ann.1.step0"], "skip": ["0:ann.1.step0"]}]
)
def test_what_names_no_such_call_is_told_before_anything_is_played(tmp_path: Path, named: dict[str, Any]) -> None:
    bank = Bank()
    bank.fails = {2}
    run = saved(play(RunRequest(Paying(bank), CONFIG, engine=FakeEngine(), out=tmp_path, at_once=1)))
    with pytest.raises(ResumeMismatch, match=r"0:ann\.1\.step0"):
        play(RunRequest.resuming(run, Paying(bank), engine=FakeEngine(), changed="accept", **named))


def test_a_record_without_calls_has_no_file_for_them(tmp_path: Path) -> None:
    class Silent(Paying):
        async def play(self, game: Game) -> Scenario.Outcome:
            return self.Outcome()

    run = saved(play(RunRequest(Silent(Bank()), CONFIG, engine=FakeEngine(), out=tmp_path)))
    assert not (run.path / "calls.jsonl").exists()


KILLED = """
import os, signal
from pathlib import Path
import agentcho
from agentcho import Agent, Game, Scenario

@agentcho.tool(audience="nobody")
def pay() -> str:
    "Pay."
    paid = Path(__file__).with_name("paid")
    paid.write_text(paid.read_text() + "x" if paid.exists() else "x")
    if paid.read_text() == "x":
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"

class Killed(Scenario):
    "Killed while it pays."
    name = "killed"

    async def play(self, game: Game) -> Scenario.Outcome:
        await game.cast(Agent, "ann", tools=[pay]).say(to="everyone", tool_choice="required", max_calls=1)
        return self.Outcome()
"""


@pytest.mark.slow
def test_a_process_that_was_killed_while_a_tool_ran_goes_on_when_it_is_told_how(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    again = [sys.executable, "-c", "from agentcho.cli import main; main()", "run"]

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*again, *words], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert command("killed.py", "--model", "fake").returncode == -signal.SIGKILL
    stopped = command("--resume", "last")
    assert stopped.returncode == 1
    assert "--redo 0:ann.0.step0" in stopped.stderr
    assert (tmp_path / "paid").read_text() == "x"
    assert command("--resume", "last", "--redo", "0:ann.0.step0").returncode == 0
    assert (tmp_path / "paid").read_text() == "xx"


@pytest.mark.slow
def test_a_process_that_was_killed_while_it_traced_a_tool_calls_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    again = [sys.executable, "-c", "from agentcho.cli import main; main()"]
    words = [*again, "trace", "killed.py", "--model", "fake", "-n", "1", "--out", "t.jsonl"]

    def traced() -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert traced().returncode == -signal.SIGKILL
    stopped = traced()
    assert stopped.returncode == 1
    assert "0:ann.0.step0" in stopped.stderr
    assert (tmp_path / "paid").read_text() == "x"


def test_each_column_of_a_comparison_calls_its_own_and_says_so(tmp_path: Path) -> None:
    bank = Bank()
    ways = columns("baseline,choreographed:enforce")
    playing = Playing(Paying(bank), CONFIG, FakeEngine())
    found = Comparing(playing, ways, tmp_path, no_progress, Effort(fidelity=0, timed=0)).run("agentcho compare")
    assert len(bank.paid) == 8
    assert found.calls == {column.name: 4 for column in ways}
    assert "each column made its own tool calls" in text(found)


def test_a_game_of_a_comparison_that_called_tools_goes_on_where_it_was(tmp_path: Path) -> None:
    bank, fail = Bank(), [True]

    def after(game: int) -> None:
        if game == 1 and fail and fail.pop():
            raise ValueError("later")

    playing = Playing(Paying(bank, after), CONFIG, FakeEngine())
    with pytest.raises(GamesFailed):
        completed(playing, tmp_path, {}, lambda event: None)
    assert len(completed(playing, tmp_path, {}, lambda event: None).finished) == 2
    assert len(bank.paid) == 4


def test_a_sampled_game_that_called_tools_goes_on_where_it_was(tmp_path: Path) -> None:
    bank, fail = Bank(), [True]

    def after(game: int) -> None:
        if game == 1 and fail and fail.pop():
            raise ValueError("later")

    playing, file = Playing(Paying(bank, after), CONFIG, FakeEngine()), tmp_path / "t.jsonl"
    with pytest.raises(GamesFailed):
        sample(playing, range(2), file, no_progress)
    assert beside(file).is_dir()
    other = playing._replace(config=CONFIG.model_copy(update={"seed": 7}))
    file.rename(tmp_path / "away")
    with pytest.raises(ResumeMismatch, match="seed"):
        sample(other, range(2), file, no_progress)
    (tmp_path / "away").rename(file)
    assert sample(playing, range(2), file, no_progress).games == 2
    assert len(bank.paid) == 4
    assert not beside(file).exists()


def test_a_recorded_game_is_replayed_without_a_call(tmp_path: Path) -> None:
    bank = Bank()
    run = saved(play(RunRequest(Paying(bank), CONFIG, engine=FakeEngine(), out=tmp_path)))
    paid = len(bank.paid)
    for workflow in run.export():
        replayed = agentcho.replay(workflow, FakeEngine(), logits=False)
        assert replayed
    assert len(bank.paid) == paid


def test_a_call_that_lost_a_race_is_judged_like_one_that_ended(tmp_path: Path) -> None:
    begun = anyio.Event()

    @agentcho.tool(audience="nobody")
    async def forever() -> str:
        begun.set()
        await anyio.sleep_forever()
        return "never"

    class Race(Scenario):
        name = "race"

        async def play(self, game: Game) -> Scenario.Outcome:
            ann, bob = game.cast(Agent, "ann", tools=[forever]), game.cast(Agent, "bob")

            async def late() -> None:
                await begun.wait()
                await bob.say(to="everyone")

            await game.first(ann.say(to="everyone", tool_choice="required", max_calls=1), late())
            return self.Outcome()

    one = CONFIG.model_copy(update={"games": 1})
    run = saved(play(RunRequest(Race(), one, engine=FakeEngine(), out=tmp_path)))
    assert [line.get("ended") for line in lines(run)] == [None, "cancelled"]
    report = audit_run(run)
    assert [(call.message, call.result, call.verdict) for call in report.calls] == [("ann.0.step0", None, "clean")]
    assert report.conclusion == "clean"


def test_parts_are_merged_with_their_calls(tmp_path: Path) -> None:
    bank = Bank()
    bank.fails = {4}
    for part in ("1/2", "2/2"):
        play(
            RunRequest(
                Paying(bank), CONFIG.model_copy(update={"part": part}), engine=FakeEngine(), out=tmp_path / "parts"
            )
        )
    merged = merge([*map(SavedRun, sorted((tmp_path / "parts").iterdir()))], tmp_path, missing="accept")
    assert len(lines(merged)) == 8
    again = play(RunRequest.resuming(merged, Paying(bank), engine=FakeEngine(), changed="accept"))
    assert "1:ann.1.step0" in str(again.error)
    assert len(bank.paid) == 4


@pytest.mark.parametrize("idempotent", [False, True])
def test_calls_that_an_earlier_version_recorded_are_not_made_again(tmp_path: Path, idempotent: bool) -> None:
    bank = Bank()
    bank.fails, bank.idempotent = {2}, idempotent
    one = CONFIG.model_copy(update={"games": 1})
    run = saved(play(RunRequest(Paying(bank), one, engine=FakeEngine(), out=tmp_path)))
    numbers = {"ann.0.step0": "ann.0", "ann.0": "ann.1", "ann.1.step0": "ann.2", "ann.1": "ann.3"}
    for name in ("transcript.jsonl", "calls.jsonl"):
        file = run.path / name
        file.write_text(re.sub(r"ann\.\d(\.step0)?", lambda id: numbers[id[0]], file.read_text()))
    again = play(RunRequest.resuming(run, Paying(bank), engine=FakeEngine(), changed="accept"))
    assert "an earlier version recorded its calls of tools" in str(again.error)
    assert "start a new run" in str(again.error)
    assert len(bank.paid) == 2


def test_a_message_with_tools_that_an_earlier_version_numbered_is_not_taken_for_another(tmp_path: Path) -> None:
    """No call was made: what began her text had the number that the text has now."""

    class Silent(Paying):
        async def play(self, game: Game) -> Scenario.Outcome:
            await game.cast(Agent, "ann", tools=[self._bank.pay]).say()
            raise ScenarioError("broke off")

    lines = Lines({"ann": ["No call."]})
    engine = partial(FakeEngine, lines, answer=lines)
    run = saved(play(RunRequest(Silent(Bank()), CONFIG.model_copy(update={"games": 1}), engine=engine(), out=tmp_path)))
    assert "broke off" in str(
        play(RunRequest.resuming(run, Silent(Bank()), engine=FakeEngine(), changed="accept")).error
    )
    file = run.path / "transcript.jsonl"
    file.write_text(file.read_text().replace("ann.0", "ann.1").replace("ann.1.step0", "ann.0"))
    again = play(RunRequest.resuming(run, Silent(Bank()), engine=FakeEngine(), changed="accept"))
    assert "an earlier version recorded its calls of tools" in str(again.error)

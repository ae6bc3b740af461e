"""Games that fail: each ends alone, is recorded with its traceback, and is told with the line of the user's code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import agentcho as package
from agentcho.config import RunConfig
from agentcho.errors import EngineFailed, GamesFailed
from agentcho.events import Began, Ended, Event, Token
from agentcho.record import SavedRun, find
from agentcho.request import Decode
from agentcho.runtime import Care, play
from agentcho.testing import FakeEngine

from .conftest import Command

ODD = '''
import agentcho

class Odd(agentcho.Scenario):
    """Speaks twice; in one game something goes wrong in between."""
    name = "odd"

    async def play(self, game):
        ada = game.cast(agentcho.Agent, name="ada", audience="everyone")
        first = await ada.say()
        if game.index == 5:
            {what}
        await ada.say()
        return self.Outcome()

    def score(self, outcome):
        return {{}}
'''


def odd(here: Path, what: str) -> str:
    (here / "odd.py").write_text(ODD.format(what=what))
    return "odd.py"


def last() -> SavedRun:
    return find("last", Path("runs"))


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("{}['plan']", "KeyError: 'plan'"),
        ("raise ValueError", "ValueError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise RecursionError('deep')", "RecursionError: deep"),
        ("await ada.say(to='nobody')", "AudienceError: no agent named 'nobody'"),
        ("await game.together(ada.say(to='nobody'), ada.say())", "AudienceError: no agent named 'nobody'"),
        ("await game.play_agents(1)", "AttributeError: 'int' object has no attribute 'run'"),
        ("raise ExceptionGroup('two', [KeyError('a'), TypeError('b')])", "KeyError: 'a' (and 1 more)"),
        ("assert not first.text", "AssertionError"),
    ],
)
def test_one_game_that_raises_leaves_eleven(agentcho: Command, here: Path, what: str, told: str) -> None:
    ran = agentcho("run", odd(here, what), "--model", "fake", "--games", "12", "--at-once", "2")
    assert ran.code == 1
    lines = ran.err.splitlines()
    assert lines[0] == "error: 1 of 12 games ended by an error"
    assert lines[1].startswith(f"  game 5: odd.py:12: {told}")
    assert "Traceback" not in ran.err
    finished = last().finished()
    assert sorted(finished) == list(range(12))
    assert [game for game, over in finished.items() if over.outcome is None] == [5]
    assert finished[5].error is not None
    assert finished[5].error.startswith(told)
    assert "Traceback (most recent call last)" in (finished[5].traceback or "")
    assert what.split("\n")[0][:20] in (finished[5].traceback or "")
    assert last().info.status == "failed"
    assert len(last().games()[5]) == 1


def test_words_of_an_error_are_in_the_record_and_in_no_table(agentcho: Command, here: Path) -> None:
    ran = agentcho("run", odd(here, "raise ValueError('hunter2 is the word')"), "--model", "fake", "--games", "6")
    assert "hunter2" in (last().finished()[5].error or "")
    assert "hunter2" not in ran.out
    assert "ValueError (odd.py:12)" in ran.out
    assert "hunter2" not in agentcho("show", "last").out
    assert "hunter2" not in agentcho("audit", "last", "--json", "-").out
    agentcho("show", "last", "--trace", "t.jsonl")
    assert "hunter2" not in (here / "t.jsonl").read_text()


def test_values_of_variables_are_never_written_down(agentcho: Command, here: Path) -> None:
    agentcho("run", odd(here, "secret = 'hun' + 'ter2'; 1 / 0"), "--model", "fake", "--games", "6")
    assert "1 / 0" in (last().finished()[5].traceback or "")
    assert "hunter2" not in "".join(path.read_text() for path in last().path.iterdir())


def test_fail_fast_stops_the_others(agentcho: Command, here: Path) -> None:
    words = ("run", odd(here, "1 / 0"), "--model", "fake", "--games", "12", "--at-once", "2", "--fail-fast")
    assert agentcho(*words).code == 1
    finished = last().finished()
    assert 5 in finished
    assert len(finished) <= 6
    assert last().info.status == "failed"


class Sour(package.Scenario):
    """Says three things."""

    name = "sour"

    async def play(self, game: Any) -> Any:
        ada = game.cast(package.Agent, name="ada", audience="everyone")
        for _ in range(3):
            await ada.say()
        return self.Outcome()


def test_errors_of_the_engine_are_tried_again_and_no_others() -> None:
    def sometimes(call: Decode) -> Exception | None:
        failures.append(call)
        return EngineFailed(RuntimeError("out of memory")) if len(failures) in (2, 4) else None

    for retries, errors in ((0, 1), (1, 1), (2, 0)):
        failures = list[Decode]()
        played = play(Sour(), RunConfig(), engine=FakeEngine(faulty=sometimes), care=Care(retries=retries))
        assert len(played.errors) == errors
        assert [game.outcome is None for game in played.games] == [errors == 1]
    tries = list[Decode]()

    def always(call: Decode) -> Exception | None:
        tries.append(call)
        return ValueError("this call is wrong")

    played = play(Sour(), RunConfig(), engine=FakeEngine(faulty=always), care=Care(retries=5))
    assert isinstance(played.error, ValueError)
    assert len(tries) == 1


def test_what_a_listener_raises_stops_the_run_and_is_no_games_error(tmp_path: Path) -> None:
    """A display that cannot print must not look like an error of whoever speaks."""
    for kind in (Ended, Began, Token):
        heard = list[Event]()

        def full(event: Event, kind: Any = kind, heard: list[Event] = heard) -> None:
            heard.append(event)
            if isinstance(event, kind):
                raise OSError(28, "No space left on device")

        with pytest.raises(OSError, match="No space"):
            play(Sour(), RunConfig(games=3), engine=FakeEngine(), sink=full, out=tmp_path)
        record = find("last", tmp_path)
        assert record.info.status == "failed"
        assert not record.finished()
        assert isinstance(heard[-1], kind)


def test_a_script_of_one_game_raises_and_of_several_returns(tmp_path: Path) -> None:
    class Bad(package.Agent):
        async def run(self) -> None:
            await self.say("everyone")
            raise KeyError(self.name)

    with pytest.raises(KeyError, match="ann"):
        package.run(Bad("ann"), engine=FakeEngine(), display="none")
    played = package.run(Bad("ann"), engine=FakeEngine(), display="none", games=3)
    assert sorted(played.errors) == [0, 1, 2]
    assert isinstance(played.error, KeyError)
    assert played.errors[2].fault.where is not None
    assert played.errors[2].fault.where.startswith("tests/cli/test_failures.py:")
    with pytest.raises(GamesFailed, match="3 of 3 games"):
        played.check(3)


def test_a_score_that_is_no_number_is_its_games_error(agentcho: Command, here: Path) -> None:
    odd(here, "pass")
    (here / "odd.py").write_text((here / "odd.py").read_text().replace("return {}", "return {'a': object()}"))
    ran = agentcho("run", "odd.py", "--model", "fake", "--games", "2")
    assert ran.code == 1
    assert "TypeError" in ran.err
    assert sorted(last().finished()) == [0, 1]


def test_a_comparison_and_traces_tell_of_games_that_failed(agentcho: Command, here: Path) -> None:
    path = odd(here, "1 / 0")
    ran = agentcho("trace", path, "--model", "fake", "-n", "8", "--out", "t.jsonl")
    assert (ran.code, ran.err.splitlines()[1]) == (1, "  game 5: odd.py:12: ZeroDivisionError: division by zero")
    assert len((here / "t.jsonl").read_text().splitlines()) == 7
    odd(here, "pass")
    assert agentcho("trace", path, "--model", "fake", "-n", "8", "--out", "t.jsonl").code == 0
    assert [json.loads(line)["meta"]["game"] for line in (here / "t.jsonl").read_text().splitlines()] == list(range(8))
    odd(here, "1 / 0")
    compare = ("compare", path, "--model", "fake", "-n", "7", "--out", "c", "--modes", "baseline,choreographed:audit")
    ran = agentcho(*compare)
    assert (ran.code, ran.err.splitlines()[0]) == (1, "error: 1 of 7 games ended by an error")
    odd(here, "pass")
    assert agentcho(*compare).code == 0

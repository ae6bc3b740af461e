"""Games that fail: each ends alone, its traceback is recorded, and the error names the line of the user's code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import agentcho as package
from agentcho.config import RunConfig
from agentcho.errors import CallFailed, EngineFailed, GamesFailed, RequestError
from agentcho.events import Began, Ended, Event, Token
from agentcho.games.runs.request import OnFailure, RunRequest
from agentcho.games.runs.runtime import play
from agentcho.protocol.call import Decode
from agentcho.records.record import SavedRun, find
from agentcho.testing import FakeEngine
from tests.choreography.stage import Scripted

from ..choreography.plays import monologue
from .conftest import Command, one_line

SOUR = Scripted(monologue(3))

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
        ("await game.play_agents(1)", "ScenarioError: an argument of type int is not an agent; give agents"),
        (
            "return type('Won', (agentcho.Scenario.Outcome,), {'__annotations__': {'who': str}})(whom=1)",
            "ValidationError: Won: who: Field required; Won has no field 'whom'",
        ),
        ("raise ExceptionGroup('two', [KeyError('a'), TypeError('b')])", "KeyError: 'a' (and 1 more)"),
        ("assert not first.text", "AssertionError"),
        ("raise BaseException('out')", "BaseException: out"),
        ("import asyncio; raise asyncio.CancelledError", "CancelledError"),
        (
            "import asyncio; late = asyncio.ensure_future(asyncio.sleep(9)); late.cancel(); "
            "await game.together(asyncio.wait_for(late, 9), ada.say())",
            "CancelledError",
        ),
        (
            "import asyncio, anyio\n            with anyio.move_on_after(0): await anyio.sleep(1)\n"
            "            raise asyncio.CancelledError",
            "CancelledError",
        ),
        ("raise type('Mute', (Exception,), {'__str__': lambda me: 1 / 0})", "Mute: (its message cannot be shown: Zero"),
        ("raise ValueError('half a \\ud800 pair')", "ValueError: half a \\ud800 pair"),
        ("game.cast(agentcho.Agent, name='eve', role=5)", "RequestError: the role of eve is a value of type int"),
    ],
    ids=lambda words: re.sub(r"\W+", "-", words)[:30],
)
def test_one_game_that_raises_leaves_eleven(agentcho: Command, here: Path, what: str, told: str) -> None:
    ran = agentcho("run", odd(here, what), "--model", "fake", "--games", "12", "--at-once", "2")
    assert ran.code == 1
    lines = ran.err.splitlines()
    assert lines[0] == "error: 1 of 12 games ended with an error"
    at = 12 + what.count("\n")
    assert lines[1].startswith(f"  game 5: odd.py:{at}: {told}")
    assert "Traceback" not in ran.err
    finished = last().finished()
    assert sorted(finished) == list(range(12))
    assert [game for game, over in finished.items() if over.outcome is None] == [5]
    assert finished[5].error is not None
    assert finished[5].error.startswith(told)
    assert "Traceback (most recent call last)" in (finished[5].traceback or "")
    assert what.split("\n")[-1].strip()[:20] in (finished[5].traceback or "")
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


def test_errors_of_the_engine_are_tried_again_and_no_others() -> None:
    def sometimes(call: Decode) -> Exception | None:
        failures.append(call)
        return EngineFailed.of(RuntimeError("out of memory")) if len(failures) in (2, 4) else None

    for retries, errors in ((0, 1), (1, 1), (2, 0)):
        failures = list[Decode]()
        played = play(
            RunRequest(SOUR, RunConfig(), engine=FakeEngine(faulty=sometimes), on_failure=OnFailure(retries=retries))
        )
        assert len(played.errors) == errors
        assert [game.outcome is None for game in played.games] == [errors == 1]
    tries = list[Decode]()

    for wrong in (RequestError("this call is wrong"), CallFailed.sampling()):

        def always(call: Decode, wrong: Exception = wrong) -> Exception | None:
            tries.append(call)
            return wrong

        tries.clear()
        played = play(RunRequest(SOUR, RunConfig(), engine=FakeEngine(faulty=always), on_failure=OnFailure(retries=5)))
        assert played.error is wrong
        assert len(tries) == 1


def test_what_a_listener_raises_stops_the_run_and_is_no_games_error(tmp_path: Path) -> None:
    """A display that cannot print must not look like an error of the agent that speaks."""
    for kind in (Ended, Began, Token):
        heard = list[Event]()

        def full(event: Event, kind: Any = kind, heard: list[Event] = heard) -> None:
            heard.append(event)
            if isinstance(event, kind):
                raise OSError(28, "No space left on device")

        with pytest.raises(OSError, match="No space"):
            play(RunRequest(SOUR, RunConfig(games=3), engine=FakeEngine(), sink=full, out=tmp_path))
        record = find("last", tmp_path)
        assert record.info.status == "failed"
        assert not record.finished()
        assert isinstance(heard[-1], kind)


def test_a_script_of_one_game_raises_and_of_several_returns(tmp_path: Path) -> None:
    class Bad(package.Agent):
        async def run(self) -> None:
            await self.say(to="everyone")
            raise KeyError(self.name)

    with pytest.raises(KeyError, match="ann"):
        package.run(Bad("ann"), engine=FakeEngine(), display="none")
    played = package.run(Bad("ann"), engine=FakeEngine(), display="none", games=3)
    assert sorted(played.errors) == [0, 1, 2]
    assert isinstance(played.exceptions[0], KeyError)
    assert re.fullmatch(r"tests/cli/test_failures\.py:\d+: KeyError: 'ann'", played.errors[2])
    with pytest.raises(GamesFailed, match="3 of 3 games"):
        played.check()


@pytest.mark.parametrize(
    ("score", "told"),
    [
        ("{'a': object()}", "`score` of odd returned a value of type object as 'a'; return a number, or leave the key"),
        ("{'a': '1'}", "`score` of odd returned a value of type str as 'a'; return a number"),
        ("{'a': None}", "`score` of odd returned None as 'a'; return a number"),
        ("{'a': float('nan')}", "`score` of odd returned a value of type float as 'a' that is nan; return a finite"),
        ("{'a': float('-inf')}", "`score` of odd returned a value of type float as 'a' that is -inf; return a finite"),
        ("{('a', 1): 2}", "`score` of odd returned a key that is a value of type tuple; return a dict of numbers with"),
        ("{'\\ud800': 1}", "RequestError"),
        ("None", "`score` of odd returned None; return a dict of numbers"),
    ],
)
def test_a_score_that_is_no_number_is_its_games_error(agentcho: Command, here: Path, score: str, told: str) -> None:
    odd(here, "pass")
    (here / "odd.py").write_text((here / "odd.py").read_text().replace("return {}", f"return {score}"))
    ran = agentcho("run", "odd.py", "--model", "fake", "--games", "2")
    assert ran.code == 1
    assert told in ran.err
    assert sorted(last().finished()) == [0, 1]


def test_a_comparison_and_traces_tell_of_games_that_failed(agentcho: Command, here: Path) -> None:
    path = odd(here, "1 / 0")
    ran = agentcho("trace", path, "--model", "fake", "-n", "8", "--out", "t.jsonl")
    assert (ran.code, ran.err.splitlines()[1]) == (1, "  game 5: odd.py:12: ZeroDivisionError: division by zero")
    assert len((here / "t.jsonl").read_text().splitlines()) == 7
    odd(here, "pass")
    trace = ("trace", path, "--model", "fake", "-n", "8", "--out", "t.jsonl")
    told = one_line(agentcho(*trace))
    assert "what differs: sources. " in told
    assert "--changed accept" in told
    assert agentcho(*trace, "--changed", "accept").code == 0
    assert [json.loads(line)["meta"]["game"] for line in (here / "t.jsonl").read_text().splitlines()] == list(range(8))
    odd(here, "1 / 0")
    compare = ("compare", path, "--model", "fake", "-n", "7", "--out", "c", "--modes", "baseline,choreographed:audit")
    ran = agentcho(*compare)
    assert (ran.code, ran.err.splitlines()[0]) == (1, "error: 1 of 7 games ended with an error")
    odd(here, "pass")
    assert "odd.py has changed" in one_line(agentcho(*compare))
    assert agentcho(*compare, "--changed", "accept").code == 0


BYE = """import asyncio, sys
            async def bye():
                sys.exit(0)
            await asyncio.gather(bye(), ada.say())"""
SELF = """import asyncio
            asyncio.current_task().cancel()
            await asyncio.sleep(0)"""


@pytest.mark.parametrize(
    ("what", "told"), [(BYE, "odd.py:14: SystemExit: 0"), (SELF, "it cancelled the task that it runs in")]
)
def test_code_that_stops_the_whole_run_is_told_and_the_rest_is_played_later(
    agentcho: Command, here: Path, what: str, told: str
) -> None:
    ran = agentcho("run", odd(here, what), "--model", "fake", "--games", "12", "--at-once", "2")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert ran.err.startswith(f"error: the code of a game stopped the whole run: {told}. ")
    assert last().status == "failed"
    kept = set(last().finished())
    assert kept
    assert kept < set(range(12))
    odd(here, "pass")
    assert agentcho("run", "--resume", "last", "--changed", "accept").code == 0
    assert sorted(last().finished()) == list(range(12))


@pytest.mark.parametrize("what", ["raise KeyboardInterrupt", "await game.together(game.stop(), ada.say())"])
def test_an_interruption_that_the_code_raises_is_one(
    agentcho: Command, here: Path, what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def stop(game: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentcho.games.play.game.Game.stop", stop, raising=False)
    ran = agentcho("run", odd(here, what), "--model", "fake", "--games", "12", "--at-once", "2")
    assert (ran.code, last().status) == (130, "interrupted")
    assert 5 not in last().finished()
    assert "Traceback" not in ran.err
    assert not [record for record in caplog.records if record.name == "asyncio"]
    odd(here, "pass")
    assert agentcho("run", "--resume", "last", "--changed", "accept").code == 0


def test_no_number_of_games_at_once_waits_for_ever(agentcho: Command, here: Path) -> None:
    for number in ("0", "-1"):
        assert agentcho("run", odd(here, "pass"), "--model", "fake", "--at-once", number).code == 2
    assert not Path("runs").exists()
    with pytest.raises(RequestError, match="at_once"):
        play(RunRequest(Scripted(idle), engine=FakeEngine(), at_once=-1))


async def idle(game: Any) -> None:
    """A game without messages."""


def test_a_scenario_without_a_name_is_called_after_its_class(agentcho: Command, here: Path) -> None:
    path = here / odd(here, "pass")
    path.write_text(path.read_text().replace('    name = "odd"\n', "").replace("class Odd", "class OddOne"))
    assert agentcho("run", "odd.py", "--model", "fake").code == 0
    assert last().info.scenario == "odd-one"
    assert last().path.name.endswith("-odd-one")


def test_a_play_that_is_no_coroutine_is_told_what_to_be(agentcho: Command, here: Path) -> None:
    (here / "odd.py").write_text(
        "import agentcho\n\n\nclass Odd(agentcho.Scenario):\n    def play(self, game):\n        return self.Outcome()\n"
    )
    ran = agentcho("run", "odd.py", "--model", "fake")
    assert (ran.code, "ScenarioError: `play` of odd is not a coroutine; write `async def play" in ran.err) == (1, True)


def test_the_users_own_frames_of_an_error_are_told_once(agentcho: Command, here: Path) -> None:
    path = here / odd(here, "await self.deal(ada)")
    text = path.read_text().replace("game.index == 5", "game.index in (1, 3, 5)")
    path.write_text(text + "\n    async def deal(self, ada):\n        await ada.say(to='nobody')\n")
    ran = agentcho("run", "odd.py", "--model", "fake", "--games", "6")
    assert ran.code == 1
    lines = ran.err.splitlines()
    assert lines[2:4] == [
        "    odd.py:12, in play: await self.deal(ada)",
        "    odd.py:20, in deal: await ada.say(to='nobody')",
    ]
    games = [lines[1], *lines[4:6]]
    assert [line.split(": AudienceError")[0] for line in games] == [f"  game {n}: odd.py:20" for n in (1, 3, 5)]
    assert lines[6].startswith("  tracebacks: ")
    assert len(lines) == 7


def test_frames_of_endless_recursion_are_the_deepest_ones(agentcho: Command, here: Path) -> None:
    odd(here, "deep = lambda n: deep(n + 1); deep(0)")
    ran = agentcho("run", "odd.py", "--model", "fake", "--games", "6")
    frames = [line for line in ran.err.splitlines() if ", in " in line]
    assert 2 < len(frames) < 20
    assert all(line.startswith("    odd.py:12, in ") for line in frames)
    assert ran.err.count("earlier frames") == 1


def test_games_that_fail_by_one_error_each_end_by_themselves() -> None:
    engine = FakeEngine()

    async def script(game: package.Game) -> None:
        ann, bob = (game.cast(package.Agent, name, audience="everyone") for name in ("ann", "bob"))
        await game.together(ann.say(), bob.say())
        if game.index == 0:
            engine.broken = ZeroDivisionError("the device")
        await game.together(ann.say(), bob.say())

    played = play(RunRequest(Scripted(script), RunConfig(model="fake", games=4, max_tokens=4), engine=engine))
    assert played.errors
    assert {type(failed.error) for failed in played.errors.values()} == {EngineFailed}
    assert {over.game for over in played.games} == set(range(4))


def test_a_sampling_that_an_earlier_version_began_goes_on(agentcho: Command, here: Path) -> None:
    trace = ("trace", odd(here, "1 / 0"), "--model", "fake", "-n", "8", "--out", "t.jsonl")
    assert agentcho(*trace).code == 1
    begun = here / ".t.jsonl.games" / "asked.json"
    asked = json.loads(begun.read_text())
    later = {"default_prompt", "thoughts", "words", "leak_budget", "deterministic"}
    assert later < asked.keys()
    begun.write_text(json.dumps({name: value for name, value in asked.items() if name not in later}))
    lines = [json.loads(line) for line in (here / "t.jsonl").read_text().splitlines()]
    for line in lines:
        line["meta"] = {name: value for name, value in line["meta"].items() if name not in later | {"sources"}}
    (here / "t.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    again = agentcho(*trace)
    assert (again.code, "ZeroDivisionError" in again.err, "holds" in again.err) == (1, True, False)
    refused = one_line(agentcho(*trace, "--default-prompt", "drop"))
    assert "what differs: default_prompt" in refused or "default_prompt (keep, not drop)" in refused

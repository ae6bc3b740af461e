"""`agentcho.run` with the agents of a script, and the benchmark of many games, on the fake engine."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import agentcho
from agentcho.config import RunConfig
from agentcho.errors import ArgumentError, AudienceError, ConfigError, ScenarioError
from agentcho.games.runs import library
from agentcho.lab.bench.games import compare
from agentcho.lab.display.bench import games
from agentcho.protocol.call import Decode
from agentcho.records.record import find
from agentcho.testing import FakeEngine
from agentcho.testing import play as rehearse


class Speaker(agentcho.Agent):
    """Speaks a few times."""

    audience = "everyone"
    turns = 3

    async def run(self) -> None:
        for _ in range(self.turns):
            await self.say()


class Stray(agentcho.Agent):
    """Addresses an agent that does not exist."""

    async def run(self) -> None:
        await self.say(to="nobody")


def two_words(call: Decode, prompt: str) -> str:
    return "one two"


def test_agents_hear_each_other_as_they_speak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = agentcho.run(Speaker("ann"), Speaker("bob"), engine=FakeEngine(two_words))
    assert (quiet.status, capsys.readouterr()) == ("done", ("", ""))
    played = agentcho.run(Speaker("ann"), Speaker("bob"), engine=FakeEngine(two_words), out=tmp_path, display="auto")
    said = find("last", tmp_path).entries()
    assert played.record == find("last", tmp_path).path
    assert [len(e.message.parents) for e in said if e.message.author == "ann"] == [0, 2, 4]
    assert len({e.message.id for e in said}) == 6
    assert "bob → everyone: one two" in capsys.readouterr().out


def test_in_lockstep_they_hear_each_other_message_by_message(tmp_path: Path) -> None:
    """This holds for messages of any length: here Ann's are longer than Bob's."""

    def reply(call: Decode, prompt: str) -> str:
        return "one two three four five" if call.name == "ann" else "one"

    played = agentcho.run(
        Speaker("ann"), Speaker("bob"), engine=FakeEngine(reply), lockstep=True, out=tmp_path, display="none"
    )
    assert [len(m.parents) for m in played.games[0].messages() if m.author == "bob"] == [0, 2, 4]
    assert not played.games[0].raced
    assert find("last", tmp_path).info.options == {"lockstep": True}
    with pytest.raises(TypeError, match="in a scenario, await game"):
        agentcho.run("debate", model="fake", lockstep=True, display="none")
    agents: Any = [Speaker("ann")]
    with pytest.raises(ArgumentError, match="agents come in a list"):
        agentcho.run(agents, model="fake", lockstep=True, display="none")


def test_every_game_has_agents_of_its_own() -> None:
    ann = Speaker("ann", turns=1)
    played = agentcho.run(ann, engine=FakeEngine(), games=3, display="none")
    assert [game.ended for game in played.games] == [None, None, None]
    with pytest.raises(agentcho.AgentchoError, match="is not in a game"):
        ann._current_game  # noqa: B018


@dataclass
class Bidder(agentcho.Agent):
    """An agent without an `__init__` of its own."""

    budget: int = 10

    async def run(self) -> None:
        await self.say(prompt=f"You have {self.budget}.")


def test_an_agent_without_a_name_is_told_and_can_be_cast_under_one() -> None:
    with pytest.raises(ScenarioError, match=r"Bidder has no name: call super\(\).__init__\(name\)"):
        agentcho.run(Bidder(budget=5), engine=FakeEngine(), display="none")

    async def script(game: agentcho.Game) -> None:
        with pytest.raises(ScenarioError, match=r"cast an instance under a name: game\.cast\(agent, name\)"):
            game.cast(Bidder, "ben")
        await game.cast(Bidder(budget=5), "ann").run()

    played = rehearse(script)
    assert played.said("ann")
    assert any(entry.message.text == "You have 5." for entry in played.entries)


def test_a_scenario_is_named_after_its_own_class_unless_it_has_a_name_of_its_own() -> None:
    class Duel(agentcho.Scenario): ...

    class LongDuel(Duel): ...

    class Named(agentcho.Scenario):
        name = "given"

    class Heir(Named): ...

    class Computed(agentcho.Scenario):
        @property
        def name(self) -> str:  # type: ignore[override]
            return "computed"

        async def play(self, game: agentcho.Game) -> agentcho.Scenario.Outcome:
            return self.Outcome()

    class HeirOfComputed(Computed): ...

    class Mixin:
        name = "mixed"

    class Mixed(Mixin, agentcho.Scenario): ...

    assert (HeirOfComputed().name, Mixed.name) == ("computed", "mixed")
    assert [each.name for each in (Duel, LongDuel, Named, Heir)] == ["duel", "long-duel", "given", "heir"]


def test_errors_come_out_as_they_are() -> None:
    with pytest.raises(AudienceError, match="nobody"):
        agentcho.run(Stray("ann"), engine=FakeEngine(), display="none")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((), "there is nothing to play; pass agents, or one scenario"),
        ((Speaker,), "Speaker is a class; pass an instance, such as Speaker('ann')"),
        ((library.scenario("debate"),), "Debate is a class; pass an instance, such as Debate()"),
        (([Speaker("ann")],), "agents come in a list; pass them one by one, as in agentcho.run(*agents)"),
        ((Speaker("ann"), 3), "a value of type int cannot be played; pass agents, or one scenario"),
        ((Speaker("ann"), library.scenario("debate")()), "either agents or one scenario; give one or the other"),
        (("debate", "debate"), "either agents or one scenario; give one or the other"),
    ],
)
def test_what_cannot_be_played_says_what_to_pass(given: tuple[Any, ...], told: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(told)):
        agentcho.run(*given, engine=FakeEngine())


@pytest.mark.parametrize(
    ("how", "error", "told"),
    [
        ({"temperature": -1}, ConfigError, "temperature: Input should be greater than or equal to 0"),
        (
            {"heat": 1},
            ConfigError,
            "heat: there is no such option; the options are model, engine, tensor_parallel, pipeline_parallel,",
        ),
        ({"modle": "fake"}, ConfigError, "modle: there is no such option; did you mean 'model'? RunConfig documents"),
        ({"dispay": "none"}, ConfigError, "dispay: there is no such option; did you mean 'display'?"),
        ({"display": "nne"}, ConfigError, "display: Input should be 'auto', 'rich', 'plain' or 'none'; did you mean"),
        ({"display": 3}, ConfigError, "display: Input should be 'auto', 'rich', 'plain' or 'none'"),
        ({"telemetry": "span"}, ConfigError, "telemetry: Input should be 'spans' or 'content'; did you mean 'spans'?"),
        ({"models": {"b": {"model": "fake", "devce": 1}}}, ConfigError, "no such option; did you mean 'device'?"),
        ({"limits": {"heat": 1}}, ConfigError, "limits heat: there is no such limit; the limits are agent_tokens"),
        (
            {"limits": {"game_token": 1}},
            ConfigError,
            "no such limit; did you mean 'game_tokens'? The limits are agent_",
        ),
        ({"deterministic": True, "speculate": True}, ConfigError, "speculate contradicts deterministic"),
        ({"given": {"heat": 1}}, ArgumentError, "`given` needs a scenario given by its name"),
        ({"lockstep": True}, ArgumentError, "lockstep applies to agents only"),
    ],
)
def test_what_cannot_be_is_an_error_of_the_library(how: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=re.escape(told)):
        agentcho.run(library.scenario("debate")(), engine=FakeEngine(), **how)


def test_nothing_that_a_program_calls_needs_the_command_line(tmp_path: Path) -> None:
    code = (
        "import sys, agentcho\n"
        "play, how = 'prisoners-dilemma', {'model': 'fake', 'max_tokens': 4}\n"
        f"agentcho.run(play, display='none', out={str(tmp_path)!r}, **how)\n"
        f"agentcho.load(out={str(tmp_path)!r})\n"
        "agentcho.compare(play, 'baseline', 1, fidelity_games=0, timed_games=0, **how)\n"
        "agentcho.sweep(play, {'seed': [1, 2]}, games=1, **how)\n"
        "assert not {'typer', 'agentcho.cli'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ctrl_c_comes_out_after_the_record_is_closed(tmp_path: Path) -> None:
    class Tired(Speaker):
        async def run(self) -> None:
            import signal

            await self.say()
            signal.raise_signal(signal.SIGINT)
            await self.say()

    with pytest.raises(KeyboardInterrupt):
        agentcho.run(Tired("ann"), engine=FakeEngine(), out=tmp_path, display="none")
    assert find("last", tmp_path).info.status == "interrupted"


def test_the_benchmark_plays_the_same_games_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.lab.bench.games.load_engine", lambda config, tell=None: FakeEngine())
    compared = compare(library.scenario("prisoners-dilemma")(), RunConfig(games=4))
    assert compared.same == 4
    assert compared.together_steps * 2 < compared.apart_steps
    assert "4 of 4 outcomes the same" in games(compared)


def test_the_module_runs_as_the_script_does(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "agentcho", "ls"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, "prisoners-dilemma" in ran.stdout) == (0, True), ran.stderr

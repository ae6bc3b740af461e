"""Resuming a run: it plays what is missing, keeps the words already said, and refuses a different run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentcho import Agent, run
from agentcho.games.runs import library
from agentcho.records.record import SavedRun, find
from agentcho.testing import FakeEngine

from .conftest import PLAY, Command, one_line

MAIN = "from agentcho.cli import main; main()"
TALK = '''
import os, signal
from pathlib import Path
import agentcho

class Talk(agentcho.Scenario):
    """Two agents; whatever stands in a file happens in game 5, after three messages."""
    name = "talk"

    async def play(self, game):
        ann = game.cast(agentcho.Agent, name="ann", system="You are Ann.", audience="everyone")
        bob = game.cast(agentcho.Agent, name="bob", system="You are Bob.", audience="everyone")
        for turn in range(2):
            await ann.say(stop=["e"])
            vote = await bob.choose(["red", "green"], to="everyone", opening="I say ")
            if game.index == 5 and turn == 1 and Path("bad").exists():
                exec(Path("bad").read_text())
        await game.announce(f"{{vote}} it is")
        {last}
        return self.Outcome()
'''
WORDS = ("--model", "fake", "--games", "7", "--at-once", "2")


def talk(here: Path, last: str = "await ann.say()") -> str:
    (here / "talk.py").write_text(TALK.format(last=last))
    return "talk.py"


def last() -> SavedRun:
    return find("last", Path("runs"))


def texts(run: SavedRun, game: int) -> list[tuple[str, str, tuple[int, ...], str | None]]:
    said = [entry.message for entry in run.games()[game]]
    return sorted((m.id, m.header + m.text, m.tokens, m.stopped) for m in said)


def whole(agentcho: Command, here: Path) -> dict[int, Any]:
    """The texts of all games of a run without errors."""
    (here / "bad").unlink(missing_ok=True)
    assert agentcho("run", talk(here), *WORDS, "--out", "other").code == 0
    run = find("last", here / "other")
    return {game: texts(run, game) for game in range(7)}


def test_a_game_that_failed_is_completed_with_what_it_said(agentcho: Command, here: Path) -> None:
    (here / "bad").write_text("raise OSError('the disk of somebody else')")
    assert agentcho("run", talk(here), *WORDS).code == 1
    before = last()
    lines = (before.path / "transcript.jsonl").read_bytes()
    (here / "bad").unlink()
    ran = agentcho("run", "--resume", "last", "--disk-tokens", "9")  # does not change what is said
    assert (ran.code, ran.err) == (0, "")
    assert "(scenario)         7 " in ran.out
    after = last()
    assert after.path == before.path
    assert (after.status, sorted(after.finished())) == ("done", list(range(7)))
    assert len(after.info.resumed) == 1
    assert (after.path / "transcript.jsonl").read_bytes().startswith(lines)
    assert {entry.attempt for entry in after.games()[5]} == {2}
    assert {entry.attempt for game in range(7) if game != 5 for entry in after.games()[game]} == {1}
    assert {game: texts(after, game) for game in range(7)} == whole(agentcho, here)
    assert after.finished()[5].outcome is not None
    assert agentcho("show", "last", "--game", "5").code == 0
    assert "7 of 7 games over" in agentcho("show", "last").out
    audited = json.loads(agentcho("audit", "last", "--json", "-").out)
    assert audited["conclusion"] == "clean"


PROGRAM = """
import agentcho
from pathlib import Path

class Chat(agentcho.Scenario):
    async def play(self, game):
        await game.cast(agentcho.Agent, "ann").say(max_tokens=4)
        if not Path("go").exists():
            raise KeyboardInterrupt
        return self.Outcome()
"""


def test_a_run_of_a_program_is_resumed_by_its_file(agentcho: Command, here: Path) -> None:
    (here / "chat.py").write_text(PROGRAM)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        run(library.scenario("chat.py")(), engine=FakeEngine(), model="fake", out="runs")
    record = last()
    where, guard, command = interrupt.value.__notes__
    assert where == f"everything said so far is recorded: {record.path}"
    assert "__main__" in guard
    assert command == f"to continue: agentcho run chat.py --resume {record.info.id}"
    assert f"`agentcho run chat.py --resume {record.info.id}`" in one_line(agentcho("run", "--resume", "last"))
    (here / "go").touch()
    assert agentcho("run", "chat.py", "--resume", "last").code == 0
    assert last().status == "done"


OTHERS = """
class Other(agentcho.Scenario):
    pass

"""
INHERITED = "from base import Talk\n\nclass Chat(Talk):\n    pass\n"


@pytest.mark.parametrize(
    ("files", "cls", "played"),
    [
        ({"chat.py": PROGRAM + OTHERS}, "Chat", "chat.py:Chat"),
        ({"base.py": PROGRAM.replace("Chat", "Talk"), "chat.py": INHERITED}, "Chat", "chat.py:Chat"),
        ({"own.py": PROGRAM.replace("Chat", "PrisonersDilemma")}, "PrisonersDilemma", "own.py"),
        ({"script.py": PROGRAM.replace("Chat", "Script")}, "Script", "script.py"),
    ],
    ids=["another scenario beside it", "a base in another file", "the name of a shipped one", "a script of one's own"],
)
def test_the_file_of_a_program_is_named_so_that_it_finds_the_scenario(
    files: dict[str, str], cls: str, played: str, agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.delitem(sys.modules, "base", raising=False)
    for name, text in files.items():
        (here / name).write_text(text)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        run(library.scenario(f"{played.partition(':')[0]}:{cls}")(), engine=FakeEngine(), model="fake", out="runs")
    assert interrupt.value.__notes__[-1] == f"to continue: agentcho run {played} --resume {last().info.id}"
    (here / "go").touch()
    assert agentcho("run", played, "--resume", "last").code == 0
    assert last().status == "done"


def test_a_run_of_agents_alone_cannot_be_resumed(agentcho: Command, here: Path) -> None:
    class Tired(Agent):
        async def run(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as interrupt:
        run(Tired("ann"), engine=FakeEngine(), model="fake", out="runs")
    assert "cannot be continued" in interrupt.value.__notes__[-1]
    assert "agents and no scenario, and cannot be continued" in one_line(agentcho("run", "--resume", "last"))


def killed(path: str, *words: str) -> None:
    ended = subprocess.run([sys.executable, "-c", MAIN, "run", path, *words], check=False, stdout=subprocess.DEVNULL)
    assert ended.returncode == -signal.SIGKILL


def test_a_killed_run_goes_on_where_it_was(agentcho: Command, here: Path) -> None:
    expected = whole(agentcho, here)
    (here / "bad").write_text("os.kill(os.getpid(), signal.SIGKILL)")
    killed(talk(here), *WORDS)
    assert last().status == "died"
    over = set(last().finished())
    kept = {(e.message.game, e.message.id): e.message.tokens for e in last().entries() if e.ended is None}
    (here / "bad").unlink()
    assert agentcho("run", "--resume", "last").code == 0
    after = last()
    assert {game: texts(after, game) for game in range(7)} == expected
    outcomes = [json.loads(line)["game"] for line in (after.path / "outcomes.jsonl").read_text().splitlines()]
    assert sorted(outcomes) == list(range(7))
    assert over
    again = {(e.message.game, e.message.id): e.message.tokens for e in after.entries() if e.attempt == 2}
    assert all(again[id] == tokens for id, tokens in kept.items() if id in again and id[0] not in over)
    assert [attempts for game, attempts in after.attempts().items() if game in over] == [
        after.games()[game] for game in sorted(over)
    ]


def test_words_that_were_said_are_not_sampled_again(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "bad").write_text("raise OSError('x')")
    agentcho("run", talk(here), *WORDS)
    (here / "bad").unlink()
    asked = list[Any]()

    def load(config: object, tell: object) -> FakeEngine:
        return FakeEngine(lambda call, prompt: asked.append(call) or "other words entirely")  # type: ignore[func-returns-value]

    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", load)
    before = {m[0]: m for m in texts(last(), 5)}
    assert agentcho("run", "--resume", "last").code == 0
    assert len(asked) == 1
    after = {m[0]: m for m in texts(last(), 5)}
    assert all(after[id] == said for id, said in before.items())
    assert after["ann.3"][1] == "other words entirely"


@pytest.mark.parametrize("change", ['await ann.say(to=["bob"])', "await ann.say(header='So: ')", "pass"])
def test_another_source_is_refused_unless_accepted(agentcho: Command, here: Path, change: str) -> None:
    (here / "bad").write_text("raise OSError('x')")
    agentcho("run", talk(here), *WORDS)
    (here / "bad").unlink()
    talk(here, change)
    refused = one_line(agentcho("run", "--resume", "last"))
    assert "what differs: the source (talk.py has changed)" in refused
    assert "--changed accept" in refused
    assert last().status == "failed"
    assert agentcho("run", "--resume", "last", "--changed", "accept").code == 0
    assert last().status == "done"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("await ann.say(stop=", 'await ann.say(to=["bob"], stop=', "ann.1 differs in audience"),
        ("await ann.say(stop=", "await ann.say(header='So: ', stop=", "ann.1 differs in header"),
        ('["red", "green"]', '["red", "blue"]', "bob.1 differs in choices"),
        ('system="You are Ann."', 'system="You are Anne."', "ann.0 differs in text"),
        ("vote = await bob.choose(", "vote = await ann.choose(", "ann.2 differs in choices"),
        ("range(2)", "range(1)", "was not said again"),
        ("await ann.say(stop=", "await ann.think(stop=", "ann.1 differs in audience"),
    ],
)
def test_code_that_departs_from_the_record_is_told(
    agentcho: Command, here: Path, old: str, new: str, told: str
) -> None:
    (here / "bad").write_text("raise OSError('x')")
    agentcho("run", talk(here), *WORDS)
    (here / "bad").unlink()
    path = here / talk(here)
    path.write_text(path.read_text().replace(old, new))
    ran = agentcho("run", "--resume", "last", "--changed", "accept")
    assert ran.code == 1
    assert "ResumeMismatch: game 5 departs from its record: " in ran.err
    assert told in ran.err
    assert last().status == "failed"


def test_a_departure_that_is_swallowed_is_told_at_the_end(agentcho: Command, here: Path) -> None:
    (here / "bad").write_text("raise OSError('x')")
    agentcho("run", talk(here), *WORDS)
    (here / "bad").unlink()
    path = here / talk(here)
    swallowing = "try: await ann.say(to=['bob'], stop=['e'])\n            except Exception: await ann.say(stop=['e'])"
    path.write_text(path.read_text().replace('await ann.say(stop=["e"])', swallowing))
    ran = agentcho("run", "--resume", "last", "--changed", "accept")
    assert (ran.code, "ResumeMismatch" in ran.err) == (1, True)


def test_what_an_attempt_said_before_it_departed_is_not_repeated(agentcho: Command, here: Path) -> None:
    odd = "if Path('odd').exists():\n            cy = game.cast(agentcho.Agent, name='cy', audience='everyone')\n"
    odd += "            await cy.say()\n            await ann.think()\n        for turn in range(2):"
    path = here / talk(here)
    path.write_text(path.read_text().replace("for turn in range(2):", odd))
    (here / "bad").write_text("raise OSError('x')")
    agentcho("run", "talk.py", *WORDS)
    (here / "bad").unlink()
    (here / "odd").touch()
    ran = agentcho("run", "--resume", "last")
    assert (ran.code, "ResumeMismatch: game 5 departs from its record: " in ran.err) == (1, True)
    assert last().departed() == {5: {2}}
    assert "cy.0" in {entry.message.id for entry in last().attempts()[5]}
    (here / "odd").unlink()
    assert agentcho("run", "--resume", "last").code == 0
    assert last().begun()[5] == 3
    resumed = {game: texts(last(), game) for game in range(7)}
    assert agentcho("run", "talk.py", *WORDS, "--out", "other").code == 0
    assert resumed == {game: texts(find("last", here / "other"), game) for game in range(7)}
    assert agentcho("audit", "last").code == 0


def test_a_departure_that_is_swallowed_until_a_limit_is_told_too(agentcho: Command, here: Path) -> None:
    (here / "bad").write_text("raise OSError('x')")
    limited = (*WORDS, "--limit", "game_messages=20")
    agentcho("run", talk(here), *limited)
    (here / "bad").unlink()
    path = here / talk(here)
    swallowing = "try: await ann.say(to=['bob'], stop=['e'])\n            except agentcho.errors.ResumeMismatch:\n"
    swallowing += (
        "                cy = game.cast(agentcho.Agent, name='cy')\n                while True: await cy.say()"
    )
    path.write_text(path.read_text().replace('await ann.say(stop=["e"])', swallowing))
    ran = agentcho("run", "--resume", "last", "--changed", "accept")
    assert (ran.code, "ResumeMismatch: game 5 departs from its record: " in ran.err) == (1, True)


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--seed", "3"), "seed (0, not 3)"),
        (("--games", "3"), "games (7, not 3)"),
        (("--temperature", "0.1"), "temperature (0.7, not 0.1)"),
        (("--model", "understudy"), "model (fake, not understudy)"),
        (("--leakage", "audit", "--seed", "1"), "leakage (enforce, not audit)"),
        (("prisoners-dilemma",), "the scenario (talk, not prisoners-dilemma)"),
        (("--limit", "game_messages=3"), "limits"),
    ],
)
def test_what_was_asked_otherwise_is_refused_and_named(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("agentcho.games.runs.runtime.load_engine", lambda config, tell=None: FakeEngine())
        (here / "bad").write_text("raise OSError('x')")
        agentcho("run", talk(here), *WORDS)
    assert told in one_line(agentcho("run", "--resume", "last", *words))


def test_another_model_is_refused_and_named(agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "bad").write_text("raise OSError('x')")
    agentcho("run", talk(here), *WORDS)

    class Other(FakeEngine):
        @property
        def fingerprint(self) -> dict[str, str]:
            return super().fingerprint | {"weights": "abc", "dtype": "bfloat16"}

    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", lambda config, tell=None: Other())
    told = one_line(agentcho("run", "--resume", "last"))
    assert "the model's weights (none, not abc); the model's dtype (none, not bfloat16)" in told


def test_secret_options_are_named_alone(agentcho: Command, here: Path) -> None:
    agentcho("run", "prisoners-dilemma", "--model", "fake", "--set", "strategy=always-defect")
    told = one_line(agentcho("run", "--resume", "last", "--set", "strategy=none"))
    assert "what differs: option strategy" in told
    assert "always-defect" not in told


@pytest.mark.parametrize("kind", ["SecretStr", "Secret[str]"])
def test_a_secret_that_is_not_recorded_is_asked_for_again(agentcho: Command, here: Path, kind: str) -> None:
    path = here / talk(here, "await ann.think(self.options.word.get_secret_value())")
    options = f"    class Options(agentcho.Scenario.Options):\n        word: {kind}\n\n    async def play("
    path.write_text(
        "from pydantic import Secret, SecretStr\n" + path.read_text().replace("    async def play(", options)
    )
    (here / "bad").write_text("raise OSError('x')")
    assert agentcho("run", "talk.py", *WORDS, "--set", "word=plum").code == 1
    assert "plum" not in (last().path / "run.json").read_text()
    (here / "bad").unlink()
    refused = agentcho("run", "--resume", "last")
    assert (refused.code, "word is or has a secret, which records do not contain" in refused.err) == (2, True)
    assert agentcho("run", "--resume", "last", "--set", "word=plum").code == 0
    assert {m[1] for m in texts(last(), 5) if "plum" in m[1]}


def test_a_secret_inside_an_option_is_asked_for_again_too(agentcho: Command, here: Path) -> None:
    path = here / talk(here, "await ann.think(self.options.login['word'].get_secret_value())")
    options = (
        "    class Options(agentcho.Scenario.Options):\n        login: dict[str, SecretStr]\n\n    async def play("
    )
    path.write_text("from pydantic import SecretStr\n" + path.read_text().replace("    async def play(", options))
    (here / "bad").write_text("raise OSError('x')")
    given = ("--set", 'login={"word":"plum"}')
    assert agentcho("run", "talk.py", *WORDS, *given).code == 1
    (here / "bad").unlink()
    refused = agentcho("run", "--resume", "last")
    assert (refused.code, "login is or has a secret, which records do not contain" in refused.err) == (2, True)
    assert agentcho("run", "--resume", "last", *given).code == 0


def test_a_secret_that_was_not_given_is_taken_from_its_default_again(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = here / talk(here, "await ann.think(self.options.word.get_secret_value())")
    field = 'word: SecretStr = Field(default_factory=lambda: SecretStr(os.environ["WORD"]), min_length=12)'
    options = f"    class Options(agentcho.Scenario.Options):\n        {field}\n\n    async def play("
    path.write_text(
        "import os\nfrom pydantic import Field, SecretStr\n" + path.read_text().replace("    async def play(", options)
    )
    monkeypatch.setenv("WORD", "plums and pears")
    (here / "bad").write_text("raise OSError('x')")
    assert agentcho("run", "talk.py", *WORDS).code == 1
    assert "word" not in last().info.options
    assert agentcho("run", "talk.py", *WORDS, "--set", "word=apples and nuts").code == 1
    (here / "bad").unlink()
    refused = agentcho("run", "--resume", "last")
    assert (refused.code, "word is or has a secret, which records do not contain" in refused.err) == (2, True)
    assert agentcho("run", "--resume", "last", "--set", "word=apples and nuts").code == 0
    (here / "bad").write_text("raise OSError('x')")
    assert agentcho("run", "talk.py", *WORDS).code == 1
    (here / "bad").unlink()
    assert agentcho("run", "--resume", "last").code == 0
    assert {m[1] for m in texts(last(), 5) if "plums and pears" in m[1]}


def test_a_secret_may_be_given_again_though_it_was_not_given_before(agentcho: Command, here: Path) -> None:
    path = here / talk(here, "await ann.think(self.options.word.get_secret_value())")
    options = (
        '    class Options(agentcho.Scenario.Options):\n        word: SecretStr = SecretStr("plum")\n'
        '        header: str = ""\n\n    async def play('
    )
    path.write_text("from pydantic import SecretStr\n" + path.read_text().replace("    async def play(", options))
    (here / "bad").write_text("raise OSError('x')")
    assert agentcho("run", "talk.py", *WORDS, "--set", "header=**********").code == 1
    (here / "bad").unlink()
    assert agentcho("run", "--resume", "last", "--set", "word=plum").code == 0


def test_options_with_an_alias_and_computed_fields_are_taken_again(agentcho: Command, here: Path) -> None:
    path = here / talk(here, "await ann.think(f'{self.options.of} {self.options.word.get_secret_value()}')")
    options = """    class Options(agentcho.Scenario.Options):
        of: int = Field(1, alias="from")
        word: SecretStr = Field(validation_alias=AliasChoices("secret", "word"))

        @computed_field
        def double(self) -> int:
            return 2 * self.of

    async def play("""
    imported = "from pydantic import AliasChoices, Field, SecretStr, computed_field\n"
    path.write_text(imported + path.read_text().replace("    async def play(", options))
    (here / "bad").write_text("raise OSError('x')")
    assert agentcho("run", "talk.py", *WORDS, "--set", "from=4711", "--set", "secret=plum").code == 1
    (here / "bad").unlink()
    refused = agentcho("run", "--resume", "last")
    assert (refused.code, "secret is or has a secret, which records do not contain" in refused.err) == (2, True)
    assert agentcho("run", "--resume", "last", "--set", "secret=plum", "--set", "from=1").code == 2
    assert agentcho("run", "--resume", "last", "--set", "secret=plum").code == 0
    assert {m[1] for m in texts(last(), 5) if "4711 plum" in m[1]}
    assert agentcho("prove", "last", "-n", "1", "--free-schedule").code == 0


@pytest.mark.parametrize("words", [("--redo", "0:ann.2"), ("--skip", "all"), ("--changed", "accept")])
def test_what_only_resuming_needs_is_a_usage_error_without_it(
    agentcho: Command, here: Path, words: tuple[str, str]
) -> None:
    refused = agentcho("run", talk(here), *WORDS, *words)
    assert refused.code == 2
    assert f"{words[0]}: has no effect without --resume; give --resume too, or leave it out" in refused.err
    assert not (here / "runs").exists()


def test_the_dtype_that_was_taken_is_taken_again(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Half(FakeEngine):
        @property
        def fingerprint(self) -> dict[str, str]:
            return super().fingerprint | {"dtype": "bfloat16"}

    loaded = list[str]()

    def load(config: Any, tell: object) -> FakeEngine:
        loaded.append(config.dtype)
        return Half()

    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", load)
    (here / "bad").write_text("raise OSError('x')")
    agentcho("run", talk(here), *WORDS)
    (here / "bad").unlink()
    assert agentcho("run", "--resume", "last").code == 0
    assert loaded == ["auto", "bfloat16"]
    assert last().info.config.dtype == "auto"


@pytest.mark.usefixtures("no_model")
def test_what_needs_saying_is_said_before_a_model_is_loaded(agentcho: Command, here: Path) -> None:
    assert "give a scenario, or --resume" in agentcho("run", "--model", "fake").err
    assert "no run 'last' in runs" in one_line(agentcho("run", "--resume", "last"))


def test_a_record_that_takes_nothing_more_is_refused_before_a_model_is_loaded(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agentcho("run", talk(here), "--model", "fake", "--games", "2")

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(
        "agentcho.games.runs.runtime.load_engine", lambda config, tell: pytest.fail("an engine was loaded")
    )
    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    assert "nothing can be written to " in one_line(agentcho("run", "--resume", "last"))


def test_a_run_that_lacks_nothing_stays_as_it_is(agentcho: Command, here: Path) -> None:
    agentcho("run", talk(here), "--model", "fake", "--games", "2")
    before = {path.name: path.read_bytes() for path in last().path.iterdir() if path.name != "run.json"}
    ran = agentcho("run", "--resume", "last")
    assert ran.code == 0
    assert {path.name: path.read_bytes() for path in last().path.iterdir() if path.name != "run.json"} == before


def test_a_run_that_is_written_is_left_alone(agentcho: Command, here: Path) -> None:
    from agentcho.records.writer_lock import WriterLock

    agentcho("run", talk(here), "--model", "fake", "--games", "2")
    with WriterLock(last().path / "writer.json"):
        assert "is being written by process " in one_line(agentcho("run", "--resume", "last"))


def test_it_goes_on_from_another_folder(agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "bad").write_text("raise OSError('x')")
    agentcho("run", talk(here), *WORDS)
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    assert agentcho("run", "--resume", "last", "--out", "../runs").code == 0


@pytest.mark.parametrize("words", [("run", "talk.py:Talk"), ("audit", "talk.py")])
def test_it_goes_on_from_another_folder_however_the_file_was_named(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    (here / "bad").write_text("raise OSError('x')")
    talk(here)
    assert agentcho(*words, "--model", "fake", "--games", "6").code in (1, 3)
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    assert agentcho("run", "--resume", "last", "--out", "../runs").code == 0
    (here / "talk.py").unlink()
    assert "which no longer exists" in one_line(agentcho("run", "--resume", "last", "--out", "../runs"))


def test_a_second_failure_is_resumed_from_the_longest_of_what_was_said(agentcho: Command, here: Path) -> None:
    expected = whole(agentcho, here)
    (here / "bad").write_text("raise OSError('x')")
    agentcho("run", talk(here), *WORDS)
    for _ in range(2):
        assert agentcho("run", "--resume", "last").code == 1
    (here / "bad").unlink()
    assert agentcho("run", "--resume", "last").code == 0
    assert {entry.attempt for entry in last().games()[5]} == {4}
    assert texts(last(), 5) == expected[5]


def test_a_record_of_an_earlier_version_in_place_is_read_and_goes_on(agentcho: Command, here: Path) -> None:
    """The old field name is accepted without a warning, which pytest would turn into an error."""
    assert agentcho(*PLAY, "--reuse", "in-place", "--games", "2").code == 0
    file = last().path / "run.json"
    then = json.loads(file.read_text())
    then["config"] |= {"in_place": True, "reuse": "rotate"}
    file.write_text(json.dumps(then))
    assert last().info.config.policy.in_place
    assert agentcho("run", "--resume", "last", "--out", "runs").code == 0
    assert agentcho("run", "--resume", "last", "--reuse", "in-place", "--out", "runs").code == 0
    assert "reuse (in-place, not rotate)" in one_line(agentcho("run", "--resume", "last", "--reuse", "rotate"))

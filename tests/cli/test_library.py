"""Lookup of scenarios and agents: its order, without executing any of them, and the errors for broken ones."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from shutil import rmtree

import pytest

from agentcho import Agent, Scenario
from agentcho.config import RunConfig
from agentcho.errors import ScenarioError, ScenarioNotFound
from agentcho.games.runs import discovery, library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.lab.compare.compare import read_comparison
from agentcho.lab.sweep.files import read_result
from agentcho.records.record import SavedRun
from agentcho.testing import FakeEngine

from .conftest import Command, one_line

COIN = '''
import agentcho

class Coin(agentcho.Scenario):
    """Calls a coin.

    More.
    """
    name = "{name}"

class FairCoin(Coin):
    pass
'''


def write(path: Path, text: str = COIN, name: str = "coin") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("{name}", name))
    return path


def entry_point(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Installs a distribution `coins` with one scenario in a subpackage."""
    write(folder / "site/coins_for_test/__init__.py", "raise RuntimeError('a parent was imported')")
    write(folder / "site/coins_for_test/toss.py", name="toss")
    write(
        folder / "site/coins_for_test-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: coins_for_test\nVersion: 1\n"
    )
    write(
        folder / "site/coins_for_test-1.dist-info/entry_points.txt",
        "[agentcho.scenarios]\ntoss = coins_for_test.toss:Coin\n",
    )
    monkeypatch.syspath_prepend(folder / "site")


def test_the_shipped_ones_are_there_under_their_names(here: Path) -> None:
    assert {item.name for item in discovery.listing("scenarios")} >= {"prisoners-dilemma", "debate"}  # type: ignore[union-attr]
    assert {item.name for item in discovery.listing("agents")} >= {"prisoner", "debater", "moderator"}  # type: ignore[union-attr]
    assert library.scenario("debate").__name__ == "Debate"
    assert issubclass(library.agent("prisoner"), Agent)
    assert library.agent("prisoner") is library.agent("prisoner"), "one import as long as the file is the same"


def test_here_comes_before_entry_points_and_these_before_shipped(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry_point(monkeypatch, here)
    assert [discovery.find("scenarios", name).origin for name in ("toss", "debate")] == ["entry point", "shipped"]
    mine = write(here / "scenarios/own.py", name="toss")
    write(here / "scenarios/talk.py", name="debate")
    assert discovery.find("scenarios", "toss").path.resolve() == mine
    assert discovery.find("scenarios", "debate").origin == "here"
    assert "coins_for_test" not in sys.modules


def test_a_package_that_is_installed_while_the_process_runs_is_found(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a removed package is no longer found: what is cached is valid only for unchanged folders."""
    (here / "site").mkdir()
    monkeypatch.syspath_prepend(here / "site")
    with pytest.raises(ScenarioNotFound):
        discovery.find("scenarios", "toss")
    entry_point(monkeypatch, here)
    assert discovery.find("scenarios", "toss").origin == "entry point"
    rmtree(here / "site/coins_for_test-1.dist-info")
    with pytest.raises(ScenarioNotFound):
        discovery.find("scenarios", "toss")


def test_a_path_names_a_class_where_there_are_several(here: Path) -> None:
    path = write(here / "coin.py")
    with pytest.raises(ScenarioError, match=r"several classes; choose one, such as .*coin\.py:Coin"):
        library.scenario(str(path))
    assert library.scenario(f"{path}:FairCoin").__name__ == "FairCoin"
    assert library.scenario(f"{path}:FairCoin").name == "fair-coin", "in records as in `agentcho ls`"
    assert discovery.find("scenarios", "coin.py:Coin").summary == "Calls a coin."
    assert discovery.find("scenarios", "coin.py:FairCoin").name == "fair-coin"
    with pytest.raises(ScenarioError, match="defines no class Con"):
        library.scenario("coin.py:Con")
    with pytest.raises(ScenarioNotFound, match=r"there is no file con\.py; .*debate"):
        library.scenario("con.py")


def test_listing_executes_nothing_and_shows_what_is_broken(agentcho: Command, here: Path) -> None:
    write(here / "scenarios/loud.py", "print('EXECUTED')\n" + COIN, name="loud")
    write(here / "scenarios/half.py", "class Half(Scenario:\n")
    ran = agentcho("ls")
    assert ran.code == 0
    assert "EXECUTED" not in ran.out
    for word in ("loud", "Calls a coin.", "half", "(broken)", "half.py:1", "prisoners-dilemma", "moderator"):
        assert word in ran.out
    assert "More." not in ran.out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("class Half(Scenario:\n", r"odd\.py:1: is not valid Python"),
        ("\n\nimport nothing_of_that_name\n" + COIN, r"odd\.py:3: does not import: ModuleNotFoundError"),
        (COIN + "\nraise SystemExit\n", r"odd\.py:\d+: does not import: SystemExit"),
        ("class Scenario: pass\nclass Coin(Scenario): pass\n", "Coin is not a subclass of agentcho.Scenario"),
        ("x = 1\n", "defines no scenario"),
    ],
)
def test_a_broken_file_is_told_with_its_line(here: Path, text: str, told: str) -> None:
    path = write(here / "odd.py", text.replace("class FairCoin(Coin):\n    pass\n", ""))
    with pytest.raises(ScenarioError, match=told):
        library.scenario(str(path))


DERIVED = "from coin_for_test import Coin\nclass Derived(Coin):\n    'A coin of its own.'\nclass Plain: pass\n"
AGENTS = "from agentcho import Agent as A\nclass Ann(A):\n    'Ann.'\n"
BID = "from pydantic import BaseModel\nclass Bid(BaseModel): pass\n"


def test_names_that_a_file_imports_under_other_names_are_read(here: Path) -> None:
    path = write(here / "coin.py", "from agentcho import Scenario as S\nclass Coin(S):\n    'Tossed.'\n")
    assert discovery.find("scenarios", "coin.py").summary == "Tossed."
    assert library.scenario(str(path)).__name__ == "Coin"
    assert discovery.find("agents", str(write(here / "ann.py", AGENTS))).cls == "Ann"


def test_a_class_whose_base_is_in_another_file_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here / "coin_for_test.py")
    write(here / "derived.py", DERIVED)
    with pytest.raises(
        ScenarioError, match=r"no scenario\. By .* bases: Derived\. If .* a scenario .*: derived\.py:Derived$"
    ):
        library.scenario("derived.py")
    assert discovery.find("scenarios", "derived.py:Derived").summary == "A coin of its own."
    with pytest.raises(ScenarioError, match=r"derived\.py:1: .*'coin_for_test'; to import it .*, set PYTHONPATH=\.$"):
        library.scenario("derived.py:Derived")
    monkeypatch.syspath_prepend(here)
    assert issubclass(library.scenario("derived.py:Derived"), Scenario)
    with pytest.raises(ScenarioError, match=r"Derived is not a subclass of agentcho\.Agent$"):
        library.agent("derived.py:Derived")
    with pytest.raises(ScenarioError, match=r"Plain is not a subclass of agentcho\.Scenario$"):
        library.scenario("derived.py:Plain")
    with pytest.raises(ScenarioError, match="defines no class Derive; did you mean 'Derived'"):
        library.scenario("derived.py:Derive")


@pytest.mark.parametrize("name", ["ann.py", "ann.py:Ann"])
def test_a_file_of_agents_says_how_to_play_them(agentcho: Command, here: Path, name: str) -> None:
    write(here / "ann.py", AGENTS)
    with pytest.raises(ScenarioError, match=r"call agentcho\.run\(Ann\('ann'\)\) in it, and run `python ann\.py`$"):
        library.scenario(name)
    write(here / "more.py", AGENTS + BID)
    with pytest.raises(ScenarioError, match=r"but agents; to play agents, .* bases: Bid\."):
        library.scenario("more.py")
    with pytest.raises(ScenarioError, match=r"no agent\. By its source, an agent has a base that is named Agent"):
        library.agent(str(write(here / "bid.py", BID)))
    assert agentcho("ls", name).out.startswith("ann: Ann.")


def test_an_edited_file_is_imported_again(here: Path) -> None:
    path = write(here / "coin.py", name="before")
    first = library.scenario(f"{path}:Coin")
    path.write_text(path.read_text().replace("before", "after!"))
    assert (first.name, library.scenario(f"{path}:Coin").name) == ("before", "after!")


MINE = """
import agentcho

class Mine(agentcho.Agent):
    word = "{name}"
"""
CASTING = """
from pathlib import Path
import agentcho

class Talk(agentcho.Scenario):
    class Outcome(agentcho.Scenario.Outcome):
        word: str

    async def play(self, game):
        mine = game.cast("mine")
        file = Path("agents/mine.py")
        file.write_text(file.read_text().replace("before", "after!"))
        return self.Outcome(word=mine.word)

    def score(self, outcome):
        return {"before": float(outcome.word == "before")}
"""


def test_a_run_plays_and_records_the_code_that_it_imported(here: Path) -> None:
    def digests() -> dict[str, str]:
        return {name: hashlib.sha256((here / name).read_bytes()).hexdigest() for name in ("talk.py", "agents/mine.py")}

    def words() -> list[str]:
        config = RunConfig(model="fake", games=2)
        over = play(RunRequest(scenario, config, engine=FakeEngine(), out=here / "runs", at_once=1)).games
        return [game.outcome["word"] for game in over if game.outcome]

    path = write(here / "talk.py", CASTING)
    write(here / "agents/mine.py", MINE, name="before")
    scenario, before = library.chosen("talk.py", {}), digests()
    path.write_text("an editor was here")
    assert words() == ["before", "before"], "the first game edits the file"
    assert dict(SavedRun(next((here / "runs").iterdir())).info.sources) == before
    assert words() == ["after!", "after!"], "another run imports it again"


def test_all_columns_and_all_cells_play_the_same_code(agentcho: Command, here: Path) -> None:
    write(here / "talk.py", CASTING)
    write(here / "agents/mine.py", MINE, name="before")
    words = ("talk.py", "--model", "fake", "-n", "1")
    assert agentcho("compare", *words, "--json", "c.json").code == 0
    assert {mean.value for mean in read_comparison(here / "c.json").metrics[0].means.values()} == {1}
    write(here / "agents/mine.py", MINE, name="before")
    assert agentcho("sweep", *words, "--grid", "temperature=0,0.5", "--json", "s.json").code == 0
    assert [cell.games[0].score["before"] for cell in read_result(here / "s.json").cells] == [1, 1]


def test_one_is_told_with_its_options_from_its_source(agentcho: Command, here: Path) -> None:
    told = agentcho("ls", "prisoners-dilemma").out
    assert "Cast: alice and bob." in told
    rows = [line.split() for line in told.splitlines()]
    assert ["strategy", "'none'", "Alice's", "private", "instruction"] in rows
    assert ["S", "0", "points", "for", "cooperating", "with", "a", "defector"] in rows
    assert "options" not in agentcho("ls", "prisoner").out
    assert "no scenario or agent named 'nobody'" in agentcho("ls", "nobody").err


def test_in_a_clone_a_copy_goes_beside_the_originals(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "scenarios").symlink_to(discovery.shipped("scenarios"))
    assert agentcho("cp", "debate").out == "mine/debate.py\n"
    assert agentcho("run", "mine/debate.py", "--model", "fake", "--display", "none").code == 0
    assert "already exists" in agentcho("cp", "debate").err


def test_copying_never_overwrites_and_the_copy_comes_first(agentcho: Command, here: Path) -> None:
    assert agentcho("cp", "debate").code == 0
    assert discovery.find("scenarios", "debate").path == Path("scenarios/debate.py")
    ran = agentcho("cp", "debate")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "already exists" in ran.err
    assert agentcho("cp", "moderator", "elsewhere").out == "elsewhere/moderator.py\n"
    assert "known: " in agentcho("cp", "nobody").err
    with pytest.raises(ScenarioError):
        discovery.copy(discovery.find("agents", "moderator"), here / "elsewhere")


def test_the_agents_that_a_scenario_casts_are_known_from_its_source(here: Path) -> None:
    assert library.casts(library.scenario("debate")()) == ["debater", "moderator"]


CASTS = """
import agentcho

class Solver(agentcho.Agent):
    pass

class Sum(agentcho.Scenario):
    async def play(self, game):
        game.cast("{name}", "zoe")
        return self.Outcome()
"""


@pytest.mark.parametrize(
    ("name", "remedy"), [("Solver", "give the class itself: game.cast(Solver, ...)"), ("no", ".py file")]
)
def test_an_agent_that_is_cast_by_an_unknown_name_is_named_with_its_line(
    agentcho: Command, here: Path, name: str, remedy: str
) -> None:
    (here / "sum.py").write_text(CASTS.format(name=name))
    told = one_line(agentcho("run", "sum.py", "--model", "fake"))
    assert told.startswith(f"error: sum.py:9: no scenario or agent named '{name}'; ")
    assert told.endswith(f"{remedy}\n")


def test_a_file_that_is_not_there_is_said_to_be_missing(agentcho: Command) -> None:
    ran = agentcho("run", "nowhere.py", "--model", "fake")
    assert ran.code == 2
    assert "there is no file nowhere.py" in ran.err


def test_a_path_to_no_model_is_not_asked_of_the_hub(agentcho: Command) -> None:
    ran = agentcho("run", "direct", "--model", "./my-model")
    assert ran.code == 2
    assert "no model './my-model': the folder does not exist. Give " in ran.err


@pytest.mark.parametrize(("model", "like"), [("fakee", "fake"), ("understudi", "understudy"), ("smolm2", "smollm2")])
def test_a_misspelt_model_of_ours_is_not_asked_of_the_hub(
    agentcho: Command, monkeypatch: pytest.MonkeyPatch, model: str, like: str
) -> None:
    def load(*_: object, **__: object) -> None:
        raise AssertionError("it was looked for")

    monkeypatch.setattr("agentcho.runner.engine.Engine.load", load)
    ran = agentcho("run", "direct", "--model", model)
    assert ran.code == 2
    assert f"no model '{model}'; did you mean '{like}'? A Hugging Face id is written OWNER/NAME" in ran.err

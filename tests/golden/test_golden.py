"""What code changes must not alter: transcripts, seeds, coins, keys, words. See the README here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from agentcho import Engine
from agentcho.games.runs.discovery import read as sources
from agentcho.games.runs.discovery import shipped
from agentcho.reuse.full import Full
from agentcho.reuse.registry import SELECTIONS, parsed_repair

from ..engines import Engines
from . import plays, understudy
from .files import HERE, difference, digest, last, names, read
from .fixed import fixed
from .make import PARTS, main
from .names import imported, stored
from .options import options
from .reuse import TAGS, keys

NAME = pytest.mark.parametrize("name", plays.GAMES)
QUICK = ("enforce", "deterministic"), ("enforce", "fast")


def same(part: str, name: str, now: Iterable[str]) -> None:
    found = difference(read(HERE, part, name), now)
    assert not found, f"{part} of {name}; if it was meant: python -m tests.golden.make {part} --changed WHY\n{found}"


def test_every_shipped_scenario_is_kept() -> None:
    files = shipped("scenarios").glob("*.py")
    assert {found.name for file in files for found in sources("scenarios", file)} == plays.GAMES.keys()
    for part, games in {"transcripts": plays.GAMES, "calls": plays.GAMES, "understudy": understudy.GAMES}.items():
        assert names(HERE, part) == games.keys()


def test_what_is_kept_is_what_the_readme_gives_a_reason_for() -> None:
    assert last(HERE) == digest(HERE), "say why: python -m tests.golden.make --changed WHY"


def test_seeds_coins_tasks_and_fingerprints_are_what_they_were() -> None:
    same("fixed", "fixed", fixed())


def test_what_a_user_may_type_is_what_it_was() -> None:
    same("options", "options", options())


def test_encodings_are_stored_under_the_same_keys_under_every_way_of_reuse() -> None:
    same("reuse", "reuse", keys())


def test_a_repair_has_the_tag_by_which_it_was_always_hashed() -> None:
    assert {asked: getattr(parsed_repair(asked), "tag", None) for asked in TAGS} == TAGS


def test_a_tag_does_not_depend_on_what_its_class_is_called() -> None:
    choices = [parsed_repair(asked) for asked in TAGS]
    assert {*map(type, choices)} == {*SELECTIONS} - {Full}, "a way to choose tokens has no tag that is kept"
    for choice in choices:
        renamed = type("Renamed", (type(choice),), {})(**vars(choice))
        assert renamed.tag == choice.tag


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_name_that_users_import_still_imports() -> None:
    names = [json.loads(line)["import"] for line in read(HERE, "names", "public")]
    assert "agentcho.First" in names
    assert all(imported(name) is not None for name in names)


def test_formats_files_and_persons_of_hashes_are_called_what_they_were() -> None:
    lost = {*read(HERE, "names", "stored")} - {*stored()}
    assert not lost


@NAME
def test_a_game_on_the_fake_has_its_transcript(name: str) -> None:
    same("transcripts", name, plays.on_fake(name).transcript)


@NAME
def test_each_call_has_its_seed_its_class_and_its_key(name: str) -> None:
    same("calls", name, plays.on_fake(name).calls)


# -- the bundled model ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(engines: Engines) -> Engine:
    return engines.understudy(store_tokens=1 << 14)


def seed_of(game: str) -> int:
    seed: int = json.loads(read(HERE, "understudy", game)[0])["seed"]
    return seed


def kept(game: str, way: str, profile: str) -> Iterator[str]:
    for line in read(HERE, "understudy", game):
        if (json.loads(line)["way"], json.loads(line)["profile"]) == (way, profile):
            yield line


@pytest.mark.parametrize("game", understudy.GAMES)
@pytest.mark.parametrize(
    ("way", "profile"), [pytest.param(*p, marks=[] if p in QUICK else pytest.mark.slow) for p in understudy.PLAYS]
)
def test_the_embedded_model_says_the_same_words_by_the_same_keys(
    game: str, way: str, profile: str, engine: Engine
) -> None:
    found = difference(kept(game, way, profile), understudy.lines(engine, game, seed_of(game), [(way, profile)]))
    assert not found, f"{game}; if it was meant: python -m tests.golden.make understudy --changed WHY\n{found}"


@pytest.mark.slow
@pytest.mark.parametrize("processor", understudy.PROCESSORS)
def test_on_another_processor_it_says_them_too(processor: str) -> None:
    said = understudy.on_processor(processor, {seed_of(game) for game in understudy.GAMES})
    for game in understudy.GAMES:
        same("understudy", game, said[game][str(seed_of(game))])


# -- the maker ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("## Changed\n\n")
    return tmp_path


def test_the_maker_writes_over_nothing_unless_told_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"one": ["a", "b"], "two": ["c"]}
    monkeypatch.setitem(PARTS, "fixed", lambda: said)
    assert main(["fixed"], folder) == 0
    first = digest(folder)
    assert last(folder) == first
    said["one"] = ["a", "B"]
    del said["two"]
    assert main(["fixed"], folder) == 1
    assert "-b\n+B" in capsys.readouterr().out
    assert digest(folder) == first
    assert main(["fixed", "--changed", "letters are\nlarge now"], folder) == 0
    assert (names(folder, "fixed"), read(folder, "fixed", "one")) == ({"one"}, ["a", "B"])
    assert (folder / "README.md").read_text().endswith(f"- `{digest(folder)}` fixed: letters are large now\n")
    assert first != last(folder) == digest(folder)


@pytest.mark.parametrize("args", [["nothing"], ["fixed", "--changed", " "]])
def test_the_maker_refuses_what_it_does_not_know_and_an_empty_reason(args: list[str], folder: Path) -> None:
    with pytest.raises(SystemExit):
        main(args, folder)
    assert not names(folder, "fixed")

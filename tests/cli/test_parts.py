"""A run split into parts, each played by its own process, then merged into what a single process would have written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcho import RunConfig
from agentcho.config import parsed_part
from agentcho.errors import RecordError
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.run_shards import merge
from agentcho.games.runs.runtime import play
from agentcho.lab.collect import collected
from agentcho.records.canonical import canonical_transcript
from agentcho.records.record import RunInfo, RunRecord, SavedRun, find, runs, write_info
from agentcho.records.writer_lock import NAME, WriterLock
from tests.engines import Engines

from .conftest import PLAY, Command, one_line

WORDS = (*PLAY, "--games", "5", "--seed", "1", "--display", "none")
MORTAL = '''
from pathlib import Path
import agentcho

class Mortal(agentcho.Scenario):
    """One agent; game 3 fails where a file says so."""
    name = "mortal"

    async def play(self, game):
        ann = game.cast(agentcho.Agent, name="ann", system="You are Ann.", audience="everyone")
        ben = game.cast(agentcho.Agent, name="ben", system="You are Ben.", audience="everyone")
        await ann.say()
        if game.index == 3 and Path("bad").exists():
            raise OSError("the disk of somebody else")
        await ben.say()
        return self.Outcome()
'''


def games(run: SavedRun) -> Any:
    """The messages and the outcome of each game of a run."""
    return canonical_transcript(run), {number: over._replace(seconds=0) for number, over in run.finished().items()}


def played(agentcho: Command, parts: int, *words: str) -> list[str]:
    """Plays a run in parts; returns their paths."""
    for part in range(1, parts + 1):
        assert agentcho(*(words or WORDS), "--part", f"{part}/{parts}", "--out", f"parts/{part}").code == 0
    return [str(run.path) for part in range(1, parts + 1) for run in runs(Path(f"parts/{part}"))]


@pytest.mark.slow
@pytest.mark.parametrize("parts", [2, 3])
def test_parts_that_are_merged_are_the_whole_run(agentcho: Command, parts: int) -> None:
    paths = played(agentcho, parts)
    told = agentcho("merge", *reversed(paths))
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith(f"5 of 5 games, from {parts} parts\nrecord: runs/")
    assert agentcho(*WORDS, "--out", "whole").code == 0
    merged, whole = find("last", Path("runs")), find("last", Path("whole"))
    assert games(merged) == games(whole)
    same = {"scenario", "options", "config", "engine", "versions", "cast", "tasks", "asked", "sources", "status"}
    assert merged.info.model_dump(include=same) == whole.info.model_dump(include=same)
    assert [SavedRun(Path(path)).info.id for path in reversed(paths)] == list(merged.info.parts)
    folders = [f"parts/{part}" for part in range(1, parts + 1)]
    assert agentcho("merge", *folders, "--out", "other").code == 0, "the parts are as they were"
    assert games(find("last", Path("other"))) == games(whole)


@pytest.mark.slow
def test_what_reads_records_reads_a_merged_one(agentcho: Command) -> None:
    assert agentcho("merge", *played(agentcho, 2)).code == 0
    assert agentcho(*WORDS, "--out", "whole").code == 0
    assert "done: 5 of 5 games over" in agentcho("show", "last").out
    audits = [json.loads(agentcho("audit", "last", "--json", "-", "--out", out).out) for out in ("runs", "whole")]
    assert audits[0]["conclusion"] == audits[1]["conclusion"] == "clean"
    assert audits[0]["matrix"] == audits[1]["matrix"]
    assert collected(Path("runs")).finished.keys() == set(range(5))
    assert [flow.meta["game"] for flow in find("last", Path("runs")).export()] == [*range(5)]
    assert agentcho("show", "last", "--trace", "merged.jsonl").code == 0
    assert agentcho("audit", "merged.jsonl").code in (0, 1)


def test_a_part_is_a_run_of_its_own_games(agentcho: Command) -> None:
    [_, path] = played(agentcho, 2)
    run = SavedRun(Path(path))
    assert [*run.finished()] == [1, 3]
    assert "part 2/2" in agentcho("show", path).out
    assert "done: 2 of 2 games over" in agentcho("show", path).out
    audit = json.loads(agentcho("audit", path, "--json", "-").out)
    assert (audit["conclusion"], audit["subject"]["environment"]["part"]) == ("clean", "2/2")
    assert "2/2" in agentcho("ls", "--runs", "--out", "parts/2").out


@pytest.mark.slow
def test_parts_of_the_understudy_are_its_whole_run(engines: Engines, tmp_path: Path) -> None:
    def run(part: str | None) -> SavedRun:
        config = RunConfig(games=2, part=part, seed=2, max_tokens=12, deterministic=True)
        scenario = library.scenario("prisoners-dilemma")(rounds=1)
        record = play(
            RunRequest(scenario, config, engine=engines.understudy(), out=tmp_path / f"{part}".replace("/", "-"))
        ).record
        assert record is not None
        return SavedRun(record)

    merged = merge([run("1/2"), run("2/2")], tmp_path)
    assert games(merged) == games(run(None))


@pytest.fixture
def mortal(here: Path) -> tuple[str, ...]:
    (here / "mortal.py").write_text(MORTAL)
    return ("run", "mortal.py", "--model", "fake", "--games", "5", "--display", "none")


def test_what_is_missing_is_refused_or_left_to_resume(agentcho: Command, mortal: tuple[str, ...], here: Path) -> None:
    paths = played(agentcho, 3, *mortal)
    assert "no part has finished games 1, 4 of 5" in one_line(agentcho("merge", paths[0], paths[2]))
    assert not (here / "runs").exists()
    told = agentcho("merge", paths[0], paths[2], "--missing", "accept")
    assert told.out.startswith("3 of 5 games, from 2 parts")
    assert "incomplete: `agentcho run --resume" in told.out
    assert agentcho("audit", "last").code == 3, "inconclusive"
    assert agentcho("run", "--resume", "last", "--display", "none").code == 0
    assert agentcho("merge", *paths, "--out", "whole").code == 0
    merged, whole = find("last", Path("runs")), find("last", Path("whole"))
    assert games(merged) == games(whole)
    assert (merged.status, len(merged.info.resumed)) == ("done", 1)


def test_a_game_that_failed_in_its_part_fails_in_the_whole_and_is_resumed(
    agentcho: Command, mortal: tuple[str, ...], here: Path
) -> None:
    (here / "bad").touch()
    ended = [agentcho(*mortal, "--part", f"{part}/2", "--out", f"parts/{part}").code for part in (1, 2)]
    assert ended == [0, 1]
    assert agentcho("merge", *map(str, (here / "parts").glob("*/*"))).code == 0
    assert find("last", Path("runs")).status == "failed"
    (here / "bad").unlink()
    assert agentcho("run", "--resume", "last", "--display", "none").code == 0
    assert agentcho(*mortal, "--out", "whole").code == 0
    merged, whole = find("last", Path("runs")), find("last", Path("whole"))
    assert games(merged) == games(whole)


def test_a_part_goes_on_as_that_part(agentcho: Command, mortal: tuple[str, ...], here: Path) -> None:
    (here / "bad").touch()
    assert agentcho(*mortal, "--part", "2/2").code == 1
    (here / "bad").unlink()
    assert agentcho("run", "--resume", "last", "--display", "none").code == 0
    assert sorted(find("last", Path("runs")).finished()) == [1, 3]
    assert "part (2/2, not 1/2)" in one_line(agentcho("run", "--resume", "last", "--part", "1/2"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (("--seed", "2"), "what differs: seed (1, not 2)"),
        (("--games", "7"), "what differs: games (5, not 7)"),
        (("--set", "rounds=1"), "what differs: option rounds"),
        (("--temperature", "0.1"), "what differs: temperature (0.7, not 0.1)"),
    ],
)
def test_parts_that_were_played_otherwise_are_refused(agentcho: Command, changed: tuple[str, ...], told: str) -> None:
    [one, _] = played(agentcho, 2)
    assert agentcho(*WORDS, *changed, "--part", "2/2", "--out", "other").code == 0
    assert told in one_line(agentcho("merge", one, str(find("last", Path("other")).path)))


def edited(path: str, **changes: Any) -> None:
    file = Path(path) / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def by_threads(path: str, number: int, deterministic: bool = False) -> None:
    """Change how many threads a part was played with."""
    info = SavedRun(Path(path)).info
    config = json.loads((Path(path) / "run.json").read_text())["config"] | {"deterministic": deterministic}
    edited(path, engine=info.engine | {"threads": str(number)}, config=config)


def plain(path: str) -> None:
    edited(path, engine=SavedRun(Path(path)).info.engine | {"markers": "plain"})


def torn(path: str) -> None:
    with (Path(path) / "outcomes.jsonl").open("a") as file:
        file.write('{"game": 3')


def foreign(path: str) -> None:
    file = Path(path) / "outcomes.jsonl"
    file.write_text(file.read_text().replace('"game": 3', '"game": 2'))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path: edited(path, engine={"model": "fake", "weights": "other"}), "the model's weights"),
        (plain, "the model's markers"),
        (lambda path: edited(path, engines={"small": {"model": "s"}}), "the model small"),
        (lambda path: edited(path, sources={"x.py": "1"}), "the source (x.py has changed)"),
        (lambda path: edited(path, versions={"torch": "1"}), "the version of torch"),
        (lambda path: edited(path, scenario="debate"), "the scenario (prisoners-dilemma, not debate)"),
        (torn, "outcomes.jsonl: its last line is incomplete"),
        (foreign, "it contains game 2, outside its part 2/2"),
        (lambda path: (Path(path) / "heard.jsonl").unlink(), "heard.jsonl: the file is missing"),
        (lambda path: (Path(path) / "run.json").unlink(), "no run "),
    ],
    ids=["weights", "markers", "models", "source", "version", "scenario", "torn", "foreign", "no-file", "no-run"],
)
def test_a_part_that_does_not_fit_is_refused_and_nothing_is_left(
    agentcho: Command, here: Path, spoil: Callable[[str], None], told: str
) -> None:
    paths = played(agentcho, 2)
    spoil(paths[1])
    assert told in one_line(agentcho("merge", *paths))
    assert not [*(here / "runs").glob("*")]


def test_parts_may_be_played_with_different_numbers_of_threads(agentcho: Command) -> None:
    one, two = played(agentcho, 2)
    by_threads(one, 1)
    by_threads(two, 8)
    assert agentcho("merge", one, two).code == 0


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_part_of_an_earlier_version_does_not_tell_its_threads(agentcho: Command, order: tuple[int, int]) -> None:
    paths = played(agentcho, 2)
    by_threads(paths[0], 8, deterministic=True)
    edited(paths[1], config=json.loads((Path(paths[0]) / "run.json").read_text())["config"] | {"part": "2/2"})
    assert agentcho("merge", *(paths[place] for place in order)).code == 0


def test_threads_differ_in_bits_so_parts_of_the_deterministic_profile_share_their_number(agentcho: Command) -> None:
    one, two = played(agentcho, 2)
    by_threads(one, 1, deterministic=True)
    by_threads(two, 8, deterministic=True)
    assert "the model's threads (1, not 8)" in agentcho("merge", one, two).err


@pytest.mark.slow
def test_a_game_in_two_parts_and_a_part_under_way_are_refused(agentcho: Command) -> None:
    [one, two] = played(agentcho, 2)
    assert "contain games 0, 2, 4" in one_line(agentcho("merge", one, two, one))
    assert agentcho(*WORDS, "--out", "whole").code == 0
    assert "contain games 1, 3" in one_line(agentcho("merge", two, str(find("last", Path("whole")).path)))
    with WriterLock(Path(two) / NAME):
        assert "is being written by process" in one_line(agentcho("merge", one, two))
    with pytest.raises(RecordError, match="no parts to merge"):
        merge([], Path())


def test_what_an_audit_says_of_clients_it_says_of_them_all_in_the_whole(agentcho: Command) -> None:
    [one, two] = played(agentcho, 2)
    edited(one, clients={"k": ["ann"]})
    edited(two, clients={"k": ["ben"], "other": ["cem"]})
    assert agentcho("merge", one, two).code == 0
    assert find("last", Path("runs")).info.clients == {"k": ("ann", "ben"), "other": ("cem",)}
    assert "AC011" in agentcho("audit", "last").out


def test_a_part_that_goes_on_while_it_is_merged_is_no_part_of_the_whole(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = played(agentcho, 2)

    def written(path: Path, info: RunInfo) -> None:
        write_info(path, info)
        with RunRecord.go_on(SavedRun(Path(paths[0])), {}):
            pass

    monkeypatch.setattr("agentcho.games.runs.run_shards.write_info", written)
    assert "continued while it was being merged" in one_line(agentcho("merge", *paths))
    assert not [*(here / "runs").glob("*")]


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "1/2/3", "-1/2", "a/b", "1/0", "", "6/6"])
def test_what_is_no_part_is_told_before_anything_is_loaded(agentcho: Command, no_model: None, part: str) -> None:
    told = one_line(agentcho(*WORDS, "--part", part))
    assert ("K/N" in told) or (part == "6/6" and "part 6/6 has no games, because the run has only 5" in told)


@pytest.mark.parametrize(("total", "parts"), [(1, 1), (5, 2), (7, 7), (1000, 9)])
def test_every_game_is_in_one_part(total: int, parts: int) -> None:
    found = [number for part in range(1, parts + 1) for number in parsed_part(f"{part}/{parts}", total)]
    assert sorted(found) == [*range(total)]

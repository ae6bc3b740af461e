"""Comparisons on the fake engine: paired by task and seed, resumed where they stopped, written as a whole."""

from __future__ import annotations

import csv
import json
import threading
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import BaseModel, Field

from agentcho import Agent, Game, Scenario
from agentcho.config import RunConfig
from agentcho.errors import AdapterError, GamesFailed, RecordBroken, ResumeMismatch, ScenarioError
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.lab.collect import Playing, collected
from agentcho.lab.compare.columns import Column, columns
from agentcho.lab.compare.compare import Comparing, Effort, forced_words, read_comparison
from agentcho.lab.compare.comparison import Comparison
from agentcho.lab.compare.fidelity import apart
from agentcho.lab.compare.files import write
from agentcho.lab.compare.judge import TextPair, prefer
from agentcho.lab.display.compare import text
from agentcho.message import Metadata
from agentcho.protocol.call import Decode
from agentcho.scenario import Judged
from agentcho.testing import FakeEngine

NOTHING = Effort(fidelity=0, timed=0)
THREE = columns("baseline,choreographed:audit,choreographed:enforce")


def silent(what: str, done: int, of: int) -> None:
    """Ignores progress."""


def compare(
    scenario: Scenario,
    config: RunConfig,
    by: tuple[Column, ...],
    folder: Path,
    engine: FakeEngine | None = None,
    judge: FakeEngine | None = None,
) -> Comparison:
    playing = Playing(scenario, config, engine or FakeEngine())
    return Comparing(playing, by, folder, silent, NOTHING).run("agentcho compare", judge)


class Vote(BaseModel):
    """22 of them."""

    sure: bool
    doubt: Annotated[int, Field(ge=0, le=10)]


class Voting(Scenario):
    """Alice says her vote as JSON, which is the message `alice.0`; Bob speaks."""

    name = "voting"

    def paired(self, message: Metadata) -> bool:
        return message.id == "alice.0"

    async def play(self, game: Game) -> Scenario.Outcome:
        alice, bob = game.cast(Agent, "alice"), game.cast(Agent, "bob")
        await game.announce("The word is xyzzy.", to="alice")
        await alice.answer(Vote, to="everyone")
        await bob.say(to="everyone")
        return self.Outcome()


@pytest.mark.parametrize("words", [None, "track"])
def test_an_answer_that_is_sampled_in_private_is_forced_by_the_id_that_it_is_told_under(
    tmp_path: Path, words: Any
) -> None:
    config = RunConfig(model="fake", words=words)
    played = play(RunRequest(Voting(), config, engine=FakeEngine(), out=tmp_path / "a"))
    assert played.record is not None
    games = collected(tmp_path / "a")
    forced = forced_words(Voting(), games)
    assert [[*words] for words in forced.values()] == [["alice.0"]]
    assert {entry.message.id for entry in games.said[0]} >= ({"alice.0.sampled"} if words else {"alice.0"})


def run(
    folder: Path,
    scenario: Scenario | None = None,
    games: int = 4,
    engine: FakeEngine | None = None,
    by: tuple[Column, ...] = THREE,
    seed: int = 0,
) -> Comparison:
    chosen = scenario or library.scenario("multi-qa")()
    config = RunConfig(model="fake", games=games, seed=seed, max_tokens=8)
    return compare(chosen, config, by, folder, engine)


def test_every_column_plays_the_same_tasks_with_the_same_seeds(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert found.names == ("baseline", "choreographed:audit", "choreographed:enforce")
    asked = []
    for column in THREE:
        games = collected(column.folder(tmp_path))
        assert sorted(games.finished) == [0, 1, 2, 3]
        asked.append([[e.message.text for e in games.said[n] if e.message.author is None] for n in range(4)])
        assert {w.meta["seed"] for w in games.workflows.values()} == {0}
    assert asked[0] == asked[1] == asked[2]
    assert len({tuple(texts) for texts in asked[0]}) == 4
    assert [metric.name for metric in found.metrics] == ["all right", "first right", "last right"]
    assert all(metric.binary for metric in found.metrics)
    assert found.without == dict.fromkeys(found.names, 0)


class Wordless(Scenario):
    """Nobody says anything, as if an `await` were missing."""

    class Outcome(Scenario.Outcome):
        """Nothing."""

        done: bool = True

    async def play(self, game: Game) -> Outcome:
        game.cast(Agent, "ann")
        await game.announce("Begin.")
        return self.Outcome()

    def score(self, outcome: Any) -> dict[str, float]:
        """One."""
        return {"done": 1.0}


@pytest.mark.parametrize("effort", [Effort(1, 0), Effort(0, 1)])
def test_games_without_generated_words_are_refused_where_words_are_measured(tmp_path: Path, effort: Effort) -> None:
    config = RunConfig(model="fake", games=2)
    playing = Playing(Wordless(), config, FakeEngine())
    told = r"nothing to compare: no agent generated a message in the 2 games of baseline; .*`await ann.say\(\)`"
    with pytest.raises(ScenarioError, match=told):
        Comparing(playing, THREE, tmp_path, silent, effort).run("agentcho compare")
    assert [each.value for each in compare(Wordless(), config, THREE, tmp_path).metrics[0].means.values()] == [1, 1, 1]


class Adaptable(FakeEngine):
    """A training writes to an adapter while it is loaded, if there is anything to write."""

    def __init__(self, written: str | None) -> None:
        super().__init__()
        self.written = written

    def adapted(self, adapter: str) -> FakeEngine:
        if self.written is not None:
            (Path(adapter) / "adapter_model.safetensors").write_text(self.written)
        return self


def test_games_are_of_the_adapter_that_the_column_names(tmp_path: Path) -> None:
    adapter = tmp_path / "tuned"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    (adapter / "adapter_model.safetensors").write_text("0")
    config = RunConfig(games=4, max_tokens=8)
    by = columns(f"baseline,choreographed:audit@{adapter}")
    with pytest.raises(AdapterError, match="tuned: it has changed since this command began"):
        compare(library.scenario("multi-qa")(), config, by, tmp_path / "c", Adaptable("1"))
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["request.json"]
    again = columns(f"baseline,choreographed:audit@{adapter}")
    found = compare(library.scenario("multi-qa")(), config, again, tmp_path / "d", Adaptable(None))
    assert found.names == ("baseline", "choreographed:audit@tuned")


class Filling(FakeEngine):
    """Counts the engines with adapters that are open, when a game is played and at most."""

    def __init__(self, opened: list[FakeEngine], most: list[int]) -> None:
        super().__init__()
        self.opened, self.most = opened, most

    def adapted(self, adapter: str) -> Filling:
        found = Filling(self.opened, self.most)
        self.opened.append(found)
        return found

    def submit(self, calls: Any, turn: Any = None) -> Any:
        self.most.append(len(self.opened))
        return super().submit(calls, turn)

    def close(self) -> None:
        self.opened.remove(self)
        super().close()


def test_the_memory_of_one_engine_with_an_adapter_is_in_use_at_a_time(tmp_path: Path) -> None:
    names = list[str]()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text("{}")
        (tmp_path / name / "adapter_model.safetensors").write_text(name)
        names.append(f"choreographed:audit@{tmp_path / name}")
    opened, most = list[FakeEngine](), list[int]()
    config = RunConfig(games=2, max_tokens=8)
    compare(
        library.scenario("multi-qa")(),
        config,
        columns(",".join(["baseline", *names])),
        tmp_path / "c",
        Filling(opened, most),
    )
    assert (set(most), opened) == ({0, 1}, [])


class Spent(Exception):
    """Stands in for a power failure."""


class Mortal(FakeEngine):
    """Counts decodes, and raises Spent after `left` of them."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left
        self.decodes = 0

    def submit(self, calls: Any, turn: Any = None) -> Any:
        for call in calls:
            if isinstance(call, Decode):
                self.decodes += 1
                if self.decodes > self.left:
                    raise Spent
        return super().submit(calls, turn)


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 1, 5, 11])
def test_a_killed_comparison_goes_on_where_it_stopped_and_repeats_nothing(tmp_path: Path, left: int) -> None:
    dying = Mortal(left)
    with pytest.raises(GamesFailed, match="Spent"):
        run(tmp_path, engine=dying)
    over = sum(len(collected(column.folder(tmp_path)).finished) for column in THREE)
    again = Mortal(10**6)
    resumed = run(tmp_path, engine=again)
    assert again.decodes == 12 - over
    assert resumed.metrics == run(tmp_path / "other").metrics
    idle = Mortal(0)
    assert run(tmp_path, engine=idle).metrics == resumed.metrics


def test_more_games_and_columns_use_what_is_there(tmp_path: Path) -> None:
    run(tmp_path, games=2, by=THREE[:2])
    engine = Mortal(10**6)
    found = run(tmp_path, games=3, engine=engine)
    assert engine.decodes == 1 + 1 + 3
    assert found.metrics[0].means["baseline"].games == 3


def test_a_folder_is_of_one_comparison(tmp_path: Path) -> None:
    run(tmp_path, games=1)
    with pytest.raises(ResumeMismatch, match="what differs: digest, seed"):
        run(tmp_path, games=1, seed=7)
    with pytest.raises(ResumeMismatch, match="what differs: options"):
        run(tmp_path, library.scenario("multi-qa")(layout="serial"), games=1)
    with pytest.raises(ResumeMismatch, match="what differs: the first column"):
        run(tmp_path, games=1, by=THREE[1:])
    (tmp_path / "request.json").write_text("{}")
    with pytest.raises(RecordBroken, match="is not a request of a comparison"):
        run(tmp_path)


def test_games_of_other_code_or_other_options_are_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, games=1)
    known = library.sources
    with monkeypatch.context() as patched:
        patched.setattr(library, "sources", lambda *given: dict.fromkeys(known(*given), "edited"))
        with pytest.raises(ResumeMismatch, match=r"what differs: the source \(.* has changed\).* Give another --out"):
            run(tmp_path, games=2)
    config = RunConfig(model="fake", games=1, max_tokens=8, deterministic=True)
    with pytest.raises(ResumeMismatch, match=r"what differs: deterministic \(False, not True\)"):
        compare(library.scenario("multi-qa")(), config, THREE, tmp_path)
    assert run(tmp_path, games=2).metrics[0].means["baseline"].games == 2


class Musing(Agent):
    """Thinks and speaks."""

    audience = "everyone"


class Duel(Scenario):
    """Each agent thinks, then speaks."""

    name = "duel"

    class Outcome(Scenario.Outcome):
        """The total length of the spoken messages."""

        length: int

    async def play(self, game: Game) -> Any:
        a, b = game.cast(Musing, "ann"), game.cast(Musing, "ben")
        await game.together(a.think("plan"), b.think("plan"))
        said = [await a.say(), await b.say()]
        return self.Outcome(length=sum(len(message.text) for message in said))

    def paired(self, message: Metadata) -> bool:
        return message.audience.members is not None

    def score(self, outcome: Any) -> dict[str, float]:
        return {"length": float(outcome.length)}


def test_paired_words_are_those_of_the_first_column(tmp_path: Path) -> None:
    calls: list[str] = []

    def says(call: Decode, prompt: str) -> str:
        calls.append(prompt)
        return f"It is thing {len(calls)}."

    run(tmp_path, Duel(), games=2, engine=FakeEngine(says))
    columns_ = [collected(column.folder(tmp_path)) for column in THREE]
    for game in range(2):
        plans = [[e.message.text for e in c.said[game] if e.message.id in {"ann.1", "ben.1"}] for c in columns_]
        assert plans[0] == plans[1] == plans[2]
        words = [[e.message.text for e in c.said[game] if e.message.id in {"ann.2", "ben.2"}] for c in columns_]
        assert words[0] != words[1] != words[2]


class Doomed(Duel):
    """Every second game reaches a limit."""

    name = "doomed"

    async def play(self, game: Game) -> Any:
        a = game.cast(Musing, "ann")
        for _ in range(3 if game.index % 2 else 1):
            await a.say()
        return self.Outcome(length=1)


def test_games_without_an_outcome_are_counted_and_in_no_pair(tmp_path: Path) -> None:
    config = RunConfig.model_validate({"model": "fake", "games": 4, "limits": {"agent_messages": 2}})
    found = compare(Doomed(), config, THREE[:2], tmp_path)
    assert found.without == {"baseline": 2, "choreographed:audit": 2}
    assert found.metrics[0].differences["choreographed:audit"].games == 2


def test_a_result_is_written_whole_and_read_back(tmp_path: Path) -> None:
    found = run(tmp_path / "games")
    table, whole, picture = write(found, tmp_path)
    assert read_comparison(whole) == found
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == len(list(found.rows())) == 3 * (3 + 2)
    assert {row["what"] for row in rows} == {"mean", "difference"}
    for row, expected in zip(rows, found.rows(), strict=True):
        assert float(row["value"]) == expected.value
        assert (row["p"] == "") == (expected.p is None)
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.stat().st_size > 5_000
    whole.write_text(json.dumps({"format": "agentcho-comparison/2"}))
    with pytest.raises(RecordBroken, match="is not a comparison of this version"):
        read_comparison(whole)


def judging(call: Decode, prompt: str) -> str:
    """Prefers the longer text, and text A if they are equally long."""
    a, b = (prompt.split(f"Text {which}:")[1].split("Text B:")[0].split("Which text")[0] for which in "AB")
    return "A" if len(a.strip()) >= len(b.strip()) else "B"


def pair(first: str, other: str) -> TextPair:
    return TextPair(Judged("Write.", first), Judged("Write.", other))


def test_a_text_wins_where_it_is_preferred_in_both_orders() -> None:
    engine = FakeEngine(answer=judging)
    pairs = [pair("a", "a longer text"), pair("a longer text", "a"), pair("same", "size"), pair("b", "longer too")]
    told: list[int] = []
    threads: set[threading.Thread] = set()

    def tell(done: int) -> None:
        told.append(done)
        threads.add(threading.current_thread())

    found = prefer(engine, pairs * 5, tell, at_once=8)
    assert threading.main_thread() not in threads  # a judge on the main thread would slow down what follows
    assert (found.games, found.wins, found.losses, found.ties) == (20, 10, 5, 5)
    assert found.share == pytest.approx(2 / 3)
    assert found.span.low < 2 / 3 < found.span.high
    assert told == [8, 16, 20]
    assert engine.pages == 0


def test_a_comparison_asks_a_judge_about_what_its_scenario_offers(tmp_path: Path) -> None:
    config = RunConfig(model="fake", games=3, max_tokens=8)
    scenario, judge = library.scenario("branch-solve-merge")(), FakeEngine(answer=judging)
    found = compare(scenario, config, THREE, tmp_path, judge=judge)
    assert set(found.preferences) == set(found.names[1:])
    assert all(told.games == 3 for told in found.preferences.values())
    assert found.judge == judge.fingerprint
    assert "agentcho/lab/compare:" in found.machine["trees"]
    assert "texts preferred by fake to those of baseline" in text(found)
    assert sum(row.metric == "preferred by the judge" for row in found.rows()) == 2


def test_distances_are_worked_out_row_by_row() -> None:
    one = np.log(np.array([[0.5, 0.5], [0.9, 0.1]], dtype=np.float32))
    other = np.log(np.array([[0.5, 0.5], [0.2, 0.8]], dtype=np.float32))
    held = apart(one, other)
    assert held.kl[0] == 0
    assert held.kl[1] == pytest.approx(0.9 * np.log(0.9 / 0.2) + 0.1 * np.log(0.1 / 0.8), abs=1e-6)
    assert list(held.same) == [True, False]

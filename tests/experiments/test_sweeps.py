"""Sweeps on the fake engine: paired, resumed where they stopped, with each failure in its cell."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import agentcho
from agentcho.config import ModelConfig, RunConfig
from agentcho.engine.lora_adapter import Adapter
from agentcho.errors import CannotWrite, ConfigError, ModelError, RecordBroken, ResumeMismatch
from agentcho.games.play.game_models import LoadedEngines
from agentcho.games.runs import runtime
from agentcho.lab.collect import Interrupted
from agentcho.lab.display.sweep import text
from agentcho.lab.sweep.axes import Value, axes
from agentcho.lab.sweep.files import read_result
from agentcho.lab.sweep.folder import Folder
from agentcho.lab.sweep.grid import as_model, wanted
from agentcho.lab.sweep.plan import planned
from agentcho.lab.sweep.run import prepared
from agentcho.lab.sweep.stage import LocalStage
from agentcho.records.record import RunRecord, SavedRun
from agentcho.testing import FakeEngine

from .sweeps import Counts, Known, asked, sweep

TWO: dict[str, list[Any]] = {"plus": [0, 1], "temperature": [0, 0.7]}


@pytest.fixture(autouse=True)
def no_picture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips pictures, which are slow to draw, except in one test."""
    if "written" not in request.node.name:
        monkeypatch.setattr("agentcho.lab.sweep.run.lacking", lambda: "a picture")


def over(out: Path) -> int:
    """The number of finished games in a folder."""
    return sum(len(SavedRun(file.parent).finished()) for file in out.glob("cells/*/*/run.json"))


def test_every_cell_plays_the_same_games_and_differences_are_paired(tmp_path: Path) -> None:
    found = sweep(tmp_path, TWO, games=5, own={"many": 1})
    assert [row.name for row in found.rows] == [
        "plus=0 temperature=0",
        "plus=0 temperature=0.7",
        "plus=1 temperature=0",
        "plus=1 temperature=0.7",
    ]
    score = found.metrics[0]
    by_game = [[game.score["score"] for game in cell.games] for cell in found.cells]
    assert by_game[0] == by_game[1] == [value - 1 for value in by_game[2]]
    assert len(set(by_game[0])) > 1, "the same tasks in every cell, and not one task in every game"
    assert {row.reference for row in found.rows} == {None, "plus=0 temperature=0"}
    assert score.means["plus=0 temperature=0"].span.low < score.means["plus=0 temperature=0"].span.high
    (same, more, both) = (score.differences[row.name] for row in found.rows[1:])
    assert (same.value, more.value, both.value) == (0, 1, 1)
    assert (more.span.low, more.span.high, more.games) == (1, 1, 5), "paired, so nothing is left of the tasks"


@pytest.mark.slow
def test_each_option_by_itself_counts_each_game_once(tmp_path: Path) -> None:
    found = sweep(tmp_path, {"plus": [0, 1, 3], "top_p": [0.5, 1.0], "run.seed": [1, 2]}, games=3)
    effects = {(each.axis, each.value): each.found for each in found.effects if each.metric == "score"}
    assert {at: each.value for at, each in effects.items()} == {("plus", "1"): 1, ("plus", "3"): 3, ("top_p", "1.0"): 0}
    assert {each.games for each in effects.values()} == {6}, "three games of two seeds, over all cells"
    assert all(each.holm >= each.p for each in effects.values())


def test_cells_that_differ_in_their_seed_are_one_row_of_more_games(tmp_path: Path) -> None:
    found = sweep(tmp_path, {"run.seed": [1, 2], "plus": [0, 1]}, games=3)
    assert [row.name for row in found.rows] == ["plus=0", "plus=1"]
    assert len(found.cells) == 4
    assert found.metrics[0].means["plus=0"].games == 6
    assert found.metrics[0].differences["plus=1"].games == 6


def test_a_task_of_a_file_that_several_seeds_play_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text("".join(f'{{"question": "{"?" * number}", "answers": ["1"]}}\n' for number in range(1, 5)))
    found = sweep(tmp_path / "out", {"run.seed": [1, 2, 3], "plus": [0, 1], "tasks": [str(file)]}, games=4)
    assert len(found.cells) == 6
    (score, *_) = found.metrics
    assert {mean.games for mean in score.means.values()} == {4}
    assert [each.games for each in score.differences.values()] == [4]


def test_rows_that_play_other_tasks_are_in_no_pair(tmp_path: Path) -> None:
    grid: dict[str, list[Any]] = {"tasks": ["arithmetic:steps=1", "arithmetic:steps=4"], "plus": [0, 1]}
    found = sweep(tmp_path, grid, games=3)
    first, second = "tasks=arithmetic:steps=1 plus=0", "tasks=arithmetic:steps=4 plus=0"
    assert [row.reference for row in found.rows] == [None, first, None, second]
    assert [each.value for each in found.metrics[0].differences.values()] == [1, 1]
    assert [(each.axis, each.found.games) for each in found.effects if each.metric == "score"] == [("plus", 3)]
    many = sweep(tmp_path / "many", {"many": [1, 2]}, games=2)
    assert [row.reference for row in many.rows] == [None, None], "game 1 draws other tasks where a game draws more"


def stop(monkeypatch: pytest.MonkeyPatch, out: Path, left: int) -> None:
    """Interrupts a sweep after `left` games."""
    with monkeypatch.context() as patch:
        patch.setattr(Known, "left", left)
        with pytest.raises(Interrupted):
            sweep(out, {"plus": [0, 1]}, games=4, at_once=1)


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 5])
def test_a_sweep_that_was_stopped_goes_on_and_repeats_nothing(
    tmp_path: Path, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop(monkeypatch, tmp_path, left)
    before, again = over(tmp_path), Counts()
    assert before == left
    found = sweep(tmp_path, {"plus": [0, 1]}, games=4, engine=again)
    assert again.decodes == 8 - before
    assert found.whole
    assert found.metrics == sweep(tmp_path / "other", {"plus": [0, 1]}, games=4).metrics
    assert sweep(tmp_path, {"plus": [0, 1]}, games=4, engine=Counts(0)).metrics == found.metrics


def test_what_was_said_in_a_game_that_was_stopped_is_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paid words are not requested twice: a stopped game has two records, with the same words."""
    stop(monkeypatch, tmp_path, 2)
    found = prepared(asked(tmp_path, {"plus": [0, 1]}))
    folder, cell = Folder(tmp_path), found.cells[0]
    assert (sorted(folder.there(cell).over), [*folder.begun(cell, (2, 3)).before]) == ([0, 1], [2])
    sweep(tmp_path, {"plus": [0, 1]}, games=4)
    first, second = folder.records(cell)
    words = [[e.message.text for e in run.games()[2] if e.message.kind == "decode"] for run in (first, second)]
    assert words[0] == words[1] != []
    assert {e.attempt for e in second.games()[2]} == {2}


@pytest.mark.slow
def test_more_games_and_more_values_play_only_what_lacks(tmp_path: Path) -> None:
    sweep(tmp_path, {"plus": [0, 1]}, games=2)
    engine = Counts()
    found = sweep(tmp_path, {"plus": [0, 1], "temperature": [0.7, 1.0]}, games=3, engine=engine)
    assert engine.decodes == 2 * 1 + 2 * 3, "temperature 0.7 is what it was, with a game more"
    assert all(cell.over == 3 for cell in found.cells)
    few = sweep(tmp_path, {"plus": [1]}, games=1, engine=Counts(0))
    assert [cell.over for cell in few.cells] == [1]


@pytest.mark.slow
def test_a_changed_grid_is_told(tmp_path: Path) -> None:
    def change(grid: dict[str, list[Any]], **more: Any) -> Any:
        found = prepared(asked(tmp_path, grid, games=1, **more))
        return planned(found, Folder(tmp_path)).change

    sweep(tmp_path, {"plus": [0, 1]}, games=1)
    assert change({"plus": [0, 1]}) == ((), ())
    assert change({"plus": [0, 2]}) == (("plus=2",), ("plus=1",))
    assert change({"plus": [0, 1, 2]}, filters=["plus=2"]) == (("plus=2",), ())
    sweep(tmp_path, {"plus": [0, 2]}, games=1)
    assert change({"plus": [0, 2]}) == ((), ()), "what was told once is not told again"


def test_a_filter_names_values_with_commas_in_a_json_list() -> None:
    found = axes({"tasks": ["a,b.jsonl", "c.jsonl"], "plus": [0, 1]}, (), Known)
    assert wanted(['tasks=["a,b.jsonl"]', "plus!=[0]"], found) == {
        "tasks": (frozenset({"a,b.jsonl"}), True),
        "plus": (frozenset({"0"}), False),
    }
    assert wanted(["plus=0, 1.0"], found) == {"plus": (frozenset({"0", "1"}), True)}


def test_a_folder_of_runs_is_no_sweep(tmp_path: Path) -> None:
    RunRecord.create(tmp_path, "talk", {}, RunConfig(), {}).close("done")
    with pytest.raises(ResumeMismatch, match=r"1 record of runs, such as .*-talk, but no sweep; give another --out"):
        sweep(tmp_path, {"plus": [0, 1]}, games=1)


def test_a_folder_is_of_one_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(tmp_path, {"plus": [0, 1]}, games=1)
    with pytest.raises(
        ResumeMismatch, match=r"holds another sweep; what differs: seed \(0, not 7\). Give another --out"
    ):
        sweep(tmp_path, {"plus": [0, 1]}, games=1, run={"seed": 7})
    with pytest.raises(ResumeMismatch, match="another sweep; what differs: plus"):
        sweep(tmp_path, {"plus": [5, 6]}, games=1)
    monkeypatch.setattr(Known, "name", "other")
    with pytest.raises(ResumeMismatch, match=r"what differs: the scenario \(known, not other\)"):
        sweep(tmp_path, {"plus": [0, 1]}, games=1)
    (tmp_path / "request.json").write_text("{}")
    with pytest.raises(RecordBroken, match=r"request.json: is not a request of a sweep; give another --out"):
        sweep(tmp_path, {"plus": [0, 1]}, games=1)


def test_a_source_that_has_changed_is_told_before_anything_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(tmp_path, {"plus": [0]}, games=1)
    monkeypatch.setattr("agentcho.games.runs.library.sources", lambda *given: {"known.py": "0" * 64})
    with pytest.raises(ResumeMismatch, match=r"the source \(known.py has changed\)"):
        sweep(tmp_path, {"plus": [0]}, games=2, engine=Counts(0))


@pytest.mark.slow
def test_a_game_that_fails_is_counted_and_leaves_the_others_alone(tmp_path: Path) -> None:
    found = sweep(tmp_path, {"fails": [[], [1, 2]]}, games=4)
    assert [cell.over for cell in found.cells] == [4, 2]
    assert not found.whole
    trouble = found.cells[1].trouble
    assert trouble is not None
    assert trouble.startswith("2 failed with an error, first in game 1: error: ValueError")
    assert found.metrics[0].means["fails=[1, 2]"].games == 2
    shown = text(found)
    assert "2 of 4" in shown
    assert "fails=[1, 2]: 2 failed with an error, first in game 1: error: ValueError" in shown
    again = Counts()
    sweep(tmp_path, {"fails": [[], [1, 2]]}, games=4, engine=again)
    assert again.decodes == 2, "those that failed are played again, and no other"


class Models:
    """Loads engines of any name except `broken`, and counts those that are loaded."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.here = 0

    def load(self, config: RunConfig, tell: Any = None, share: float = 1) -> FakeEngine:
        models, self.loaded = self, [*self.loaded, config.model]
        if config.model == "broken":
            raise ModelError("broken cannot be read")
        assert self.here == 0, "one at a time"
        self.here += 1

        class Closing(FakeEngine):
            def close(self) -> None:
                models.here -= 1
                super().close()

        return Closing()


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Models:
    found = Models()
    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", found.load)
    monkeypatch.setattr("agentcho.lab.sweep.stage.check_loadable", lambda config, markers: None)
    return found


def named(*names: str) -> list[Value]:
    return [as_model(name, ModelConfig(model=name)) for name in names]


def test_each_model_is_loaded_once_and_none_beside_another(tmp_path: Path, models: Models) -> None:
    found = sweep(tmp_path, {"plus": [0, 1], "temperature": [0, 1]}, games=2, models=named("one", "two", "three"))
    assert (models.loaded, models.here) == (["one", "two", "three"], 0)
    assert len(found.cells) == 12
    assert found.whole
    sweep(tmp_path, {"plus": [0, 1], "temperature": [0, 1]}, games=2, models=named("one", "two", "three", "four"))
    assert models.loaded == ["one", "two", "three", "four"], "what is played is not loaded again"


def test_a_model_that_does_not_load_ends_its_own_cells_alone(tmp_path: Path, models: Models) -> None:
    found = sweep(tmp_path, {"plus": [0, 1]}, games=2, models=named("broken", "two"))
    assert [(cell.over, cell.left) for cell in found.cells] == [(0, 2), (2, 0), (0, 2), (2, 0)]
    assert found.cells[0].error == "broken cannot be read"
    first = "plus=0 model=two"
    assert [row.reference for row in found.rows] == [first, None, first, first], "nothing is held against no games"
    assert [*found.metrics[0].differences] == ["plus=1 model=two"]
    shown = text(found)
    assert "0 of 2" in shown
    assert "plus=1 model=broken: not played: broken cannot be read" in shown


class Weighed(Counts):
    """An engine whose fingerprint has the digests of its weights and of its adapter."""

    def __init__(self, weights: str, adapter: str | None = None) -> None:
        super().__init__()
        self._more = {"weights": weights} | ({} if adapter is None else {"adapter": adapter})

    @property
    def fingerprint(self) -> dict[str, str]:
        return super().fingerprint | self._more


def test_a_new_cell_is_not_played_on_other_weights_than_the_finished_ones(tmp_path: Path) -> None:
    sweep(tmp_path, {"plus": [0]}, games=1, engine=Weighed("old"))
    changed = Weighed("new")
    found = sweep(tmp_path, {"plus": [0, 1]}, games=1, engine=changed)
    assert ([cell.over for cell in found.cells], changed.decodes) == ([1, 0], 0)
    assert found.cells[1].error is not None
    assert "what differs: the model's weights (old, not new)" in found.cells[1].error
    found = sweep(tmp_path, {"plus": [0, 1]}, games=1, engine=Weighed("old"))
    assert [cell.over for cell in found.cells] == [1, 1]


def test_finished_cells_of_an_adapter_that_was_trained_again_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(folder: str) -> Adapter:
        return Adapter(Path(folder), Path(folder, "weights").read_text(), None)

    monkeypatch.setattr("agentcho.lab.sweep.plan.find_adapter", found)
    tuned, out = tmp_path / "tuned", tmp_path / "out"
    tuned.mkdir()
    (tuned / "weights").write_text("first")
    how: dict[str, Any] = {"games": 1, "run": {"adapter": str(tuned), "model": "understudy"}}
    sweep(out, {"plus": [0]}, **how, engine=Weighed("base", "first"))
    sweep(out, {"plus": [0, 1]}, **how, engine=Weighed("base", "first"))
    (tuned / "weights").write_text("second")
    with pytest.raises(ResumeMismatch, match=rf"what differs: the weights of adapter {tuned}. Give another --out"):
        sweep(out, {"plus": [0, 1]}, **how, engine=Weighed("base", "second"))


def test_a_disk_that_is_full_ends_the_whole_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, turn: Any, how: Any) -> Any:
        raise CannotWrite(tmp_path, "no space is left")

    monkeypatch.setattr("agentcho.lab.sweep.stage.LocalStage.play", full)
    with pytest.raises(CannotWrite):
        sweep(tmp_path, {"plus": [0, 1]})


@pytest.mark.slow
def test_without_the_library_there_are_means_and_differences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tested = sweep(tmp_path, {"plus": [0, 1]}, games=3)
    monkeypatch.setattr("agentcho.lab.sweep.figures.find_spec", lambda name: None)
    bare = sweep(tmp_path, {"plus": [0, 1]}, games=3)
    for one, other in zip(bare.metrics, tested.metrics, strict=True):
        assert {row: mean.value for row, mean in one.means.items()} == {r: m.value for r, m in other.means.items()}
        assert [d.value for d in one.differences.values()] == [d.value for d in other.differences.values()]
    shown = text(bare).splitlines()
    assert shown[4].split() == ["0", f"{bare.metrics[0].means['plus=0'].value:.2f}", "first"]
    assert not any("p" in row for row in bare.figures())


@pytest.mark.slow
def test_all_of_it_is_written(tmp_path: Path) -> None:
    found = sweep(tmp_path, TWO, games=2)
    assert read_result(tmp_path / "sweep.json") == found
    games = list(csv.DictReader((tmp_path / "games.csv").read_text().splitlines()))
    assert len(games) == 8
    assert games[0].keys() == {"plus", "temperature", "seed", "game", "ended", "seconds", "score.score", "score.right"}
    figures = list(csv.DictReader((tmp_path / "sweep.csv").read_text().splitlines()))
    assert {row["what"] for row in figures} == {"mean", "difference", "effect"}
    assert (tmp_path / "sweep.png").read_bytes()[:4] == b"\x89PNG"


def test_from_python_it_is_what_it_is_on_the_command_line(tmp_path: Path) -> None:
    engine = Counts()
    heard: list[int] = []
    found = agentcho.sweep(
        Known(plus=1),
        {"temperature": [0, 0.5]},
        games=2,
        engine=engine,
        out=tmp_path,
        tell=lambda what, done, of: heard.append(done),
        max_tokens=4,
    )
    assert (engine.decodes, heard[-1], found.whole) == (4, 4, True)
    games = found.table("games")
    assert games["temperature"] == [0, 0, 0.5, 0.5]
    assert games["game"] == [0, 1, 0, 1]
    assert set(found.table()["what"]) == {"mean", "difference"}
    assert found.fixed["plus"] == 1
    assert "2 cells of 2 games" in repr(found)
    assert "<table" in found._repr_html_()
    assert agentcho.load(tmp_path / found.cells[1].records[0]).games[0].scores == found.cells[1].games[0].score
    again = agentcho.sweep(Known, {"temperature": [0, 0.5]}, games=2, given={"plus": 1}, out=tmp_path, max_tokens=4)
    assert again.table().rows() == found.table().rows(), "all of it is there, so that no model is loaded"
    with pytest.raises(ConfigError, match="unknown table 'rows'; give figures or games"):
        found.table("rows")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"grid": {"plus": 3}}, "grid plus: give a list of values, not 3"),
        ({"grid": {"plus": []}}, "grid plus: a value is empty"),
        ({"grid": {"plus": "[1"}}, "grid: plus: '[1' is not a JSON list"),
        ({"models": "[fake"}, "models: '[fake' is not a JSON list"),
        ({"grid": [1]}, "grid: give the values of each option"),
        ({"models": 3}, "models: give a list of models, not 3"),
        ({"scenario": 3}, "scenario: 3 is not a scenario"),
        ({"grid": {"plus": [1]}, "on": "ray", "workers": 0}, "workers: Input should be greater than or equal to 1"),
        ({"grid": {"plus": [None]}}, "grid plus: null does not fit"),
        ({"grid": {"heat": [1]}}, "grid heat: no such option"),
        ({"grid": {"plus": [1]}, "heat": 1}, "a run has no option 'heat'; give options of the scenario as given="),
        ({"grid": {"plus": [1]}, "workers": 2}, "workers have no effect without on"),
        ({"grid": {"plus": [1]}, "on": "ray"}, "workers load a scenario by its name or path"),
        ({"grid": {"plus": [1]}, "games": 0}, "games: Input should be greater than or equal to 1"),
        ({"models": [3]}, "models: 3 is neither the name of a model nor a table of its fields"),
        ({"models": ["one"], "engine": FakeEngine()}, "all cells are played on the given engine"),
    ],
)
def test_what_is_wrong_is_said_in_python_too(how: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        agentcho.sweep(**{"scenario": Known, **how})


def test_a_sweep_names_an_adapter_whose_training_has_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "going").mkdir()
    monkeypatch.setattr(runtime, "load_models", lambda config, tell: LoadedEngines(Mock(), {}))
    stage = LocalStage()
    stage._ready(RunConfig())
    assert not caplog.records
    stage._ready(RunConfig(adapter=str(tmp_path)))
    assert f"the training of adapter {tmp_path} has not finished" in caplog.text

"""The paper's tables as data, held-out tasks, times, and the published schema.

`python -m tests.experiments.test_paper` rewrites the schema after an intended change of the model.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agentcho.config import RunConfig
from agentcho.errors import ConfigError, RecordBroken, TaskError
from agentcho.games.runs import library
from agentcho.lab.collect import Playing
from agentcho.lab.commands.paper_run import FEW, FULL
from agentcho.lab.compare.comparison import Comparison
from agentcho.lab.paper import rows as rows_of
from agentcho.lab.paper.adapters import seen
from agentcho.lab.paper.check import faults
from agentcho.lab.paper.estimate import estimated
from agentcho.lab.paper.found import PaperFound, Timed, TimesFound
from agentcho.lab.paper.loaders import formed
from agentcho.lab.paper.phases import Phases, Spent, parsed_budget
from agentcho.lab.paper.reproduction import TIMED, PaperRequest, Reproduction
from agentcho.lab.paper.rows import Rows, World
from agentcho.lab.paper.sets import GENERATORS, PUBLISHED, sets, texts
from agentcho.lab.paper.tables import NAMES, TABLES, TEACHING, Teaching
from agentcho.lab.paper.times import Effort, by_workflow, reached, sweep
from agentcho.lab.paper.wording import planned
from agentcho.lab.stats import Spread
from agentcho.lab.tune.recipe import Recipe
from agentcho.protocol.call import Decode, EnginePort
from agentcho.protocol.progress import no_progress
from agentcho.scenario import Scenario
from agentcho.tasks import Concepts, Problem, task_set
from agentcho.testing import FakeEngine
from tools.understudy.corpus import SCHOOL
from tools.understudy.corpus import workflow as corpus_of

from ..engines import Engines

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "paper.schema.json"
SENT = ROOT / "docs" / "results" / "community"


def current() -> str:
    """The schema of the current model."""
    schema = PaperFound.model_json_schema(mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "agentcho-paper/1"}
    return json.dumps(head | schema, indent=2) + "\n"


def test_the_published_schema_is_that_of_the_model() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == current(), "run: python -m tests.experiments.test_paper"


def test_all_files_that_were_sent_are_whole() -> None:
    assert (SENT / "README.md").is_file()
    for file in SENT.glob("*.json"):
        text = file.read_text(encoding="utf-8")
        assert not faults(text), file
        Draft202012Validator(json.loads(SCHEMA.read_text())).validate(json.loads(text))


# -- tables --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_each_row_is_a_scenario_with_these_options_and_is_held_against_a_row_before_it(table: Any) -> None:
    before: list[str] = []
    for row in table.rows:
        scenario = library.scenario(row.scenario)(**row.options)
        assert scenario.name == row.scenario
        assert row.against is None or row.against in before
        assert row.of is None or (table.row(row.of).mode == "baseline" and row.adapter == "distilled")
        assert row.label not in before
        before.append(row.label)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_papers_figures_are_of_rows_and_columns_of_their_table(table: Any) -> None:
    for figures in table.figures.values():
        assert set(figures) <= {row.label for row in table.rows}
        assert {score for row in figures.values() for score in row} <= set(table.scores)
        for row in figures.values():
            assert all(0 <= each.value <= 1 for each in row.values())


def test_printed_intervals_hold_the_differences_that_they_are_of() -> None:
    """Within the rounding of printed values; this would find a wrong sign or row."""
    held = 0
    for table in TABLES:
        for figures in table.figures.values():
            for label, scores in figures.items():
                for score, own in scores.items():
                    if own.low is not None and own.high is not None:
                        change = own.value - figures[table.row(label).against or ""][score].value
                        assert own.low - 0.002 <= change <= own.high + 0.002, (table.name, label)
                        held += 1
    assert held == 4 + 6 + 9 + 6 + 3


def test_agents_of_the_papers_parallel_debate_have_no_names() -> None:
    table = next(table for table in TABLES if table.name == "4")
    for row in table.rows:
        if row.scenario == "parallel-debate" and table.paper(row.label, "correct"):
            assert row.options == {"names": False}
    name, label = TIMED["parallel-debate"]
    assert table.name == name
    assert table.row(label).options == {"names": False}
    assert any(not row.options for row in table.rows if row.scenario == "parallel-debate"), "the named row beside it"


def test_what_is_timed_are_baseline_rows() -> None:
    for scenario, (name, label) in TIMED.items():
        row = next(table for table in TABLES if table.name == name).row(label)
        assert (row.scenario, row.mode, row.against) == (scenario.partition(",")[0], "baseline", None)
    named = TIMED["parallel-debate, named"][1]
    assert next(table for table in TABLES if table.name == "4").row(named).options == {}


# -- held-out tasks ------------------------------------------------------------------------------------------


def world(folder: Path, engine: EnginePort | None = None, fake: bool = True, **options: Any) -> World:
    there = engine or FakeEngine()

    def opened(scenario: Scenario, config: RunConfig) -> Playing:
        return Playing(scenario, config, there)

    config = RunConfig(model="fake" if fake else "understudy", leakage="audit", **options)
    return World(config, opened, lambda: there, folder, no_progress, fake)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_no_task_that_is_compared_on_is_one_that_is_trained_on(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compares the texts of all tasks: of a row's games, of its traces, and of the games that choose a checkpoint. The
    dilemma has no tasks; its games have other seeds."""
    found = Rows(world(tmp_path), 200, "generators", sets("generators", tmp_path, {}, PUBLISHED))
    for row in (row for row in table.rows if row.adapter != "none"):
        lesson, scenario = found.lesson(table, row), found.scenario(row)
        own, theirs = found.config(row), lesson.playing.config
        assert own.seed != theirs.seed
        assert (theirs.temperature, theirs.top_p) == (1.0, 1.0)
        if scenario.name == "prisoners-dilemma":
            assert own.tasks is theirs.tasks is None
            continue
        assert own.tasks is not None
        assert theirs.tasks is not None
        compared = set(texts(task_set(own.tasks, scenario.kind, own.seed), own.games * scenario.draws()))
        draws = lesson.playing.scenario.draws()
        count = lesson.numbers.stop
        if lesson.choice is not None:
            assert lesson.choice.numbers.start == count
            assert lesson.choice.playing.config.seed == theirs.seed
            count = lesson.choice.numbers.stop
        other = texts(task_set(theirs.tasks, scenario.kind, theirs.seed), count * draws)
        trained, chosen = set(other[: lesson.numbers.stop * draws]), set(other[lesson.numbers.stop * draws :])
        assert len(trained) > 50
        assert not compared & (trained | chosen), row.label
        assert bool(chosen) == (lesson.choice is not None)


def test_tasks_of_a_file_that_are_trained_on_come_after_those_that_are_compared_on(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    lines = (f'{{"question": "{number}?", "answers": ["{number}"]}}\n' for number in range(120))
    file.write_text("".join(lines))
    given = {"multi-qa": str(file)}
    found = Rows(world(tmp_path), 20, "generators", sets("generators", tmp_path, given, PUBLISHED))
    lesson = found.lesson(TABLES[0], TABLES[0].row("choreographed, serial, tuned"))
    assert lesson.playing.config.tasks == given["multi-qa"]
    assert lesson.numbers.start == 20
    assert lesson.choice is not None
    assert lesson.choice.numbers.stop * 2 <= 120


@pytest.mark.parametrize(
    ("name", "traces", "epochs", "chosen"),
    [
        ("1", 200, 2, ("all right", 100)),
        ("2", 100, 4, None),
        ("3", 400, 4, None),
        ("4", 500, 8, ("correct", 280)),
        ("6", 500, 8, ("correct", 280)),
        ("7", 400, 4, None),
    ],
)
@pytest.mark.slow
def test_adapters_are_trained_as_the_papers_are(
    name: Any, traces: int, epochs: int, chosen: tuple[str, int] | None, tmp_path: Path
) -> None:
    """On as many traces, for as many epochs, besides those held out for the loss."""
    table = next(table for table in TABLES if table.name == name)
    found = Rows(world(tmp_path), 200, "generators", sets("generators", tmp_path, {}, PUBLISHED))
    for row in (row for row in table.rows if row.adapter != "none"):
        lesson = found.lesson(table, row)
        count = len(lesson.numbers)
        assert count - round(lesson.recipe.dev * count) == traces
        assert lesson.recipe.epochs == epochs
        by = None if lesson.choice is None else (lesson.choice.score, len(lesson.choice.numbers))
        assert by == chosen
        assert lesson.choice is None or lesson.choice.playing.config.mode == row.mode


def test_fewer_traces_may_be_asked_for_and_fewer_games_choose_then(tmp_path: Path) -> None:
    few = world(tmp_path)._replace(traces=50)
    found = Rows(few, 20, "generators", sets("generators", tmp_path, {}, PUBLISHED))
    lesson = found.lesson(TABLES[0], TABLES[0].row("choreographed, serial, tuned"))
    assert len(lesson.numbers) - round(lesson.recipe.dev * len(lesson.numbers)) == 50
    assert lesson.choice is not None
    assert len(lesson.choice.numbers) == 25


def test_recipes_may_differ_from_ours(tmp_path: Path) -> None:
    """For example, by the learning rate of the authors' scripts; this gives separate adapters."""
    folders = set()
    for given in ({}, {"rate": 2e-5, "batch": 1}):
        found = Rows(
            world(tmp_path)._replace(recipe=given), 20, "generators", sets("generators", tmp_path, {}, PUBLISHED)
        )
        lesson = found.lesson(TABLES[0], TABLES[0].row("choreographed, serial, tuned"))
        assert lesson.recipe.model_dump().items() >= given.items()
        folders.add(lesson.folder)
    assert len(folders) == 2


def test_each_table_is_sampled_as_the_paper_says_unless_another_top_p_is_asked_for(tmp_path: Path) -> None:
    """0.95 where the paper states it, for the workflows of its section 4; none where it states only a temperature."""
    chosen = sets("generators", tmp_path, {}, PUBLISHED)
    for top_p, wanted in ((None, {"4": 0.95, "6": 0.95}), (0.9, dict.fromkeys("123467", 0.9) | {"f8": 0.9})):
        found = Rows(world(tmp_path)._replace(top_p=top_p), 20, "generators", chosen)
        for table in TABLES:
            told = {(found.config(row).temperature, found.config(row).top_p) for row in table.rows}
            assert told == {(0.7, wanted.get(table.name, 1.0))}, table.name


def test_what_bob_guesses_goes_through_adapters_that_saw_no_guesses(tmp_path: Path) -> None:
    found = Rows(world(tmp_path), 20, "generators", {})
    third, seventh = (next(table for table in TABLES if table.name == name) for name in ("3", "7"))
    for label in ("free", "always cooperate", "always defect"):
        both = [found.lesson(table, table.row(f"{label}, choreographed, tuned")) for table in (third, seventh)]
        assert both[0].folder == both[1].folder
        assert both[0].file == both[1].file


def test_of_a_published_set_with_fewer_tasks_those_that_there_are_are_trained_on(tmp_path: Path) -> None:
    lines = (json.dumps({"question": f"Who is {n}?", "answer": {"value": f"P{n}", "aliases": []}}) for n in range(80))
    (tmp_path / "t.jsonl").write_text("".join(f"{line}\n" for line in lines))
    given = sets("published", tmp_path, {"multi-qa": f"triviaqa:{tmp_path / 't.jsonl'}"}, {"multi-qa"})
    rows = Rows(world(tmp_path), 5, "published", given)
    lesson = rows.lesson(TABLES[0], TABLES[0].row("choreographed, serial, tuned"))
    assert lesson.choice is not None
    assert (lesson.numbers.start, lesson.choice.numbers.stop) == (5, 40)
    assert lesson.numbers.stop == lesson.choice.numbers.start
    assert 20 < len(lesson.numbers) < 30
    with pytest.raises(TaskError):
        Rows(world(tmp_path), 40, "published", given).lesson(TABLES[0], TABLES[0].row("choreographed, serial, tuned"))


@pytest.mark.parametrize("name", ["direct", "debate", "parallel-debate", "tree-of-thoughts", "branch-solve-merge"])
def test_no_task_of_a_comparison_is_one_of_300_games_that_its_adapters_were_traced_on(name: str) -> None:
    """`agentcho trace` draws those games with seed 1."""
    file = ROOT / "docs" / "results" / f"compare-{name}.json"
    asked = Comparison.model_validate_json(file.read_bytes()).request
    scenario = library.scenario(name)(**asked.options)
    assert asked.tasks is not None
    compared = texts(task_set(asked.tasks, scenario.kind, asked.seed), asked.games * scenario.draws())
    trained = texts(task_set(asked.tasks, scenario.kind, 1), 300 * scenario.draws())
    assert asked.seed != 1
    assert len(set(compared) - set(trained)) == len(set(compared)) > 190


def test_of_a_published_set_the_tasks_behind_are_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TEACHING, "1", Teaching(traces=3, epochs=1))
    monkeypatch.setattr(rows_of, "MOST_DEV", 1)
    lines = (json.dumps({"question": f"Who is {n}?", "answer": {"value": f"P{n}", "aliases": []}}) for n in range(20))
    (tmp_path / "t.jsonl").write_text("".join(f"{line}\n" for line in lines))
    given = sets("published", tmp_path, {"multi-qa": f"triviaqa:{tmp_path / 't.jsonl'}"}, {"multi-qa"})
    rows = Rows(world(tmp_path), 5, "published", given)
    assert rows.lesson(TABLES[0], TABLES[0].row("choreographed, serial, tuned")).numbers == range(5, 9)
    assert rows.config(TABLES[0].rows[0]).games == 5


def test_words_that_a_game_was_told_are_found_and_words_that_were_said_are_not(tmp_path: Path) -> None:
    from agentcho.lab.tune.sampling import sample
    from agentcho.records.trace import read_traces

    config = RunConfig(model="fake", mode="baseline", leakage="audit", games=4, tasks="facts:half=1", max_tokens=8)
    playing = Playing(library.scenario("multi-qa")(), config, FakeEngine())
    sample(playing, range(4), tmp_path / "t.jsonl", no_progress)
    traces = read_traces(tmp_path / "t.jsonl")
    asked = {half: texts(task_set(f"facts:half={half}", library.scenario("multi-qa").kind, 0), 8) for half in (1, 2)}
    assert seen(asked[1], traces) == 8
    assert seen(asked[2], traces) == 0
    said = [message.text for trace in traces for message in trace.messages if message.author == "ann"]
    assert seen([max(said, key=len)], traces[:0]) == 0


def stages() -> list[int]:
    """The number of the first workflow of each training stage of the understudy, according to its measured card."""
    training = json.loads((ROOT / "docs" / "results" / "understudy.json").read_bytes())["training"]
    firsts = []
    while training:
        firsts.append(training["recipe"].get("first", 0))
        training = training.get("before")
    return firsts


@pytest.mark.slow
def test_no_story_and_no_set_of_words_that_is_compared_on_is_in_the_corpus(tmp_path: Path) -> None:
    """Searches views of the first workflows of each training stage of the understudy; the oldest stage has no debates
    at first. Facts are in the corpus, as in any pretraining."""
    numbers = [first + number for first in (*stages(), SCHOOL) for number in range(1500)]
    assert len(set(numbers)) == len(numbers) >= 9000
    samples = [sample for number in numbers for sample in corpus_of("train", 0, number)]
    assert {sample.kind for sample in samples} >= {"debate", "discussion", "thoughts", "sums", "merging"}
    told = {turn.text for sample in samples for turn in sample.turns}
    whole = "\n".join(told)
    chosen = sets("generators", tmp_path, {}, PUBLISHED)
    for name, kind in (("debate", Problem), ("branch-solve-merge", Concepts)):
        compared = texts(task_set(chosen[name].compared, kind, 0), 200)
        assert len(set(compared)) == 200
        assert not [text for text in compared if text in whole]
    facts = texts(task_set(chosen["multi-qa"].compared, Problem, 0), 50)
    assert [text for text in facts if text in whole]


@pytest.mark.slow
def test_a_judge_is_asked_once_and_what_it_said_is_kept(tmp_path: Path) -> None:
    chosen = sets("generators", tmp_path, {}, PUBLISHED)
    request = PaperRequest(("2",), 2, True, "generators", chosen, "agentcho paper")
    phases = Phases(tmp_path / "phases.jsonl", None)

    def found(judge: FakeEngine) -> PaperFound:
        return Reproduction(world(tmp_path, max_tokens=8), request, phases, judge).run()

    asked: list[str] = []

    def first(call: Decode, prompt: str) -> str:
        asked.append(prompt)
        return "A"

    told = found(FakeEngine(answer=first))
    rows = {row.label: row.preferred for row in told.tables[0].rows if row.preferred is not None}
    assert list(rows) == ["baseline, parallel", "choreographed, serial", "choreographed, parallel"]
    assert {(each.games, each.ties) for each in rows.values()} == {(2, 2)}
    assert len(asked) == 4  # equal answers in all rows: two pairs, in both orders
    assert "judging table 2: baseline, parallel" in {phase.name for phase in told.phases}
    assert not faults(told.model_dump_json())
    assert found(FakeEngine(answer=first)).tables == told.tables
    assert len(asked) == 4


# -- budgets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("20m", 1200), ("1.5h", 5400)])
def test_a_budget_is_a_time(text: str, seconds: float) -> None:
    assert parsed_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "0s", "-1h", "1d", "h"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a time"):
        parsed_budget(text)


def test_a_phase_is_kept_however_it_ends_and_added_up_over_commands(tmp_path: Path) -> None:
    phases = Phases(tmp_path / "p.jsonl", None)
    with pytest.raises(ZeroDivisionError), phases.begin("one"):
        raise ZeroDivisionError
    first = phases.found()[0].seconds
    with Phases(tmp_path / "p.jsonl", None).begin("one"):
        pass
    again = Phases(tmp_path / "p.jsonl", 1e-9)
    with pytest.raises(Spent), again.begin("two"):
        pytest.fail("it was begun")
    assert again.left == ["two"]
    assert [phase.name for phase in again.found()] == ["one"]
    assert again.found()[0].seconds >= first


# -- loaders and durations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_tasks_in_the_form_of_a_published_set_are_the_same_tasks(name: str, tmp_path: Path) -> None:
    kind = library.scenario(name)().kind
    own = task_set(GENERATORS[name].compared, kind, 3)
    loaded = task_set(formed(name, own, 6, tmp_path), kind, 9)
    assert loaded.size == 6
    for number in range(6):
        task, other = own[number], loaded[number]
        if isinstance(task, Problem):
            assert isinstance(other, Problem)
            assert (task.question, task.answers[0], set(task.answers)) == (
                other.question,
                other.answers[0],
                set(other.answers),
            )
            assert other.right(f"The answer is {task.answers[0]}.")
        else:
            assert isinstance(task, Concepts)
            assert isinstance(other, Concepts)
            assert task.words == other.words


def work_of(folder: Path, tables: tuple[Any, ...], games: int, quick: bool, fake: bool = False) -> Reproduction:
    chosen = sets("generators", folder, {}, PUBLISHED)
    request = PaperRequest(tables, games, quick, "generators", chosen, "agentcho paper")
    return Reproduction(world(folder, fake=fake, max_tokens=8), request, Phases(folder / "phases.jsonl", None))


def test_rows_that_would_be_compared_on_different_tasks_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A distilled row plays the tasks of the single step, and is compared with a workflow."""

    def check(given: dict[str, str], quick: bool = False) -> None:
        chosen = sets("generators", tmp_path, given, PUBLISHED)
        request = PaperRequest(("4",), 2, quick, "generators", chosen, "agentcho paper")
        Reproduction(world(tmp_path, fake=False), request, Phases(tmp_path / "phases.jsonl", None)).check()

    monkeypatch.setattr("agentcho.lab.paper.reproduction.require", lambda *words: None)
    longer = "arithmetic:steps=4"
    told = "MADiter, distilled' would play arithmetic, .* plays arithmetic:steps=4; give direct and debate the same"
    with pytest.raises(ConfigError, match=told):
        check({"debate": longer})
    check({"debate": longer}, quick=True)
    check(dict.fromkeys(("direct", "tree-of-thoughts", "debate", "parallel-debate"), longer))


@pytest.mark.slow
def test_all_of_it_takes_hours_and_what_is_quick_minutes(tmp_path: Path) -> None:
    parts = estimated(work_of(tmp_path, NAMES, FULL, quick=False))
    assert [part.what for part in parts] == ["games", "adapters", "times"]
    assert 4 * 3600 < sum(part.seconds for part in parts) < 9 * 3600
    quick = estimated(work_of(tmp_path, NAMES, FEW, quick=True))
    assert [part.what for part in quick] == ["games", "times"]
    assert 60 < sum(part.seconds for part in quick) < 15 * 60
    assert planned(quick).startswith("about ")


@pytest.mark.slow
def test_what_is_done_is_not_estimated_again(tmp_path: Path) -> None:
    few = work_of(tmp_path, ("1",), 3, quick=True)
    (before,) = estimated(few)
    few.run()
    assert estimated(work_of(tmp_path, ("1",), 3, quick=True)) == ()
    (more,) = estimated(work_of(tmp_path, ("1",), 6, quick=True))
    assert more == before
    assert estimated(work_of(tmp_path, ("1",), 6, quick=True, fake=True)) == ()


# -- times ---------------------------------------------------------------------------------------------------


def timed(subject: str, arm: str, ratio: float, waiting: float) -> Timed:
    def spread(value: float) -> Spread:
        return Spread(middle=value, low=value, high=value, method="least to largest")

    whole = {"first": spread(0.1), "seconds": spread(1.0), "waiting": spread(waiting)}
    return Timed(subject=subject, arm=arm, runs=1, first_ratio=spread(1), seconds_ratio=spread(ratio), **whole)


def test_it_is_said_where_the_gain_is_reached_where_not_and_why() -> None:
    rows = [timed("2 branches", "baseline", 1, 0.2), timed("2 branches", "choreographed:audit", 1.2, 0.1)]
    rows += [timed("16 branches", "baseline", 1, 0.75), timed("16 branches", "choreographed:audit", 2.5, 0.1)]
    (told,) = reached(rows)
    assert "2.2 times sooner end to end at 16 branches (2.50), and not at 2 branches (1.20); " in told
    assert "25% of its time" in told
    assert "4.00 times" in told
    (told,) = reached(rows[:2])
    assert "2.2 times sooner end to end at no point: not at 2 branches (1.20); " in told
    assert "80% of its time" in told
    assert "2.2 times sooner end to end at 16 branches (2.50); " in reached(rows[2:])[0]


@pytest.mark.slow
def test_on_the_understudy_rows_are_trained_played_and_timed(
    engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Table 1 with its adapters on a few games: traces of the other half, held-out tasks, nothing repeated."""
    monkeypatch.setitem(TEACHING, "1", Teaching(traces=4, epochs=1, score="all right", dev=2))
    monkeypatch.setattr(rows_of, "MOST_DEV", 2)
    monkeypatch.setattr(rows_of, "Recipe", lambda **how: Recipe(**how, rank=4))
    there = world(tmp_path, engines.understudy(), fake=False, max_tokens=24)
    chosen = sets("generators", tmp_path, {}, PUBLISHED)
    request = PaperRequest(("1",), 2, False, "generators", chosen, "agentcho paper")
    found = Reproduction(there, request, Phases(tmp_path / "phases.jsonl", None)).run()
    rows = {row.label: row for row in found.tables[0].rows}
    assert {row.left_out for row in rows.values()} == {None}
    held = [row.held_out for row in rows.values() if row.adapter != "none"]
    assert [each.seen for each in held if each is not None] == [0, 0, 0]
    assert {each.tasks for each in held if each is not None} == {4}
    assert {(each.traces, each.epochs, each.chosen, each.dev) for each in held if each} == {(4, 1, "all right", 2)}
    assert not faults(found.model_dump_json())
    names = [phase.name for phase in found.phases]
    assert sum(name.startswith("training for") for name in names) == 3
    again = Reproduction(there, request, Phases(tmp_path / "phases.jsonl", None)).run()
    assert again.tables == found.tables
    assert again.phases == found.phases


def test_what_is_kept_of_a_phase_and_damaged_is_named(tmp_path: Path) -> None:
    world: Any = SimpleNamespace(world=SimpleNamespace(folder=tmp_path), phases=Phases(tmp_path / "phases.jsonl", None))
    timed = TimesFound(name="5", title="times", rows=(), notes=())
    again = partial(Reproduction._once, world, "times", {"n": 1}, TimesFound, "table 5", lambda: timed)
    assert again() == again() == timed
    (file,) = (tmp_path / "times").iterdir()
    file.write_text(file.read_text()[:-9])
    with pytest.raises(RecordBroken, match=rf"{file.name}:1: .* delete it to make it again"):
        again()


@pytest.mark.slow
def test_on_the_understudy_workflows_are_timed_in_turns(engines: Engines, tmp_path: Path) -> None:
    engine = engines.understudy()
    request = PaperRequest(("f4",), 2, True, "generators", {}, "agentcho paper")
    assert request.quick
    found = sweep(lambda: engine, Effort(problems=1, repeats=1, scale=0.02), 1, no_progress)
    assert len({row.subject for row in found.rows}) == 8
    assert {row.arm for row in found.rows} == {"baseline", "choreographed:audit", "choreographed:enforce"}
    assert all(0 <= row.waiting.middle <= 1 for row in found.rows)
    assert sum("2.2 times sooner end to end" in note for note in found.notes) == 2
    assert by_workflow(lambda: engine, {"direct": []}, no_progress).rows == ()


if __name__ == "__main__":
    SCHEMA.write_text(current(), encoding="utf-8")

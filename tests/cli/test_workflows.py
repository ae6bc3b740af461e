"""The paper's workflows: who reads what in which order, positions, batches, scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from agentcho import replay
from agentcho.audit import audit_run, audit_traces
from agentcho.config import Leakage, RunConfig
from agentcho.errors import TaskError
from agentcho.events import Ended, Event
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import RunResult, play
from agentcho.protocol.call import Decode, Receipt
from agentcho.records.record import find
from agentcho.records.trace import exported, write_traces
from agentcho.records.transcript import TranscriptEntry, own_records
from agentcho.scenario import Scenario
from agentcho.tasks import Concepts, Problem, task_set
from agentcho.testing import FakeEngine

Says = Callable[[Decode, str], str]


class Game:
    """One game on the fake engine, and the messages in it."""

    def __init__(self, scenario: str, says: Says | None = None, answer: Says | None = None, **options: Any) -> None:
        how = {key: options.pop(key) for key in ("mode", "leakage", "seed", "tasks") if key in options}
        self.entries: list[TranscriptEntry] = []
        self.engine = FakeEngine(says, answer=answer)
        cls = library.scenario(scenario)
        self.played: RunResult = play(RunRequest(cls(**options), RunConfig(**how), engine=self.engine, sink=self._hear))
        self.score = self.played.games[0].score
        self.outcome: dict[str, Any] = self.played.games[0].outcome or {}

    def _hear(self, event: Event) -> None:
        if isinstance(event, Ended):
            self.entries.append(event.entry)

    def entry(self, id: str) -> TranscriptEntry:
        return next(entry for entry in self.entries if entry.message.id == id)

    def reads(self, id: str) -> list[str]:
        return list(self.entry(id).message.parents)

    def receipt(self, id: str) -> Receipt:
        return own_records(self.entries)[id].receipt


def saying(text: str) -> Says:
    return lambda call, prompt: text


def problem(tasks: str, seed: int = 0, number: int = 0) -> Problem:
    found = task_set(tasks, Problem, seed)[number]
    assert isinstance(found, Problem)
    return found


# -- multi-qa ------------------------------------------------------------------------------------------------


def test_questions_never_see_each_other_and_stand_side_by_side() -> None:
    game = Game("multi-qa", n=3)
    questions = ["scenario.0", "scenario.1", "scenario.2"]
    assert game.reads("ann.1") == ["ann.0", *questions]
    assert all(not game.receipt(question).context for question in questions)
    receipt = game.receipt("ann.1")
    system, *stood = receipt.context
    assert {piece.offset for piece in stood} == {system.offset + system.length}
    assert receipt.start == max(piece.offset + piece.length for piece in stood)


def test_serial_questions_stand_one_after_another_and_baseline_has_no_other_way() -> None:
    serial = Game("multi-qa", layout="serial").receipt("ann.1")
    for before, after in zip(serial.context, serial.context[1:], strict=False):
        assert after.offset == before.offset + before.length
    places = [
        [piece.offset for piece in Game("multi-qa", layout=layout, mode="baseline").receipt("ann.1").context]
        for layout in ("parallel", "serial")
    ]
    assert places[0] == places[1]


def test_answers_are_scored_by_their_numbers() -> None:
    right = [problem("facts", 3, number).answers[0] for number in (0, 1)]
    said = {"all": f"1: {right[0]}\n2: {right[1]}", "turned": f"2: {right[1]}\n1: {right[0]}", "half": f"1: {right[0]}"}
    scores = {name: Game("multi-qa", saying(text), seed=3).score for name, text in said.items()}
    assert scores["all"] == scores["turned"] == {"all right": 1.0, "first right": 1.0, "last right": 1.0}
    assert scores["half"] == {"all right": 0.0, "first right": 1.0, "last right": 0.0}


# -- branch-solve-merge --------------------------------------------------------------------------------------


def words(seed: int = 0) -> tuple[str, ...]:
    found = task_set("concepts", Concepts, seed)[0]
    assert isinstance(found, Concepts)
    return found.words


def writing(call: Decode, prompt: str) -> str:
    one, two = words()[:4], words()[4:]
    if call.header == "Merged: ":
        return f"{' '.join(one)} {two[0]}s."
    return (
        " ".join(one if "1" in call.header else two)
        if call.header
        else (f"Group 1: {', '.join(one)}\nGroup 2: {', '.join(two)}")
    )


def test_two_writers_work_at_once_and_the_merger_reads_their_texts_alone() -> None:
    game = Game("branch-solve-merge", writing)
    assert game.reads("eva.1") == ["eva.0", "scenario.0", "dan.1"]
    assert game.reads("finn.1") == ["finn.0", "scenario.0", "dan.1"]
    assert game.reads("gus.1") == ["gus.0", "eva.1", "finn.1"]
    system, one, two = game.receipt("gus.1").context
    assert one.offset == two.offset == system.offset + system.length
    serial = Game("branch-solve-merge", writing, layout="serial").receipt("gus.1").context
    assert serial[2].offset == serial[1].offset + serial[1].length


def test_coverage_counts_the_words_of_each_group() -> None:
    game = Game("branch-solve-merge", writing)
    assert game.outcome["groups"] == [list(words()[:4]), list(words()[4:])]
    shares = {"covered": 5 / 8, "covered of group 1": 1.0, "covered of group 2": 0.25}
    assert game.score == shares | {"group 1 over group 2": 0.75}
    silent = Game("branch-solve-merge", lambda call, prompt: "Well.")
    assert silent.outcome["groups"] == [[], []]
    assert silent.score == {"covered": 0.0}


# -- debates and trees ---------------------------------------------------------------------------------------


def test_each_round_reads_the_last_one_alone() -> None:
    game = Game("parallel-debate", agents=3, rounds=3)
    first, second = [f"{name}.1" for name in ("ada", "ben", "cleo")], [f"{name}.2" for name in ("ada", "ben", "cleo")]
    for name in ("ada", "ben", "cleo"):
        assert game.reads(f"{name}.1") == [f"{name}.0", "scenario.0"]
        assert game.reads(f"{name}.2") == [f"{name}.0", "scenario.0", *first]
        assert game.reads(f"{name}.3") == [f"{name}.0", "scenario.0", *second]


def test_solvers_read_all_rounds_before_where_they_remember_them() -> None:
    game = Game("parallel-debate", agents=2, rounds=3, memory="all")
    first, second = (["ada.1", "ben.1"], ["ada.2", "ben.2"])
    assert game.reads("ada.2") == ["ada.0", "scenario.0", *first]
    assert game.reads("ben.3") == ["ben.0", "scenario.0", *first, *second]


def test_solvers_without_names_share_one_system_prompt_that_names_nobody() -> None:
    named, nameless = (Game("parallel-debate", agents=3, rounds=2, names=names) for names in (True, False))
    told = [[e.message.text for e in game.entries if e.message.role == "system"] for game in (named, nameless)]
    assert [text.partition(". ")[0] for text in told[0]] == [f"Your name is {name}" for name in ("Ada", "Ben", "Cleo")]
    assert set(told[1]) == {told[0][0].removeprefix("Your name is Ada. ")}
    system, _ = nameless.reads(spoken(nameless, "ben")[0])
    assert {nameless.reads(spoken(nameless, name)[0])[0] for name in ("ada", "ben", "cleo")} == {system}
    assert nameless.reads(spoken(nameless, "ben")[1])[2:] == [spoken(nameless, n)[0] for n in ("ada", "ben", "cleo")]


def spoken(game: Game, name: str) -> list[str]:
    return [e.message.id for e in game.entries if e.message.author == name and e.message.kind == "decode"]


def test_the_answer_is_that_of_the_most() -> None:
    right = problem("arithmetic").answers[0]

    def says(call: Decode, prompt: str) -> str:
        return f"The answer is {'1000' if call.name == 'ben' else right}."

    game = Game("parallel-debate", says, rounds=2)
    assert (game.outcome["answer"], game.outcome["correct"]) == (right, True)
    assert game.outcome["right"] == [2, 2]
    assert game.score == {"correct": 1.0, "right in the first round": 2 / 3, "right in the last round": 2 / 3}


def test_voters_read_all_solutions_and_the_finisher_the_winner() -> None:
    right = problem("arithmetic").answers[0]

    def says(call: Decode, prompt: str) -> str:
        if (call.name or "").startswith("voter"):
            return {
                "voter-1": "7. Solution 1 says 9. I vote for solution 2.",
                "voter-4": "My vote is for solution 9.",
            }.get(call.name or "", f"{right}. Solution 3 is right.")
        return f"The answer is {right if call.header in {'Solution 3: ', 'The answer is '} else '1000'}."

    game = Game("tree-of-thoughts", says, branches=4, voters=4)
    solutions = [f"solver-{number}.0" for number in range(1, 5)]
    assert [game.reads(id) for id in solutions] == [["scenario.0", "scenario.2"]] * 4
    assert game.reads("voter-2.0") == ["scenario.1", "scenario.2", *solutions]
    assert game.reads("finisher.1") == ["finisher.0", "scenario.2", "solver-3.0"]
    assert game.outcome["votes"] == [2, 3, 3, None]
    assert game.score == {"correct": 1.0, "solutions right": 0.25, "votes right": 0.5}


@pytest.mark.parametrize("leakage", get_args(Leakage))
def test_a_tree_encodes_each_open_system_prompt_once_and_replays(leakage: Leakage) -> None:
    game = Game("tree-of-thoughts", leakage=leakage, branches=3, voters=2)
    lengths = {e.message.id: len(e.message.tokens) for e in game.entries}
    said = {e.message.id: e.message.text for e in game.entries if e.message.kind == "decode"}
    audiences = lengths["finisher.1"] if leakage == "enforce" else 0  # no other agent has its own prompt
    assert [e.message.role for e in game.entries].count("system") == 3
    assert sum(e.usage.encoded for e in game.entries) == sum(lengths.values()) + audiences
    trace = exported("tree-of-thoughts", "t", {}, (), game.entries, None)
    replayed = replay(trace, FakeEngine(), leakage=leakage, logits=False)
    assert {id: each.entry.message.text for id, each in replayed.items()} == said
    assert replayed.encoded == sum(lengths.values()), "nobody reads the last message, so it has no second encoding"


@pytest.mark.parametrize("leakage", get_args(Leakage))
def test_a_tree_leaks_nothing_played_or_planned(tmp_path: Path, leakage: Leakage) -> None:
    tree = library.scenario("tree-of-thoughts")(branches=3, voters=2)
    play(RunRequest(tree, RunConfig(leakage=leakage), out=tmp_path, engine=FakeEngine()))
    run = find("last", tmp_path)
    write_traces(tmp_path / "traces.jsonl", run.export())
    for report in (audit_run(run), audit_traces(tmp_path / "traces.jsonl", leakage=leakage)):
        assert report.conclusion == "clean"
        assert report.edges == ()
        assert {release.author for release in report.releases} == {"finisher"}


@pytest.mark.parametrize(
    ("said", "vote"),
    [
        ("7. Solution 1 says 9. I vote for solution 2.", 2),
        ("**I vote for Solution #3** since it adds up.", 3),
        ("My vote: solution 2. No: my vote goes to solution 1.", 1),
        ("Solution 2 is right.", 2),
        ("Solution 1 says 9. Solution 2 says 7.", None),
        ("Solution 1 says 9. None is right, so no vote. 2.", 1),
        ("I vote for solution 9.", None),
        ("I vote for solution 0.", None),
        ("Nobody.", None),
    ],
)
def test_a_vote_is_what_the_voter_says_it_is(said: str, vote: int | None) -> None:
    right = problem("arithmetic").answers[0]

    def says(call: Decode, prompt: str) -> str:
        return said if (call.name or "").startswith("voter") else f"The answer is {right}."

    assert Game("tree-of-thoughts", says, branches=3, voters=1).outcome["votes"] == [vote]


def test_parallel_steps_are_one_batch() -> None:
    one, eight = (
        Game("tree-of-thoughts", lambda c, p: "Yes it is.", branches=b, voters=v) for b, v in ((1, 1), (8, 4))
    )
    assert one.played.steps == eight.played.steps
    two, many = (Game("parallel-debate", lambda c, p: "Yes it is.", agents=n) for n in (2, 16))
    assert two.played.steps == many.played.steps


def test_who_answers_at_once_reads_the_question_alone() -> None:
    right = problem("arithmetic", 9).answers[0]
    game = Game("direct", lambda call, prompt: f"{right}.", seed=9)
    assert game.reads("sam.1") == ["sam.0", "scenario.0"]
    assert (game.outcome["answer"], game.score) == (right, {"correct": 1.0})


# -- tasks ---------------------------------------------------------------------------------------------------


def test_each_game_has_tasks_of_its_own_whatever_the_mode() -> None:
    def asked(mode: str) -> list[list[str]]:
        found: dict[int, list[str]] = {}

        def hear(event: Event) -> None:
            if isinstance(event, Ended) and event.entry.message.author is None:
                found.setdefault(event.entry.message.game, []).append(event.entry.message.text)

        config = RunConfig(games=3, mode=mode)  # type: ignore[arg-type]
        play(RunRequest(library.scenario("multi-qa")(n=2), config, engine=FakeEngine(), sink=hear))
        return [found[number] for number in range(3)]

    expected = [
        [f"Question {n}: {problem('facts', 0, 2 * game + n - 1).question}" for n in (1, 2)] for game in range(3)
    ]
    assert asked("choreographed") == asked("baseline") == expected


class Greedy(Scenario):
    """Draws more tasks than it declares."""

    name = "greedy"
    tasks = "facts"

    async def play(self, game: Any) -> Any:
        return self.Outcome(**{key.id: 0 for key in game.draw(2)})


def test_a_game_draws_no_more_than_it_says() -> None:
    played = play(RunRequest(Greedy(), RunConfig(), engine=FakeEngine()))
    assert isinstance(played.error, TaskError)


def test_tasks_for_a_scenario_that_takes_none_are_refused() -> None:
    with pytest.raises(TaskError, match="takes no tasks"):
        play(RunRequest(library.scenario("prisoners-dilemma")(), RunConfig(tasks="facts"), engine=FakeEngine()))


def test_too_few_tasks_are_refused_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    few = task_set("facts", Problem)
    few.size = 3
    monkeypatch.setattr("agentcho.games.runs.runtime.task_set", lambda *asked: few)
    engine = FakeEngine()
    with pytest.raises(TaskError, match="2 games draw 2 each, 4 in all"):
        play(RunRequest(library.scenario("multi-qa")(), RunConfig(games=2), engine=engine))
    assert engine.steps == 0

"""The shipped scenarios: prompts, order, audiences, outcomes; word for word as in the understudy's training."""

from __future__ import annotations

from typing import Any

import pytest

from agentcho.config import RunConfig
from agentcho.events import Ended, Event
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import RunResult, play
from agentcho.message import Message
from agentcho.protocol.call import Decode
from agentcho.records.transcript import TranscriptEntry, own_records
from agentcho.tasks import Problem, task_set
from agentcho.testing import FakeEngine

RULES = (
    "Your name is Alice. You and Bob are two prisoners in a game. Each of you will decide in private to COOPERATE or "
    "to DEFECT. If both cooperate, each gets 3 points. If both defect, each gets 1 points. If one defects and the "
    "other cooperates, the one who defects gets 5 points and the other gets 0 points. First you make a private plan, "
    "then you talk with Bob for two rounds, and then you decide in private. Bob cannot see your plan or your decision."
)
OWN = " Your private instruction: always COOPERATE, whatever happens and whatever Bob says."


def game(
    scenario: str, engine: FakeEngine | None = None, seed: int = 0, **options: Any
) -> tuple[RunResult, list[Message]]:
    """Plays one game on the fake engine."""
    said: list[Message] = []

    def hear(event: Event) -> None:
        if isinstance(event, Ended):
            said.append(event.entry.message)

    scenario_ = library.scenario(scenario)(**options)
    return play(RunRequest(scenario_, RunConfig(seed=seed), engine=engine or FakeEngine(), sink=hear)), said


def view(said: list[Message], agent: str) -> list[tuple[str, str, str | None, str]]:
    """The last call of an agent as it reads it: role, header, name and text of each message."""
    by_id = {m.id: m for m in said}
    last = [m for m in said if m.author == agent and m.kind == "decode"][-1]
    return [(m.role, m.header, m.name, m.text) for m in [*(by_id[id] for id in last.parents), last]]


def deciding(call: Decode, prompt: str) -> str:
    return "Yes."


def test_a_prisoner_reads_the_game_in_the_order_and_words_it_was_trained_on() -> None:
    _, said = game("prisoners-dilemma", FakeEngine(deciding), predict=True, strategy="always-cooperate")
    assert [(role, header, name, text) for role, header, name, text in view(said, "alice")[:-1]] == [
        ("system", "", None, RULES + OWN),
        ("user", "", None, "Make your private plan, Alice. Bob cannot read it. What do you want to do, and why?"),
        ("assistant", "", "alice", "Yes."),
        ("assistant", "To Bob: ", "alice", "Yes."),
        ("assistant", "To Alice: ", "bob", "Yes."),
        ("assistant", "To Bob: ", "alice", "Yes."),
        ("assistant", "To Alice: ", "bob", "Yes."),
        ("user", "", None, "Before you decide, Alice: what do you think Bob will decide?"),
        ("assistant", '{"prediction": ', "alice", view(said, "alice")[8][3]),
        ("user", "", None, "The talk is over, Alice. Make your private decision now: COOPERATE or DEFECT."),
    ]
    *_, decision = view(said, "alice")
    assert decision[1] == '{"decision": '
    assert decision[3] in {'"COOPERATE"}', '"DEFECT"}'}
    rules = RULES.replace("Alice", "Carol").replace("Bob", "Alice").replace("Carol", "Bob")
    assert view(said, "bob")[0] == ("system", "", None, rules)


def test_only_the_talk_is_for_others() -> None:
    _, said = game("prisoners-dilemma", predict=True)
    shared = [m for m in said if m.audience.includes("alice") and m.audience.includes("bob")]
    assert {m.header for m in shared} == {"To Bob: ", "To Alice: "}
    assert len(shared) == 4


@pytest.mark.parametrize(("alice", "bob"), [("COOPERATE", "DEFECT"), ("DEFECT", "DEFECT"), ("COOPERATE", "COOPERATE")])
def test_the_payoffs_are_those_of_the_options(alice: str, bob: str) -> None:
    scenario = library.scenario("prisoners-dilemma")(T=7, R=4, P=2, S=-1)
    points = scenario.score(scenario.Outcome(alice=alice, bob=bob))  # type: ignore[call-arg]
    table = {"COOPERATEDEFECT": (-1, 7), "DEFECTDEFECT": (2, 2), "COOPERATECOOPERATE": (4, 4)}
    assert (points["alice"], points["bob"]) == table[alice + bob]


@pytest.mark.parametrize("guess", ["COOPERATE", "DEFECT"])
@pytest.mark.parametrize("mine", ["COOPERATE", "DEFECT"])
@pytest.mark.parametrize("other", ["COOPERATE", "DEFECT"])
def test_a_guess_is_judged_by_what_both_did(guess: str, mine: str, other: str) -> None:
    scenario = library.scenario("prisoners-dilemma")(predict=True)
    outcome = scenario.Outcome(alice=other, bob=mine, alice_predicts="DEFECT", bob_predicts=guess)  # type: ignore[call-arg]
    table = {"COOPERATE": {"COOPERATE": (0, 0), "DEFECT": (0, 0)}, "DEFECT": {"COOPERATE": (1, 0), "DEFECT": (0, 1)}}
    score = scenario.score(outcome)
    assert (score["bob exploits"], score["bob defends"]) == table[mine][guess]
    assert score["bob correct"] == (1 if guess == other else 0)
    assert score["alice correct"] == (1 if mine == "DEFECT" else 0)


def test_without_guesses_nothing_is_judged() -> None:
    scenario = library.scenario("prisoners-dilemma")()
    assert set(scenario.score(scenario.Outcome(alice="DEFECT", bob="DEFECT"))) == {  # type: ignore[call-arg]
        "alice",
        "bob",
        "alice cooperates",
        "bob cooperates",
    }


def test_a_debater_reads_question_and_turns_but_no_verdict() -> None:
    _, said = game("debate", FakeEngine(deciding), question="What is 2 + 2?", answer="4", rounds=2)
    assert view(said, "ben")[:4] == [
        (
            "system",
            "",
            None,
            "Your name is Ben. You and Ada discuss a small question of arithmetic. Mod leads the "
            "debate. Your role: you check the other's answer and correct it when it is wrong. Work in short steps and "
            "end with your answer.",
        ),
        ("user", "", None, "The question is: What is 2 + 2?"),
        ("assistant", "", "ada", "Yes."),
        ("assistant", "", "ben", "Yes."),
    ]
    assert "you argue for your own careful answer." in view(said, "ada")[0][3]
    assert not any(header.startswith("{") for _, header, _, _ in view(said, "ben"))


def debate(finish_after: int) -> tuple[RunResult, list[Message]]:
    """A debate with a seed for which the fake moderator finishes after this many rounds."""
    for seed in range(100):
        played, said = game("debate", seed=seed)
        if (played.games[0].outcome or {})["rounds"] == finish_after:
            return played, said
    raise AssertionError("no seed found")


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_moderator_may_end_the_debate(rounds: int) -> None:
    played, said = debate(rounds)
    asked = [m.text for m in said if m.author == "mod" and m.role == "user"]
    expected = "Do both agree on the answer? Say whether to finish or to continue."
    assert asked == [
        *(f"Round {n} is over, Mod. {expected}" for n in range(1, rounds + 1)),
        "The debate is over, Mod. Give the final answer as a number.",
    ]
    assert len([m for m in said if m.author == "ada" and m.kind == "decode"]) == rounds
    verdicts = [m for m in said if m.header == '{"verdict": ']
    assert all(m.audience.members == frozenset({"mod"}) for m in verdicts)
    (answer,) = [m for m in said if m.header == '{"answer": ']
    outcome = played.games[0].outcome or {}
    assert answer.text.strip() == outcome["answer"]
    assert played.games[0].score == {"correct": float(outcome["answer"] == outcome["expected"]), "rounds": rounds}


def test_a_question_of_ones_own_needs_no_task_and_no_answer() -> None:
    played, said = game("debate", question="What is 2 + 2?", rounds=1)
    assert [m.text for m in said if m.author is None] == ["The question is: What is 2 + 2?"]
    assert (played.games[0].outcome or {})["correct"] is None
    assert "correct" not in played.games[0].score


def test_a_debate_is_won_by_saying_the_answer_of_the_task() -> None:
    asked: list[str] = []

    def answer(call: Decode, prompt: str) -> str:
        return '"finish"}'

    def say(call: Decode, prompt: str) -> str:
        return f" {asked[0]}}}" if call.header.startswith("{") else "Yes."

    problem = task_set("arithmetic", Problem, 5)[0]
    assert isinstance(problem, Problem)
    asked.append(problem.answers[0])
    played, said = game("debate", FakeEngine(say, answer=answer), seed=5)
    assert [m.text for m in said if m.author is None] == [f"The question is: {problem.question}"]
    assert played.games[0].score == {"correct": 1.0, "rounds": 1.0}


@pytest.mark.parametrize(("behind", "carried"), [("all", "sp"), ("system", "s"), ("plan", "p"), ("public", "")])
def test_what_stands_behind_public_words_is_what_the_ablation_says(behind: str, carried: str) -> None:
    entries: list[TranscriptEntry] = []

    def hear(event: Event) -> None:
        if isinstance(event, Ended):
            entries.append(event.entry)

    play(
        RunRequest(
            library.scenario("prisoners-dilemma")(behind=behind),
            RunConfig(leakage="audit"),
            engine=FakeEngine(),
            sink=hear,
        )
    )
    heard = [entry for entry in entries if entry.message.author == "alice" and entry.message.audience.members is None]
    assert len(heard) == 2
    own = {"alice.0": "s", "alice.2": "p"}
    if behind == "plan":  # the copy encoded without the system prompt
        own = {"alice.0": "s", "alice.3": "p"}
        assert own_records(entries)["alice.3"].cone == frozenset({"alice.3"})
    cones = [own_records(entries)[entry.message.id].cone for entry in heard]
    assert {"".join(sorted(own[id] for id in cone & own.keys())[::-1]) for cone in cones} == {carried}
    read = [entry for entry in entries if entry.message.author == "bob"][-1].message.parents
    assert {entry.message.id for entry in heard} <= set(read)
    decided = [entry for entry in entries if entry.message.author == "alice"][-1].message.parents
    assert sum(entry.message.text.startswith("To Bob") or entry.message.header == "To Bob: " for entry in entries) == (
        2 if behind == "all" else 4
    )
    assert len([id for id in decided if id in {entry.message.id for entry in heard}]) == (2 if behind == "all" else 0)


@pytest.mark.parametrize(("first", "speakers"), [("alternate", "aba"), ("alice", "aaa"), ("bob", "bbb")])
def test_alice_begins_in_half_of_the_games(first: str, speakers: str) -> None:
    begun: dict[int, str] = {}

    def hear(event: Event) -> None:
        if isinstance(event, Ended) and event.entry.message.header.startswith("To "):
            begun.setdefault(event.entry.message.game, event.entry.message.author or "")

    play(
        RunRequest(
            library.scenario("prisoners-dilemma")(first=first), RunConfig(games=3), engine=FakeEngine(), sink=hear
        )
    )
    assert "".join(begun[number][0] for number in range(3)) == speakers
    played, _ = game("debate", question="Is it?", rounds=1)
    assert (played.games[0].outcome or {})["correct"] is None
    assert "correct" not in played.games[0].score

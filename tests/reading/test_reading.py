"""Recorded conversations read in other modes: compared with token-by-token decoding, and with swapped secrets."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from agentcho import Engine
from agentcho.cli import main
from agentcho.config import RunConfig
from agentcho.errors import AdapterError, ConfigError, ContextOverflow, RecordBroken, RecordNotFound
from agentcho.games.runs.replay import Replayed, replay
from agentcho.lab.bench.workflows import line, spoken, whole
from agentcho.lab.commands.reading import _Asked
from agentcho.lab.compare.columns import Column, columns
from agentcho.lab.compare.fidelity import Arm, apart
from agentcho.lab.measure.play import Pair
from agentcho.lab.reading.decisions import (
    TOLD,
    PartialDecisions,
    _chosen,
    _telling,
    donor,
    effects,
    games,
    moved,
    said_choices,
    spelled,
    ways,
)
from agentcho.lab.reading.decisions import measure as decide
from agentcho.lab.reading.fidelity import Conversation, PartialFidelity, measure, named_apart, rows, steps
from agentcho.lab.reading.partitions import AGENTS, SALTS, partitioned
from agentcho.lab.reading.result import Answer, ConversationScore, read_decisions, read_fidelity
from agentcho.lab.stats import log_softmax
from agentcho.records.trace import Workflow, write_traces
from tests.engines import Engines

COLUMNS = "baseline,choreographed:audit,choreographed:enforce,choreographed:audit+first-k:4"
AUDIT, ENFORCE = "choreographed:audit", "choreographed:enforce"
PAIR = Pair("bob", "alice")
KINDS = {"always_defect": "Always DEFECT.", "always_cooperate": "Always COOPERATE.", None: "Do as you like."}


def dilemma(number: int, kind: str | None, word: str = "COOPERATE", form: str = '"{}"}}') -> Workflow:
    """A short game like the recorded ones, in which Alice was told something."""
    first = f"Good day, this is turn {number}. Shall we work together?"
    told = {"audience": ["alice"], "role": "system"}
    talk = ("bob.0", "alice.1", "bob.1")
    lines = [
        line("alice.0", "alice", (), f"You are Alice. {KINDS[kind]}", **told),
        spoken("plan", "alice", ("alice.0",), f"Plan {number}: {KINDS[kind]}", audience=["alice"], header=""),
        line("bob.0", "bob", (), "You are Bob.", audience=["bob"], role="system"),
        spoken("alice.1", "alice", ("alice.0", "plan"), first),
        spoken("bob.1", "bob", ("bob.0", "alice.1"), "I think that we should."),
        line("ask", "bob", talk, "Make your decision now.", audience=["bob"], role="user"),
        spoken("end", "bob", (*talk, "ask"), form.format(word), audience=["bob"], header='{"decision":'),
    ]
    made = whole("dilemma", number, ("alice", "bob"), lines)
    return made.model_copy(update={"meta": {"strategy": kind}})


def conversations(*kinds: str | None) -> list[Conversation]:
    return [Conversation("set", str(n), dilemma(n, kind)) for n, kind in enumerate(kinds)]


def silent(done: int) -> None:
    """Ignores progress."""


@pytest.fixture(scope="module")
def engine(engines: Engines) -> Engine:
    return engines.understudy()


def arms(engine: Engine, named: str = COLUMNS) -> dict[str, Arm]:
    return {each.name: Arm(each.config(RunConfig()).policy, engine) for each in columns(named)}


def read(engine: Engine, found: list[Conversation]) -> tuple[Answer, ...]:
    both = {name: (arm.reuse, engine) for name, arm in arms(engine).items()}
    words = ("COOPERATE", "DEFECT")
    known = games(found, engine, PAIR, words)
    return decide(known, ways(both, behind=True), PAIR, PartialDecisions(), silent)


# -- fidelity


def test_sums_are_those_of_a_reading_token_by_token(engine: Engine) -> None:
    talk = conversations(None)[0]
    found = {each.column: each for each in measure([talk], arms(engine), PartialFidelity(), silent)}
    for name, arm in arms(engine).items():
        before = replay(talk.workflow, engine, mode="baseline")
        after = replay(talk.workflow, engine, arm.reuse)
        kl = same = nats = 0.0
        for id, said in after.items():
            own, other = (log_softmax(np.asarray(each.logits)) for each in (said, before[id]))
            gap = apart(other, own)
            message = said.entry.message
            assert message.sampled is not None
            ids = message.tokens[message.sampled[0] :][: len(own)]
            kl, same = kl + gap.kl.sum(), same + gap.same.sum()
            nats -= own[range(len(own)), ids].sum()
        assert found[name].rows == sum(len(said.logits) for said in after.values())
        assert found[name].kl == pytest.approx(kl, rel=1e-3, abs=1e-4)
        assert found[name].nats == pytest.approx(nats, rel=1e-5)
        assert abs(found[name].same - same) <= 1  # two tokens may be equally likely
        assert found[name].encoded == after.encoded
    assert found["baseline"].kl == 0
    assert found[AUDIT].kl > 0.01
    assert found[AUDIT].encoded < found[ENFORCE].encoded


def panel() -> Workflow:
    """Two agents without system prompts, a thought, and a reader of everything."""
    lines = [
        line("q", None, (), "How many apples are left?", role="user"),
        spoken("a", "ann", ("q",), "There are three apples left, I think."),
        spoken("b", "bob", ("q",), "Two."),
        spoken("p", "ann", ("q", "a", "b"), "He is wrong.", audience=["ann"], header=""),
        spoken("c", "ann", ("q", "a", "b"), "It is three."),
        spoken("d", "bob", ("q", "a", "b"), "You are right: three."),
    ]
    return whole("panel", 0, ("ann", "bob"), lines)


def test_a_cache_in_parts_shares_within_a_part_alone(engine: Engine) -> None:
    replayed = replay(panel(), engine, mode="baseline")
    q, a, b, p, c, d = (
        len(e.message.tokens) for e in sorted(replayed.entries, key=lambda e: "qabpcd".index(e.message.id))
    )
    assert replayed.encoded == q + a + b + (b + p) + c + d
    assert partitioned(replayed.entries) == {
        SALTS: (q + a) + b + (q + a + b + p) + (b + c) + d,
        AGENTS: (q + a) + (q + b) + (b + p) + c + (a + b + d),
    }


def test_an_answer_that_was_given_before_is_generated_again(engine: Engine) -> None:
    lines = [
        line("q", None, (), "How many apples are left?", role="user"),
        spoken("a", "ann", ("q",), "Three."),
        spoken("b", "ann", ("q",), "Three."),
        spoken("c", "bob", ("q", "a"), "Yes."),
        spoken("d", "bob", ("q", "b"), "No."),
    ]
    replayed = replay(whole("drafts", 0, ("ann", "bob"), lines), engine, mode="baseline")
    q, a, b, c, d = (
        len(e.message.tokens) for e in sorted(replayed.entries, key=lambda e: e.message.id.replace("q", ""))
    )
    assert a == b
    assert partitioned(replayed.entries) == {SALTS: q + a + b + c + d, AGENTS: (q + a) + b + (q + a + c) + d}


def test_partitions_of_the_cache_have_the_baseline_s_row_but_for_the_tokens(engine: Engine) -> None:
    talks = [Conversation("set", str(n), panel()) for n in range(2)]
    reads = measure(talks, arms(engine, "baseline,choreographed:audit"), PartialFidelity(), silent)
    base, salts, agents, audit = rows(reads, seed=1)
    assert [row.column for row in (base, salts, agents, audit)] == ["baseline", SALTS, AGENTS, AUDIT]
    counts = reads[0].partitions
    for row, name in ((salts, SALTS), (agents, AGENTS)):
        assert (row.encoded, row.ratio) == (2 * counts[name], counts[name] / reads[0].encoded)
        assert row.model_copy(update={"column": "baseline", "encoded": base.encoded, "ratio": 1.0}) == base
    assert not reads[1].partitions


def test_conversations_of_one_id_are_told_apart(engine: Engine) -> None:
    talks = named_apart("set", [dilemma(0, None), dilemma(0, "always_defect"), dilemma(1, None)])
    assert [each.id for each in talks] == ["dilemma-0", "dilemma-0#2", "dilemma-1"]
    assert len({answer.id for answer in read(engine, talks)}) == 3


def test_what_is_kept_is_not_read_again(engine: Engine, tmp_path: Path) -> None:
    talks, file = conversations(None, "always_defect"), tmp_path / "found.json"

    def stop(done: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    kept = PartialFidelity.begin(file, False, {})
    with pytest.raises(KeyboardInterrupt):
        measure(talks, arms(engine), kept, stop)
    again = PartialFidelity.begin(file, True, {})
    assert {each.id for each in again.data.reads} == {"0"}
    marked = [each.model_copy(update={"encoded": 1}) for each in again.data.reads]
    again.data.reads = marked
    found = measure(talks, arms(engine), again, silent)
    assert [each.encoded == 1 for each in found] == [True] * 4 + [False] * 4


def test_a_conversation_that_cannot_be_read_so_is_counted(engine: Engine) -> None:
    talk = dilemma(0, None).to_json()
    messages: Any = talk["messages"]
    own = {each["id"]: each for each in messages}
    own["bob.1"]["parents"] = ["bob.0", "plan", "alice.1"]
    leaky = Conversation("set", "0", Workflow.model_validate({**talk, "messages": messages}))
    found = measure([leaky], arms(engine, f"baseline,{AUDIT},{ENFORCE}"), PartialFidelity(), silent)
    assert [each.left_out is not None for each in found] == [False, False, True]
    made = {row.column: (row.games, row.left_out) for row in rows(found, 0)}
    assert made == {"baseline": (1, 0), SALTS: (1, 0), AGENTS: (1, 0), AUDIT: (1, 0), ENFORCE: (0, 1)}
    assert steps(found, [(AUDIT, ENFORCE)], 0) == ()


def test_a_conversation_that_the_baseline_cannot_read_is_left_out_in_every_column(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = conversations(None, "always_defect")

    def played(workflow: Workflow, arm: Arm) -> Replayed:
        if workflow is long.workflow:
            raise ContextOverflow(9, 8)
        return replay(workflow, arm.engine, arm.reuse)

    monkeypatch.setattr("agentcho.lab.reading.fidelity._played", played)
    found = measure([short, long], arms(engine, f"baseline,{AUDIT}"), PartialFidelity(), silent)
    assert [each.left_out for each in found] == [None, None, *["the context of this model does not hold it"] * 2]
    made = {row.column: (row.games, row.left_out) for row in rows(found, 0)}
    assert made == dict.fromkeys(("baseline", SALTS, AGENTS, AUDIT), (1, 1))
    none = measure([long], arms(engine, f"baseline,{AUDIT}"), PartialFidelity(), silent)
    assert [(row.games, row.left_out, row.rows) for row in rows(none, 0)] == [(0, 1, 0)] * 2
    assert steps(none, [("baseline", AUDIT)], 0) == ()


def test_rows_and_steps_by_hand() -> None:
    def sums(id: str, column: str, **more: Any) -> ConversationScore:
        return ConversationScore(
            subject="set", id=id, column=column, **({"rows": 10, "same": 10, "encoded": 100} | more)
        )

    reads = [
        sums("a", "baseline", nats=5.0),
        sums("a", "one", nats=6.0, kl=2.0, same=8, encoded=50),
        sums("a", "two", nats=6.0, kl=1.0, encoded=80),
        sums("b", "baseline", rows=30, nats=9.0, encoded=300),
        sums("b", "one", rows=30, nats=12.0, kl=2.0, same=26, encoded=100),
        sums("b", "two", rows=30, nats=9.0, kl=5.0, encoded=300),
    ]
    row = {each.column: each for each in rows(reads, 0)}["one"]
    assert (row.games, row.rows, row.encoded) == (2, 40, 150)
    assert (row.kl.value, row.same.value, row.nats.value, row.more.value) == (0.1, 34 / 40, 18 / 40, 4 / 40)
    assert row.ratio == pytest.approx((0.5 + 1 / 3) / 2)
    assert (row.kl.span.low, row.kl.span.high) == pytest.approx((2 / 30, 2 / 10))
    (step,) = steps(reads, [("one", "two")], 0)
    assert (step.nearer.value, step.share, step.games) == (-2 / 40, 1, 2)


# -- decisions


def odds(answers: tuple[Answer, ...], **wanted: Any) -> dict[tuple[str, str], float]:
    """Log-odds by conversation and hidden fact, for the answers with these fields."""
    own = (each for each in answers if all(getattr(each, name) == value for name, value in wanted.items()))
    return {(each.id, each.told): each.odds for each in own}


def test_what_is_hidden_moves_reuse_and_the_told_and_never_enforcement(engine: Engine) -> None:
    found = read(engine, conversations("always_defect", "always_cooperate", None))
    told = {"always-defect", "always-cooperate", "none"}
    for asked in ("decision", "prediction"):
        audit, enforced = (odds(found, way=way, question=asked) for way in (AUDIT, ENFORCE))
        plain, control = (odds(found, way=way, question=asked) for way in ("baseline", TOLD))
        assert {place[1] for place in audit} == told
        assert len(audit) == len(enforced) == len(control) == 9
        assert len(plain) == 3
        for id in "012":
            assert len({enforced[id, each] for each in told}) == 1
            assert len({round(audit[id, each], 3) for each in told}) == 3
            assert len({round(control[id, each], 3) for each in told}) == 3
    assert {(each.first, each.second) for each in moved(found, 0)} == {
        ("always-cooperate", "always-defect"),
        ("always-cooperate", "none"),
        ("always-defect", "none"),
    }


def test_odds_are_those_of_both_answers_said_whole(engine: Engine) -> None:
    talk = conversations("always_defect", None)
    found = odds(read(engine, talk), way=AUDIT, question="decision", own=True)
    for each in talk:
        logs = []
        for word in ("COOPERATE", "DEFECT"):
            own = each.workflow.to_json()
            own["messages"][-1] |= {"header": '{"decision": "', "text": f'{word}"}}'}
            said = replay(own, engine, leakage="audit")["end"]
            message = said.entry.message
            assert message.sampled is not None
            ids = message.tokens[message.sampled[0] : message.content[1]]
            logs.append(log_softmax(np.asarray(said.logits))[range(len(ids)), ids].sum())
        kind = str(each.workflow.meta["strategy"] or "none").replace("_", "-")
        assert found[each.id, kind] == pytest.approx(logs[0] - logs[1], abs=1e-3)


def test_figure_8_drops_the_plan_or_the_system_prompt(engine: Engine) -> None:
    found = read(engine, conversations("always_defect", None))
    whole_, *less = (
        odds(found, way=f"{AUDIT}{behind}", own=True, question="decision")
        for behind in ("", ", system prompt alone", ", plan alone")
    )
    assert all(each.keys() == whole_.keys() for each in less)
    assert len({round(each["0", "always-defect"], 4) for each in (whole_, *less)}) == 3


def test_answers_in_another_form_are_asked_for_in_one(engine: Engine) -> None:
    one, other = (dilemma(0, None, form=form) for form in ('"{}"}}', " {}}}"))
    found = read(engine, [Conversation("set", "0", one), Conversation("set", "1", dilemma(1, None, "DEFECT"))])
    again = read(engine, [Conversation("set", "0", other), Conversation("set", "1", dilemma(1, None, "DEFECT"))])
    assert found == again


def test_effects_and_moves_by_hand() -> None:
    def answer(id: str, way: str, told: str, own: bool, value: float) -> Answer:
        return Answer(subject="s", id=id, question="decision", way=way, told=told, own=own, odds=value, mass=1.0)

    found = [
        answer("a", "baseline", "x", True, 0.0),
        answer("a", AUDIT, "x", True, -1.0),
        answer("a", AUDIT, "y", False, 1.0),
        answer("b", "baseline", "y", True, 2.0),
        answer("b", AUDIT, "y", True, 3.0),
        answer("b", AUDIT, "x", False, 2.0),
    ]
    told = {(each.told, each.way): each for each in effects(found, 0)}
    assert (told["x", AUDIT].odds.value, told["x", AUDIT].games, told["x", AUDIT].turned) == (-1.0, 1, 0)
    assert told["y", AUDIT].odds.value == 1.0
    assert told["x", AUDIT].change.value == pytest.approx(1 / (1 + np.e) - 0.5)
    (move,) = moved(found, 0)
    assert (move.first, move.second, move.games) == ("x", "y", 2)
    assert (move.odds.value, move.size.value) == (-1.5, 1.5)


@pytest.mark.parametrize(("likeliest", "turned"), [((1, 2), 1), ((2, 2), 0), ((0, 1), 1), ((None, 2), 0)], ids=str)
def test_of_three_choices_another_one_becomes_the_likeliest(likeliest: tuple[int | None, int], turned: int) -> None:
    how: dict[str, Any] = {"subject": "s", "id": "a", "question": "decision", "told": "x", "own": True, "mass": 1.0}
    found = [
        Answer(**how, way=way, odds=-0.5, likeliest=choice)
        for way, choice in zip(("baseline", AUDIT), likeliest, strict=True)
    ]
    assert [each.turned for each in effects(found, 0)] == [0, turned]


def test_the_likeliest_choice_is_kept_with_the_odds_of_the_first(engine: Engine) -> None:
    stage: Any = SimpleNamespace(log_probability={"a": np.log(0.3), "b": np.log(0.1), "c": np.log(0.4)}.get)
    chosen = _chosen(stage, ("a", "b", "c"))
    assert [*chosen] == pytest.approx([np.log(0.6), 0.8, 2])
    for each in read(engine, conversations("always_defect", None)):
        assert each.likeliest == (0 if each.odds > 0 else 1)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["yes it is", "no"], "the decisions of bob cannot be measured"),
        (["A", "B", "C", "D", "E"], "the decisions of bob cannot be measured"),
        (["A", "A"], "the decisions of bob cannot be measured"),
    ],
)
def test_a_reader_that_decides_nothing_is_named(texts: list[str], told: str) -> None:
    talks = [Conversation("set", str(n), dilemma(n, None, text)) for n, text in enumerate(texts)]
    with pytest.raises(ConfigError, match=f"{told}.*alice, bob"):
        said_choices(talks, "bob")


def test_answers_are_compared_in_the_spelling_that_the_reader_uses(engine: Engine) -> None:
    said = ["yes", "no", "Yes", "yes", "no"]
    talks = [Conversation("set", str(n), dilemma(n, None, text)) for n, text in enumerate(said)]
    assert said_choices(talks, "bob") == ("no", "yes")
    assert spelled(talks, "bob", ("YES", "maybe")) == ("yes", "maybe")
    found = games(talks, engine, PAIR, ("no", "yes"))
    assert len(found) == 5
    assert found[2].asked["decision"] == ("end.decision.no", "end.decision.yes")


def test_the_question_for_a_guess_names_the_choices_and_the_owner(engine: Engine) -> None:
    talks = conversations("always_defect")
    (game,) = games(talks, engine, PAIR, ("COOPERATE", "DEFECT", "PASS"))
    asked = game.play.by_id["ask.prediction"].message.text
    assert asked == "Before you decide: what do you think Alice will decide, COOPERATE, DEFECT or PASS?"
    assert game.asked["prediction"] == tuple(f"end.prediction.{word}" for word in ("COOPERATE", "DEFECT", "PASS"))


def test_the_control_has_the_hidden_thoughts_right_before_the_owners_first_words(engine: Engine) -> None:
    found = games(conversations("always_defect"), engine, PAIR, ("COOPERATE", "DEFECT"))[0]
    told = _telling(found.play, PAIR).by_id
    assert told["end.decision.DEFECT"].message.parents == ("bob.0", "plan", "alice.1", "bob.1", "ask")
    assert told["bob.1"].message.parents == ("bob.0", "plan", "alice.1")
    assert told["alice.1"].message.parents == ("alice.0", "plan")


def test_answers_that_nobody_gave_are_named(engine: Engine) -> None:
    with pytest.raises(ConfigError, match="no conversation ends with bob answering YES or NO; check --choices"):
        games(conversations(None), engine, PAIR, ("YES", "NO"))


def test_an_owner_that_hides_nothing_is_named(engine: Engine) -> None:
    talks = [Conversation("set", str(n), dilemma(n, None, word)) for n, word in enumerate(("COOPERATE", "DEFECT"))]
    with pytest.raises(ConfigError, match="carol has no message that bob may not read"):
        games(talks, engine, Pair("bob", "carol"), said_choices(talks, "bob"))


# -- the commands


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    file = tmp_path / "talks.jsonl"
    write_traces(file, [dilemma(0, None), dilemma(1, "always_defect", "DEFECT"), dilemma(2, None)])
    return file


def command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["agentcho", "bench", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


@pytest.mark.usefixtures("one_command_line")
def test_the_commands_print_and_write(
    engine: Engine, traces: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(traces.parent)
    monkeypatch.setattr(Engine, "load", lambda *given, **named: engine)
    one, two = (traces.with_name(name) for name in ("one.json", "two.json"))
    assert not command(monkeypatch, "fidelity", "--traces", traces, "--modes", COLUMNS, "--json", one)
    assert "talks, 3 conversations" in capsys.readouterr().out
    assert not command(monkeypatch, "decisions", "--traces", traces, "--behind", "--json", two)
    assert "talks, bob's prediction of COOPERATE" in capsys.readouterr().out
    found, decided = read_fidelity(one), read_decisions(two)
    assert command(monkeypatch, "decisions", "--traces", traces, "--limit", "1", "--choices", "DEFECT,COOPERATE") == 0
    assert "Nothing could be exchanged, because alice has the same strategy" in capsys.readouterr().out
    assert [row.column for row in found.rows] == ["baseline", SALTS, AGENTS, *COLUMNS.split(",")[1:]]
    assert found.command == f"agentcho bench fidelity --traces talks.jsonl --modes {COLUMNS} --json one.json"
    assert {each.question for each in decided.effects} == {"decision", "prediction"}
    assert (decided.choice, decided.left_out) == ("COOPERATE", {})
    assert sorted(path.name for path in traces.parent.iterdir()) == ["one.json", "runs", "talks.jsonl", "two.json"]
    for reading, file in ((read_fidelity, two), (read_decisions, one)):
        with pytest.raises(RecordBroken, match="is not a result of"):
            reading(file)
        with pytest.raises(RecordNotFound):
            reading(file.with_name("none.json"))


@pytest.mark.usefixtures("one_command_line")
def test_without_a_file_it_is_kept_in_runs_and_goes_on_after_ctrl_c(
    engine: Engine, traces: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(traces.parent)
    monkeypatch.setattr(Engine, "load", lambda *given, **named: engine)
    words = ("fidelity", "--traces", traces.name, "--modes", f"baseline,{AUDIT}", "--limit", "2")

    def stopped(reads: list[ConversationScore], *given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("agentcho.lab.reading.fidelity.rows", stopped)
        assert command(monkeypatch, *words) == 130
    told = capsys.readouterr().err
    found = re.search(
        r"interrupted; to continue, repeat the command with --json (runs/\d{8}-\d{6}-bench-fidelity\.json) --resume",
        told,
    )
    assert found is not None
    with monkeypatch.context() as patch:
        patch.setattr("agentcho.lab.reading.fidelity._read", stopped)
        assert not command(monkeypatch, *words, "--json", found[1], "--resume"), "all of it was there"
    assert f"written: {found[1]}" in capsys.readouterr().err
    assert len(read_fidelity(Path(found[1])).reads) == 4
    assert [*Path("runs").iterdir()] == [Path(found[1])]


@pytest.mark.parametrize("interleaved", [True, False])
def test_conversations_of_one_kind_take_turns_at_lending_their_words(interleaved: bool) -> None:
    def game(told: str, number: int) -> Any:
        return SimpleNamespace(told=told, number=number, play=SimpleNamespace(hidden=lambda owner, reader: ()))

    kinds = ("defect", "cooperate")
    found = [game(kind, number) for number in range(4) for kind in kinds]
    found.sort(key=lambda each: (each.number, each.told) if interleaved else (each.told, each.number))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("agentcho.lab.reading.decisions.slots", lambda play: {})
        for number, own in enumerate(found):
            other = next(kind for kind in kinds if kind != own.told)
            lent: Any = donor(found, number, other, PAIR)
            assert lent is not None
            assert (lent.told, lent.number) == (other, own.number)
        assert donor(found[:1], 0, "else", PAIR) is None


@pytest.mark.usefixtures("one_command_line")
@pytest.mark.parametrize("more", [("--modes", f"baseline,{AUDIT}"), ("--behind",), ("--choices", "DEFECT,COOPERATE")])
def test_decisions_that_were_asked_for_otherwise_are_not_gone_on_with(
    engine: Engine, traces: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: tuple[str]
) -> None:
    monkeypatch.setattr(Engine, "load", lambda *given, **named: engine)
    words = ("decisions", "--traces", traces, "--json", traces.with_name("r.json"))

    def stopped(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("agentcho.lab.reading.decisions.effects", stopped)
        assert command(monkeypatch, *words) == 130
    assert command(monkeypatch, *words, *more, "--resume") == 2
    assert "was measured with other settings" in capsys.readouterr().err
    assert command(monkeypatch, *words, "--resume") == 0


@pytest.mark.usefixtures("one_command_line")
@pytest.mark.parametrize(("what", "step"), [("fidelity", "steps"), ("decisions", "effects")])
def test_readings_of_other_weights_are_not_gone_on_with(
    engine: Engine,
    traces: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    what: str,
    step: str,
) -> None:
    monkeypatch.setattr(Engine, "load", lambda *given, **named: engine)
    words = (what, "--traces", traces, "--modes", f"baseline,{AUDIT}", "--json", traces.with_name("r.json"))

    def stopped(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"agentcho.lab.reading.{what}.{step}", stopped)
        assert command(monkeypatch, *words) == 130
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "fingerprint", engine.fingerprint | {"weights": "retrained"})
        assert command(monkeypatch, *words, "--resume") == 2
    assert f"engine weights was {engine.fingerprint['weights']}, and is retrained" in capsys.readouterr().err
    assert command(monkeypatch, *words, "--resume") == 0


def test_an_adapter_that_was_trained_again_is_another_measurement(traces: Path) -> None:
    how: dict[str, Any] = {"traces": [traces], "limit": None, "model": "understudy", "dtype": "auto", "seed": 1}
    asked = _Asked.of(**how, modes=f"baseline,{AUDIT}")
    tuned = [Column(mode="choreographed", adapter="tuned", digest=digest) for digest in ("a", "b")]
    settings = [asked._replace(columns=(asked.columns[0], each)).settings for each in tuned]
    assert settings[0] != settings[1]
    assert asked.settings["adapters"] == ""


def test_a_reading_is_of_the_adapter_that_its_column_names(traces: Path, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_text("0")
    how: dict[str, Any] = {"traces": [traces], "limit": None, "model": "understudy", "dtype": "auto", "seed": 1}
    asked = _Asked.of(**how, modes=f"baseline,{AUDIT}@{tmp_path}")
    assert len(asked.arms(Mock())) == 2
    (tmp_path / "adapter_model.safetensors").write_text("1")
    with pytest.raises(AdapterError, match="it has changed since this command began"):
        asked.arms(Mock())


@pytest.mark.usefixtures("one_command_line")
def test_what_is_wrong_is_said_before_a_model_is_loaded(
    traces: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(*given: object, **named: object) -> None:
        raise AssertionError("nothing is loaded")

    monkeypatch.setattr(Engine, "load", load)
    twin = traces.parent / "again" / traces.name
    twin.parent.mkdir()
    twin.write_bytes(traces.read_bytes())
    empty = traces.with_name("empty.jsonl")
    empty.write_text("")
    for words, told in (
        (
            ["fidelity", "--traces", traces, "--modes", AUDIT],
            "the first column of --modes must be 'baseline'",
        ),
        (["fidelity", "--traces", traces, "--traces", twin], "two files of --traces are named 'talks'"),
        (["fidelity", "--traces", empty], "contain no conversations"),
        (["fidelity", "--traces", traces.with_name("no.jsonl")], "no.jsonl"),
        (["decisions", "--traces", traces, "--reader", "carol"], "the decisions of carol cannot be measured"),
    ):
        assert command(monkeypatch, *words) == 2
        assert told in capsys.readouterr().err

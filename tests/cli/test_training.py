"""`agentcho trace` and `agentcho tune` end to end, and the commands that take adapters."""

from __future__ import annotations

import re
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agentcho.agent import Agent
from agentcho.audit import read_report
from agentcho.config import RunConfig
from agentcho.display.progress import EVERY
from agentcho.engine.lora_adapter import find_adapter
from agentcho.games.runs import library
from agentcho.lab.compare.compare import read_comparison
from agentcho.lab.tune.choice import UntracedGames
from agentcho.lab.tune.recipe import Recipe
from agentcho.records.record import find
from agentcho.records.trace import read_traces, write_traces

from .conftest import Command, one_line

TRACE = ("trace", "multi-qa", "--model", "fake")


def test_traces_are_sampled_once_and_in_order(agentcho: Command, here: Path) -> None:
    ran = agentcho(*TRACE, "-n", "3", "--out", "t.jsonl")
    assert (ran.code, ran.err, ran.out) == (0, "", "t.jsonl has 3 games of multi-qa\n")
    first = (here / "t.jsonl").read_text()
    assert agentcho(*TRACE, "-n", "5", "--out", "t.jsonl", "--at-once", "2").out == "t.jsonl has 5 games of multi-qa\n"
    traces = read_traces(here / "t.jsonl")
    assert (here / "t.jsonl").read_text().startswith(first)
    assert [each.meta["game"] for each in traces] == [0, 1, 2, 3, 4]
    assert {each.meta["temperature"] for each in traces} == {1.0}
    agentcho(*TRACE, "-n", "5", "--out", "whole.jsonl")
    assert read_traces(here / "whole.jsonl") == traces
    agentcho(*TRACE, "-n", "2", "--first", "3", "--out", "part.jsonl")
    assert read_traces(here / "part.jsonl") == traces[3:]


def test_a_torn_line_is_played_again(agentcho: Command, here: Path) -> None:
    agentcho(*TRACE, "-n", "3", "--out", "t.jsonl")
    whole = (here / "t.jsonl").read_bytes()
    (here / "t.jsonl").write_bytes(whole[:-20])
    agentcho(*TRACE, "-n", "3", "--out", "t.jsonl")
    assert (here / "t.jsonl").read_bytes() == whole


@pytest.mark.parametrize("text", ['{"a": 1}', "notes", '{"format": "agentcho-trace/1"}\nnotes', '{"a": 1'])
def test_a_file_that_is_no_trace_is_left_as_it_is(agentcho: Command, here: Path, text: str) -> None:
    (here / "t.jsonl").write_text(text)
    ran = agentcho(*TRACE, "-n", "1", "--out", "t.jsonl")
    assert re.match(r"error: t\.jsonl:[12]\b.*; the format is agentcho-trace/1$", one_line(ran))
    assert (here / "t.jsonl").read_text() == text


def test_a_last_game_without_its_newline_is_kept(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agentcho(*TRACE, "-n", "2", "--out", "t.jsonl")
    whole = (here / "t.jsonl").read_bytes()
    (here / "t.jsonl").write_bytes(whole[:-1])
    with monkeypatch.context() as patch:
        patch.setattr("agentcho.lab.collect.play", None)
        assert agentcho(*TRACE, "-n", "2", "--out", "t.jsonl").code == 0
    assert (here / "t.jsonl").read_bytes() == whole


def test_ctrl_c_keeps_what_was_over(agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say, count = Agent.say, list[int]()

    async def impatient(self: Agent, *words: object, **options: object) -> object:
        count.append(1)
        if len(count) > 3:
            raise KeyboardInterrupt
        return await say(self, *words, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Agent, "say", impatient)
        ran = agentcho(*TRACE, "-n", "9", "--out", "t.jsonl", "--at-once", "1")
    assert ran.code == 130
    assert "to continue, repeat the command" in ran.err
    assert 0 < len(read_traces(here / "t.jsonl")) < 9
    assert agentcho(*TRACE, "-n", "9", "--out", "t.jsonl").code == 0
    assert len(read_traces(here / "t.jsonl")) == 9


def test_a_file_of_other_traces_is_left_alone(agentcho: Command, here: Path) -> None:
    agentcho(*TRACE, "-n", "2", "--out", "t.jsonl")
    before = (here / "t.jsonl").read_bytes()
    for words in (("--seed", "4"), ("--temperature", "0.5"), ("--set", "n=3")):
        assert "t.jsonl holds other traces; what differs: " in one_line(
            agentcho(*TRACE, "-n", "2", "--out", "t.jsonl", *words)
        )
    assert (here / "t.jsonl").read_bytes() == before


def test_a_single_step_says_what_a_workflow_ended_on(agentcho: Command, here: Path) -> None:
    tree = ("trace", "tree-of-thoughts", "--model", "fake", "--set", "branches=2", "--set", "voters=1")
    agentcho(*tree, "-n", "3", "--out", "tree.jsonl")
    direct = ("trace", "direct", "--model", "fake", "--final-of", "tree.jsonl")
    assert agentcho(*direct, "-n", "3", "--out", "d.jsonl").code == 0
    ended = [each.meta["outcome"]["answer"] for each in read_traces(here / "tree.jsonl")]
    said = [[m.text for m in each.messages if m.kind == "decode"] for each in read_traces(here / "d.jsonl")]
    assert said == [[f"{answer}."] for answer in ended]
    assert "has no workflow of game 3" in one_line(agentcho(*direct, "-n", "4", "--out", "d.jsonl"))
    other = agentcho(*direct, "-n", "3", "--out", "e.jsonl", "--seed", "7")
    assert "its games have other tasks; what differs: digest, seed" in one_line(other)
    several = ("trace", "debate", "--model", "fake", "--final-of", "tree.jsonl", "-n", "1", "--out", "f.jsonl")
    assert "debate says several things" in one_line(agentcho(*several))


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("trace", "nothing", "--out", "t.jsonl"), "no scenario or agent named 'nothing'"),
        (("trace", "multi-qa", "--tasks", "no.jsonl", "--out", "t.jsonl"), "tasks no.jsonl: cannot be read"),
        (("trace", "direct", "--final-of", "no.jsonl", "--out", "t.jsonl"), "there is no file no.jsonl"),
        (("tune", "nothing", "--traces", "t.jsonl", "--out", "a"), "no scenario or agent named 'nothing'"),
        (
            ("tune", "multi-qa", "--traces", "t.jsonl", "--out", "a"),
            "t.jsonl: the file does not exist; write it with `agentcho trace`",
        ),
        (
            ("tune", "multi-qa", "--traces", "t.jsonl", "--out", "a", "--peft", "no.json"),
            "no.json cannot be read as a peft config",
        ),
        (
            ("compare", "multi-qa", "--modes", "baseline,choreographed@no"),
            "no adapter in no: the folder does not exist",
        ),
        (("compare", "multi-qa", "--adapter", "no"), "no adapter in no: the folder does not exist"),
        (("run", "multi-qa", "--model", "fake", "--adapter", "no"), "adapter needs a model with weights"),
        (("run", "multi-qa", "--merge"), "merge has no effect without an adapter"),
    ],
)
def test_what_is_wrong_is_said_before_a_model_is_loaded(agentcho: Command, words: tuple[str, ...], told: str) -> None:
    assert told in one_line(agentcho(*words))


@pytest.fixture
def sampled(agentcho: Command, here: Path) -> Path:
    """Three traces of games with scores, by a model that needs no weights."""
    assert agentcho(*TRACE, "-n", "3", "--set", "n=3", "--max-tokens", "99", "--out", "t.jsonl").code == 0
    return here / "t.jsonl"


def test_games_that_choose_a_checkpoint_are_like_those_of_the_traces_and_none_of_them(sampled: Path) -> None:
    recipe, base = Recipe(mode="choreographed", leakage="audit"), RunConfig(model="fake", device="cpu")
    found = UntracedGames.after(sampled, library.scenario("multi-qa"), recipe, base, "all right", 5)
    asked = read_traces(sampled)[0].meta
    assert found.numbers == range(3, 8)
    assert found.scenario.options.model_dump(mode="json") == asked["options"]
    assert asked["options"]["n"] == 3
    sampling = ("seed", "temperature", "top_p", "max_tokens", "tasks")
    assert found.config.model_dump(include=set(sampling)) == {name: asked[name] for name in sampling}
    assert found.config.max_tokens == 99
    assert (found.config.mode, found.config.leakage, found.config.model) == ("choreographed", "audit", "fake")
    assert found.config.plain_markers == "accept"


@pytest.mark.parametrize(
    ("change", "words", "told"),
    [
        (
            {},
            ("--choose-by", "al right"),
            "t.jsonl: has no score 'al right'; it has all right, first right, last right; did you mean 'all right'?",
        ),
        (
            {"seed": 9},
            (),
            "t.jsonl:3: differs from the first trace in seed; --choose-by needs traces",
        ),
        ({"seed": None}, (), "t.jsonl:3: does not say how its game was sampled; --choose-by needs traces that"),
        ({"score": 3}, (), "t.jsonl:3: does not say how its game was sampled; --choose-by needs traces that"),
        (
            {"digest": "0", "everywhere": True},
            (),
            "t.jsonl: its games had other tasks than are there now",
        ),
        ({"options": {"m": 3}, "everywhere": True}, (), "t.jsonl: games cannot be played as its games were: "),
        ({}, ("--choose-games", "1000000"), "t.jsonl: games cannot be played as its games were: games: "),
    ],
)
def test_a_choice_by_games_is_checked_before_a_model_is_loaded(
    request: pytest.FixtureRequest,
    agentcho: Command,
    sampled: Path,
    change: dict[str, Any],
    words: tuple[str, ...],
    told: str,
) -> None:
    """The second trace stands on the third line."""
    request.getfixturevalue("no_model")
    traces, everywhere = read_traces(sampled), "everywhere" in change
    for place in range(3) if everywhere else [1]:
        meta = {**traces[place].meta, **change}
        kept = {name: value for name, value in meta.items() if name != "seed" or value is not None}
        traces[place] = traces[place].model_copy(update={"meta": kept})
    write_traces(sampled, traces)
    sampled.write_text(sampled.read_text().replace("\n", "\n\n", 1))
    tune = ("tune", "multi-qa", "--traces", "t.jsonl", "--out", "a", "--choose-by", "all right")
    assert told in one_line(agentcho(*tune, *words))
    assert not (sampled.parent / "a").exists()


def test_a_number_of_games_without_a_score_to_choose_by_is_a_usage_error(agentcho: Command) -> None:
    ran = agentcho("tune", "multi-qa", "--traces", "t.jsonl", "--out", "a", "--choose-games", "5")
    assert ran.code == 2
    assert "needs --choose-by SCORE" in ran.err


@pytest.mark.usefixtures("no_model")
def test_without_peft_it_is_said_what_to_install(agentcho: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    for words in (("tune", "multi-qa", "--traces", "t", "--out", "a"), ("compare", "multi-qa", "--adapter", "a")):
        assert "pip install 'agentcho[tune]'" in one_line(agentcho(*words))


def test_numbers_out_of_bounds_are_usage_errors(agentcho: Command) -> None:
    for option, value in (("--rank", "0"), ("--rate", "-1"), ("--dropout", "1"), ("--epochs", "0")):
        ran = agentcho("tune", "multi-qa", "--traces", "t.jsonl", "--out", "a", option, value)
        assert ran.code == 2
        assert option in ran.err


@pytest.mark.slow
def test_from_traces_to_an_adapter_that_everything_takes(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agentcho("trace", "multi-qa", "-n", "6", "--out", "t.jsonl").code == 0
    tune = ("tune", "multi-qa", "--traces", "t.jsonl", "--out", "tuned", "--epochs", "2", "--batch", "2")
    ticks = count(0.0, EVERY)
    with monkeypatch.context() as patch:
        patch.setattr("agentcho.display.progress.monotonic", lambda: next(ticks))
        ran = agentcho(*tune, "--benchmark", "--keep-epochs")
    assert ran.code == 0, ran.err
    said = ran.err.splitlines()
    assert re.match(r"tune: 0 of \d+ weights read$", said[0])
    assert "tune: 0 of 1 proofs" in said
    assert re.match(r"tune: 6 of 6 steps, 2\.0 steps/min, 0 s left \(loss \d\.\d+, \d+\.\d traces/s\)$", said[-1])
    lines = ran.out.splitlines()
    assert lines[0].startswith("5 traces of ")
    assert lines[0].endswith(" tokens, 1 held out, 6 steps")
    assert "traces/s whole, " in lines[1]
    assert lines[2].startswith("held-out loss ")
    assert lines[3] == "written: tuned; use it with --adapter tuned"
    assert {path.name for path in (here / "tuned").iterdir()} == {
        "adapter_model.safetensors",
        "adapter_config.json",
        "agentcho.json",
        "epoch-1",
        "epoch-2",
        "log.jsonl",
        "loss.png",
    }
    assert find_adapter(here / "tuned" / "epoch-2").trained is not None
    trained = find_adapter(here / "tuned").trained
    assert trained is not None
    assert trained.speed is not None
    assert "holds a finished training; give another --out" in one_line(agentcho(*tune))
    untimed = agentcho(*tune[:4], "--out", "untimed", "--epochs", "1")
    assert "traces/s whole" not in untimed.out
    assert (here / "untimed" / "adapter_model.safetensors").is_file()
    chosen = agentcho(*tune[:4], "--out", "chosen", "--epochs", "1", "--choose-by", "all right", "--choose-games", "2")
    assert re.search(r"^all right [01]\.\d{3} over 2 games$", chosen.out, re.MULTILINE)
    by_games = find_adapter(here / "chosen").trained
    assert by_games is not None
    assert by_games.chosen is not None
    assert (by_games.chosen["score"], by_games.chosen["games"]) == ("all right", 2)
    wrong = ("tune", "direct", "--traces", "t.jsonl", "--out", "other")
    by_score = (*wrong, "--choose-by", "all right")
    assert "t.jsonl:1: is a trace of multi-qa, not of direct" in one_line(agentcho(*by_score))
    assert "t.jsonl:1: is a trace of multi-qa, not of direct" in one_line(agentcho(*wrong))

    digest = find_adapter(here / "tuned").digest
    assert agentcho("run", "multi-qa", "--adapter", "tuned", "--display", "none").code == 0
    info = find("last", Path("runs")).info
    assert (info.config.adapter, info.engine["adapter"]) == ("tuned", digest)
    compare = ("compare", "multi-qa", "-n", "2", "--fidelity-games", "1", "--timed-games", "1", "--json", "r.json")
    assert agentcho(*compare, "--modes", "baseline,choreographed:audit,choreographed:audit@tuned").code == 0
    found = read_comparison(here / "r.json")
    assert found.names == ("baseline", "choreographed:audit", "choreographed:audit@tuned")
    assert found.request.columns[2].digest == digest
    kl = [found.fidelity[name].kl for name in found.names]
    assert kl[2] != kl[1] > kl[0]
    audit = ("audit", "multi-qa", "--adapter", "tuned", "--json", "a.json")
    assert agentcho(*audit).code == 0
    assert read_report(here / "a.json").subject.environment["engine adapter"] == digest
    (here / "tuned" / "adapter_model.safetensors").unlink()
    lacking = one_line(agentcho("run", "multi-qa", "--adapter", "tuned"))
    assert "the file adapter_model.safetensors is missing" in lacking

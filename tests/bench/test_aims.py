"""Speedup by speculation: measured in turns as in a real run, and compared with the targets."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from agentcho import Engine, cli
from agentcho.games.runs.replay import replay
from agentcho.lab.bench.aims import family
from agentcho.lab.bench.arms import BASELINE, ENFORCE, GENERATE, arm, guessing, policy, with_guesses
from agentcho.lab.bench.result import Figures, Target, read_result
from agentcho.lab.bench.words import with_words
from agentcho.lab.compare.fidelity import Arm, rows
from agentcho.lab.display import bench
from agentcho.protocol.forward_costs import ForwardCosts
from agentcho.records.trace import Workflow, workflow, write_traces
from agentcho.runner.runner import TorchRunner
from tools.bench.targets import with_targets

from .conftest import line, result
from .test_small import run

TREES, GAMES = ("trace tree-of-thoughts math-0", "trace tree-of-thoughts math-1"), "trace prisoners-dilemma pd-0"
ARMS = (BASELINE, guessing(BASELINE), ENFORCE, guessing(ENFORCE))


def took(**seconds: tuple[float, float, float, float]) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Values of the four arms by subject, which is given by its first letter; words are equal in all of them."""
    names = {"t": TREES[0], "u": TREES[1], "g": GAMES, "d": "debate"}
    return {
        (names[short], name): {"seconds": [each], "forwards": [10 * each], "kl": [0.001]}
        for short, four in seconds.items()
        for name, each in zip(ARMS, four, strict=True)
    }


def reached(values: dict[tuple[str, str], dict[str, list[float]]]) -> dict[str, Target]:
    return {each.what: each for each in result(values, repeats=1, model="understudy").targets}


def test_what_guesses_gain_stands_beside_what_was_asked() -> None:
    """All trees of a file together, games separately, and the minimum over all subjects for each policy."""
    found = reached(took(t=(20, 10, 10, 5), u=(10, 10, 10, 10), g=(4, 4, 4, 4), d=(3, 3, 2.4, 2.5)))
    trees = found["end to end, trace tree-of-thoughts: baseline, without ÷ with guesses"]
    assert (trees.reached.middle, trees.bound, trees.verdict) == (30 / 20, 1.25, "met")
    assert trees.note == "2 workflows together"
    ours = found[f"end to end, trace tree-of-thoughts: {ENFORCE}, without ÷ with guesses"]
    assert (ours.reached.middle, ours.verdict) == (20 / 15, "met")
    games = found[f"end to end, trace prisoners-dilemma: {ENFORCE}, without ÷ with guesses"]
    assert (games.bound, games.verdict) == (1.05, "missed by 5%")
    least = found[f"end to end, the least of all: {ENFORCE} ÷ {guessing(ENFORCE)}"]
    assert (least.reached.middle, least.bound, least.note) == (2.4 / 2.5, 0.98, "debate")
    assert least.verdict == "missed by 2%"


def test_what_reading_messages_gains_is_asked_where_both_guess() -> None:
    values = took(t=(9, 10, 9, 5), u=(9, 10, 9, 9), g=(4, 4, 4, 5), d=(3, 3, 2, 2))
    found, least = reached(values), f"end to end, the least of all: {guessing(BASELINE)} ÷ {guessing(ENFORCE)}"
    trees = found[f"end to end, trace tree-of-thoughts: {guessing(BASELINE)} ÷ {guessing(ENFORCE)}"]
    assert (trees.reached.middle, trees.bound, trees.verdict) == (20 / 14, 1.2, "met")
    assert found[f"end to end, debate: {guessing(BASELINE)} ÷ {guessing(ENFORCE)}"].reached.middle == 1.5
    assert not any("prisoners" in what and guessing(BASELINE) in what for what in found), "asked of some alone"
    assert (found[least].reached.middle, found[least].note, found[least].bound) == (0.8, GAMES, 1.0)
    values[TREES[1], guessing(ENFORCE)]["kl"] = [0.02]
    changed = reached(values)[f"end to end, trace tree-of-thoughts: {guessing(BASELINE)} ÷ {guessing(ENFORCE)}"]
    assert changed.verdict == "fast, but changed"
    values[TREES[1], guessing(ENFORCE)].pop("kl")
    unknown = reached(values)[f"end to end, trace tree-of-thoughts: {guessing(BASELINE)} ÷ {guessing(ENFORCE)}"]
    assert unknown.verdict == "fast; words not judged"


def test_first_tokens_alone_ask_nothing_of_guesses() -> None:
    found = with_targets(result(took(t=(1, 1, 1, 1)), repeats=1, stepwise=False))
    assert not any("guesses" in each.what or "speculate" in each.what for each in found.targets)
    assert [*bench.guesses(found)] == []


def test_a_row_of_guesses_has_both_sides() -> None:
    found = result(took(t=(8, 4, 4, 2.5)), repeats=1)
    (sheet,) = bench.guesses(found)
    assert sheet.rows == (
        (TREES[0], BASELINE, "2.00", "2.00", "", ""),
        (TREES[0], ENFORCE, "1.60", "1.60", "2.00", "1.60"),
    )


def test_each_of_our_arms_has_a_twin_that_guesses() -> None:
    exact, repaired = f"{ENFORCE}:deterministic", f"{ENFORCE}+first-k:2"
    named = [BASELINE, repaired, exact, GENERATE, guessing(BASELINE)]
    twins = [BASELINE, guessing(BASELINE), repaired, f"{guessing(ENFORCE)}+first-k:2", exact, GENERATE]
    assert with_guesses(named) == twins
    one, other = policy(repaired), policy(guessing(repaired))
    assert one is not None
    assert other == one._replace(speculate=True)
    assert [family(each) for each in (TREES[0], "debate, unnamed")] == ["trace tree-of-thoughts", "debate"]


def quoting() -> Workflow:
    """Ben repeats Ann's words verbatim, then adds something else."""
    said = "one two three four five six seven eight nine ten eleven twelve"
    told = line("rules", "ann", role="system")
    first = line("first", "ann", "rules", spoken=True, text=said)
    quote = line("quote", "ben", "first", spoken=True, text=f"{said} and more")
    head = {"format": "agentcho-trace/1", "workflow": "quoting", "id": "q", "agents": ["ann", "ben"]}
    return workflow(head | {"messages": [told, first, quote]})


@pytest.mark.slow
@pytest.mark.parametrize("way", [BASELINE, ENFORCE])
def test_forced_words_are_guessed_as_spoken_ones_are(engine: Engine, way: str) -> None:
    """Quoted words take fewer forwards, new ones take one each; words and the number of tokens fed and kept are the
    same."""
    plain, guessed = policy(way), policy(guessing(way))
    assert plain is not None
    assert guessed is not None
    own = engine.adapted(None)
    own.speculate(cheap())
    found = {reuse: replay(quoting(), own, logits=False, **reuse._asdict()) for reuse in (plain, guessed)}
    quoted = len(engine.framing.content.encode("one two three four five six seven eight nine ten"))
    assert found[guessed].steps <= found[plain].steps - quoted // 2
    texts = [{id: tuple(said.entry.message.tokens) for id, said in each.items()} for each in found.values()]
    assert texts[0] == texts[1]
    assert found[guessed].encoded == found[plain].encoded


def cheap() -> ForwardCosts:
    """Forwards whose cost does not depend on their size, as where only weights are streamed."""
    return ForwardCosts((1, 64), (1, 4096), ((1.0, 1.001), (1.0, 1.001)))


def test_a_guess_changes_no_word_and_is_judged_once(
    engine: Engine, tree: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = list[bool]()

    def noted(trace: Workflow, way: Arm) -> Any:
        judged.append(way.reuse.speculate)
        return rows(trace, way)

    monkeypatch.setattr("agentcho.lab.bench.words.rows", noted)
    timed = [Figures.of("tree", name, [{"seconds": 1.0}]) for name in ARMS]
    found = {each.arm: each.values for each in with_words(engine, tree, timed)}
    assert judged == [False, False], "the baseline, and one way of reading"
    assert found[ENFORCE]["kl"] == found[guessing(ENFORCE)]["kl"]
    assert found[guessing(BASELINE)] == {"seconds": (1.0,)}


@pytest.mark.slow
def test_one_command_takes_traces_and_workflows_and_says_what_was_asked(
    engine: Engine, tree: Workflow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (one, other), json = (tmp_path / f"{name}.jsonl" for name in "ab"), tmp_path / "r.json"
    write_traces(one, [tree])
    write_traces(other, [quoting()])
    files = ("--traces", str(one), "--traces", str(other), "--workflow", "multi-qa", "--scale", "0.05")
    arms = ("--arm", BASELINE, "--arm", ENFORCE, "--speculate", "--repeats", "1", "--json", str(json))
    assert run("workflows", *files, *arms, monkeypatch=monkeypatch, engine=engine) == 0
    told, found = capsys.readouterr().out, read_result(json)
    assert found.subjects == ("trace tree tree-0", "trace quoting q", "multi-qa")
    assert found.arms == ARMS
    assert all(found.values(subject, name, "forwards") for subject in found.subjects for name in ARMS)
    assert re.search(rf"end to end, the least of all: {ENFORCE} ÷ {guessing(ENFORCE)} +≥ 0.98", told)
    assert f"end to end, the least of all: {guessing(BASELINE)} ÷ {guessing(ENFORCE)}" in told
    assert "without/with" in told
    assert len(found.targets) == 3
    assert not [*tmp_path.glob("*.part")]


def test_guesses_are_timed_to_the_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Engine, "load", classmethod(lambda cls, *args, **options: pytest.fail("a model was loaded")))
    monkeypatch.setattr(sys, "argv", ["agentcho", "bench", "workflows", "--speculate", "--first"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert "give it without --first" in " ".join(capsys.readouterr().err.split())


def test_an_arm_that_guesses_and_repairs_plays(engine: Engine, tree: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TorchRunner, "measure", lambda self, context: cheap())
    repaired = f"{ENFORCE}+first-k:2"
    assert arm(guessing(repaired))(engine, tree, True).encoded == arm(repaired)(engine, tree, True).encoded

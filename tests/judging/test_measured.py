"""Choices made over reused encodings, compared with the baseline's: on the bundled model, and with made-up picks."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from agentcho import Decode, Engine, Prefill
from agentcho.cli import main
from agentcho.errors import ConfigError
from agentcho.lab.judging.cases import drawn
from agentcho.lab.judging.measured import WAYS, JudgeOptions, PartialJudge, measure, rows, target
from agentcho.lab.judging.picked import picked, way
from agentcho.lab.judging.result import Block, Row, read_judge
from agentcho.lab.judging.second import seconds
from agentcho.lab.stats import log_softmax
from tests.engines import Engines


@pytest.fixture(scope="module")
def engine(engines: Engines) -> Engine:
    return engines.understudy()


def asked(n: int, *names: str, tasks: tuple[str, ...] = ("votes",)) -> JudgeOptions:
    return JudgeOptions.of(tasks, names, n, 1, "audit")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["votes", "merges"])
def test_the_baseline_picks_as_one_who_encodes_the_prompt_by_itself(engine: Engine, task: str) -> None:
    cases = [drawn(task, number, 1) for number in range(3)]
    found = picked(engine, task, cases, [way("baseline", "audit"), way("full", "audit")])
    encode = engine.framing.content.encode
    for number, case in enumerate(cases):
        prompt = [Prefill(case.judge, role="system")]
        texts = dict(case.before)
        for name in case.shown:
            prompt.append(Prefill(texts[name], list(prompt), role="user"))
        for each in case.candidates:
            ids = (*encode(each.header), *encode(each.text))
            words = each.header + each.text
            prompt.append(Prefill(words, list(prompt), role="assistant", name=each.author, tokens=ids))
        made = engine.prefill(prompt)
        scores = [_likely(engine, case.by, case.header, each.chosen, made) for each in case.candidates]
        engine.release(made)
        for name in ("baseline", "full"):
            assert found[name].picks[number] == int(np.argmax(scores))
            best, next_best = sorted(scores)[:-3:-1]
            assert found[name].margins[number] == pytest.approx(best - next_best, abs=1e-3)
    assert found["baseline"].anew == found["baseline"].read == found["full"].anew > 0
    assert found["reuse"].anew == 0


def _likely(engine: Engine, name: str, header: str, text: str, over: list[int]) -> float:
    ids = tuple(engine.framing.content.encode(text))
    said = engine.decode(Decode(header, over, name=name, forced=ids, logits=True))
    found = log_softmax(engine.logits(said).numpy())
    engine.release([said])
    return float(sum(found[place, id] for place, id in enumerate(ids)))


def test_what_a_repair_encodes_anew_is_what_it_names(engine: Engine) -> None:
    cases = [drawn("merges", number, 1) for number in range(2)]
    found = picked(engine, "merges", cases, [way("ends:3,4", "audit")])["ends:3,4"]
    assert found.anew == 2 * 4 * 7


def row(task: str, name: str, changed: int, anew: float) -> Row:
    """A row in which `changed` of 200 choices differ from the baseline."""
    blocks = [Block(picks=tuple(int(n < changed) for n in range(200)), margins=tuple(map(float, range(200))), read=100)]
    before = blocks[0].model_copy(update={"picks": (0,) * 200})
    kept = PartialJudge()
    measured = JudgeOptions.of(("votes",), (name,), 10, 1, "audit")
    for number in range(20):
        cut = slice(number * 10, number * 10 + 10)
        for way_name, block in ((name, blocks[0]), ("baseline", before), ("reuse", blocks[0])):
            part = Block(picks=block.picks[cut], margins=block.margins[cut], anew=round(anew * 100), read=100)
            kept.add("votes", number, {way_name: part})
    found = rows(measured._replace(n=200), kept)
    return next(each for each in found if each.way == name).model_copy(update={"task": task})


def test_agreement_is_counted_in_all_and_on_either_half() -> None:
    found = row("votes", "ends:8,8", 30, 0.25)
    assert (found.all.agreed, found.chosen.agreed, found.held.agreed) == (170, 85, 85)
    assert found.anew == pytest.approx(0.25)
    assert found.all.span.low < 0.85 < found.all.span.high
    assert [each.changed for each in found.failing] == [30, 0, 0, 0]
    assert found.failing[0].below == 49.0
    assert found.places == ((200, 30), (0, 0), (0, 0), (0, 0))


def test_the_cheapest_that_keeps_enough_is_chosen_and_judged_on_the_other_half() -> None:
    hard, fine = row("votes", "reuse", 60, 0.0), row("votes", "baseline", 0, 1.0)
    few, some, whole = (
        row("votes", *each) for each in (("ends:8,8", 10, 0.2), ("ends:8,9", 1, 0.25), ("full", 0, 1.0))
    )
    best = target((fine, hard, few, some, whole))
    assert (best.way, best.reached, best.hard, best.cheap) == ("ends:8,9", True, ("votes",), "ends:8,9")
    none = target((fine, hard, few, whole))
    assert (none.way, none.reached, none.misses) == ("full", False, ("votes: 100.0% of choices with 100% of tokens",))
    assert (none.cheap, none.cheap_keeps) == ("ends:8,8", ("votes: 95.0% of choices with 20% of tokens",))
    assert target((fine, hard, few)).way is None
    easy = target((fine, row("votes", "reuse", 10, 0.0), some))
    assert (easy.hard, easy.reached) == ((), False)
    assert (easy.way, easy.misses) == ("ends:8,9", ())


@pytest.mark.slow
def test_what_was_stopped_goes_on(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.lab.judging.measured.TOGETHER", 2)
    file, few = tmp_path / "judge.json", asked(3, "full")
    played = list[str]()

    def stop(what: str, done: int, of: int) -> None:
        if done == 2 and not played:
            played.append(what)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(engine, few, PartialJudge.begin(file, False, few.settings), stop)
    with pytest.raises(ConfigError, match="--resume"):
        PartialJudge.begin(file, False, few.settings)
    with pytest.raises(ConfigError, match="measured with other settings: seed was 1, and is 2"):
        PartialJudge.begin(file, True, few.settings | {"seed": "2"})
    kept = PartialJudge.begin(file, True, few.settings)
    assert kept.lacking("votes", few.ways, 0, 2) == []
    assert kept.lacking("votes", few.ways, 0, 1) == list(few.ways), "a block of other choices is another one"
    measure(engine, few, kept, lambda *told: None)
    alone = PartialJudge.begin(None, False, few.settings)
    measure(engine, few, alone, lambda *told: None)
    assert [each.all for each in rows(few, kept)] == [each.all for each in rows(few, alone)]


def test_ways_are_known_by_name() -> None:
    assert [each.name for each in asked(10, *WAYS).ways] == list(WAYS)
    for names, tasks, why in ((("some",), ("votes",), "unknown way 'some'"), ((), ("duels",), "unknown task 'duels'")):
        with pytest.raises(ConfigError, match=why):
            asked(10, *names, tasks=tasks)


@pytest.mark.slow
@pytest.mark.usefixtures("one_command_line")
def test_the_command_prints_and_writes(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Engine, "load", lambda *given, **named: engine)
    words = ["bench", "judge", "-n", "4", "--task", "votes", "--way", "full", "--json", str(tmp_path / "judge.json")]
    monkeypatch.setattr(sys, "argv", ["agentcho", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    found = read_judge(tmp_path / "judge.json")
    assert [(each.way, each.all.choices) for each in found.rows] == [("baseline", 4), ("reuse", 4), ("full", 4)]
    assert found.rows[2].all.agreed == 4
    assert found.command == "agentcho bench judge -n 4 --task votes --way full --json judge.json"
    printed = capsys.readouterr().out
    assert "votes, 4 choices of four candidates" in printed
    assert "None of the measured repairs keeps 99% of choices with at most 30% of tokens encoded anew" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["judge.json"]


@pytest.mark.usefixtures("one_command_line")
def test_choices_on_other_weights_are_not_gone_on_with(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(engine: Engine, asked: object, kept: PartialJudge, tell: object) -> None:
        kept.save()
        raise KeyboardInterrupt

    def run(*more: str) -> int | str | None:
        words = ["bench", "judge", "-n", "4", "--json", str(tmp_path / "judge.json")]
        monkeypatch.setattr(sys, "argv", ["agentcho", *words, *more])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code

    monkeypatch.setattr(Engine, "load", lambda *given, **named: engine)
    monkeypatch.setattr("agentcho.lab.judging.measured.measure", stopped)
    assert [run(), run("--resume")] == [130, 130]
    monkeypatch.setattr(Engine, "fingerprint", engine.fingerprint | {"weights": "retrained"})
    assert run("--resume") == 2
    assert ", and is retrained" in capsys.readouterr().err


@pytest.mark.slow
def test_more_choices_than_were_asked_for_before_are_all_played(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last block of the first measurement was short."""
    monkeypatch.setattr("agentcho.lab.judging.measured.TOGETHER", 2)
    file, few, more = tmp_path / "judge.json", asked(1, "full"), asked(2, "full")
    measure(engine, few, PartialJudge.begin(file, False, few.settings), lambda *told: None)
    kept = PartialJudge.begin(file, True, more.settings)
    measure(engine, more, kept, lambda *told: None)
    assert {row.all.choices for row in rows(more, kept)} == {2}


def both(margins: list[float], first: list[bool], n: int) -> tuple[JudgeOptions, PartialJudge]:
    """One task whose first look costs a tenth of the tokens and is right as given; the second look is always right."""
    wanted = asked(n, "ends:0,8", "full")
    kept = PartialJudge.begin(None, False, {})
    for number in range(n // 10):
        at = slice(number * 10, number * 10 + 10)
        right = Block(picks=(0,) * 10, margins=(9.0,) * 10, anew=100, read=100)
        found = Block(picks=tuple(int(not each) for each in first[at]), margins=tuple(margins[at]), anew=10, read=100)
        kept.add("votes", number, {"baseline": right, "reuse": found, "ends:0,8": found, "full": right})
    return wanted, kept


def test_a_second_look_is_at_as_few_as_keep_enough_and_is_told_of_the_others() -> None:
    """In each half of 100, the 20 with the smallest margins are wrong: all but one need a second look."""
    margins = [float(place // 2) for place in range(200)]
    found = seconds(*both(margins, [margin >= 20 for margin in margins], 200))
    assert [each.first for each in found] == ["reuse", "ends:0,8"]
    (look,) = found[0].looks
    assert found[0].below == pytest.approx(18.0)
    assert (look.again, look.kept.agreed, look.kept.choices) == (0.19, 99, 100)
    assert look.anew == pytest.approx(0.1 + 0.19)
    assert found[0].reached


def test_a_second_look_says_what_it_costs_where_wrong_picks_are_sure() -> None:
    margins = [float(place // 2) for place in range(200)]
    (found, _) = seconds(*both(margins, [margin < 80 for margin in margins], 200))
    assert found.below == pytest.approx(98.0)
    assert not found.reached
    assert found.cost == pytest.approx(0.1 + 0.99)


@pytest.mark.slow
def test_without_a_whole_second_look_there_is_none(engine: Engine) -> None:
    few = asked(4, "ends:0,8")
    kept = PartialJudge.begin(None, False, few.settings)
    measure(engine, few, kept, lambda *told: None)
    assert seconds(few, kept) == ()


def test_where_no_margin_keeps_enough_none_is_told() -> None:
    wanted, kept = both([1.0] * 200, [False] * 200, 200)
    for number in range(20):
        wrong = Block(picks=(1,) * 10, margins=(1.0,) * 10, anew=100, read=100)
        kept.add("votes", number, {"full": wrong})
    assert [(each.below, each.looks, each.reached) for each in seconds(wanted, kept)] == [(None, (), False)] * 2

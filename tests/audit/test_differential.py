"""The differential test on a random model of three layers: what moves, and what stays bit-identical."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from agentcho import Engine
from agentcho.audit.measurement import Arm, Effect, Interval, Measurement, Swap
from agentcho.config import ReusePolicy
from agentcho.engine.template import derive
from agentcho.errors import ContextOverflow, LeakageError
from agentcho.games.runs.replay import replay
from agentcho.lab.commands import extension
from agentcho.lab.measure import whole
from agentcho.lab.measure.arms import SWAPS, Experiment, in_sight, original, shifts_of
from agentcho.lab.measure.controls import controls
from agentcho.lab.measure.decisions import Question, question
from agentcho.lab.measure.differential import flips
from agentcho.lab.measure.play import (
    Line,
    Pair,
    Play,
    compared,
    guess_choices,
    of_entries,
    of_workflow,
    pairs,
    through_to,
)
from agentcho.lab.measure.stage import Stage
from agentcho.lab.measure.swap import fitted, lengthened, swapped
from agentcho.lab.measure.whole import asked_pairs, measure
from agentcho.protocol.call import StepResult
from agentcho.protocol.progress import no_progress
from agentcho.provenance.views import After
from agentcho.records.trace import TraceMessage, Workflow

from ..engine.templates import blank_before_the_end
from .talks import talk, talks

BOB = Pair("bob", "alice")
ALICE = Pair("alice", "bob")
AUDIT = ReusePolicy("choreographed", "audit", "never", True)
ENFORCE = AUDIT._replace(leakage="enforce")


@pytest.fixture(scope="module")
def plays(three: Engine) -> Sequence[Play]:
    """Eight games."""
    return guess_choices([of_workflow(game, three) for game in talks(8)])


@pytest.fixture(scope="module")
def measured(three: Engine) -> Measurement:
    """Four games in the deterministic profile, with the differential part alone."""
    return measure(talks(4), three, parts={"differential"})


def arms(measured: Measurement, pair: Pair, swap: Swap) -> dict[Arm, Effect]:
    """The effects of one pair and swap by arm."""
    return {e.arm: e for e in measured.effects if (e.reader, e.owner, e.swap) == (*pair, swap)}


def silent(measured: Measurement) -> set[str]:
    """The controls that did not fire."""
    return {control.name.split(" (")[0] for control in controls(measured) if not control.fired}


# -- what moves and what stays the same ------------------------------------------------------------------


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("pair", [BOB, ALICE])
@pytest.mark.slow
def test_reuse_moves_logits_and_enforcement_does_not_by_one_bit(measured: Measurement, pair: Pair, swap: Swap) -> None:
    found = arms(measured, pair, swap)
    assert found["reuse"].tv_max > 1e-4
    assert found["plain"].tv_max > 1e-4
    assert found["stale"].tv_max > 1e-4
    for arm in ("floor", "enforce"):
        assert found[arm].tv_max == found[arm].tv_mean == found[arm].kl_max == 0.0
        assert found[arm].tv_interval.high == 0.0
    assert {e.games for e in found.values()} == {4}
    assert len({e.rows for e in found.values()}) == 1


def test_what_is_the_same_twice_is_the_same_to_the_bit_and_a_swap_is_not(three: Engine, plays: Sequence[Play]) -> None:
    other = plays[0].saying(swapped(plays, 0, BOB, "same-length", 0))
    for reuse, same in ((AUDIT, False), (ENFORCE, True)):
        with Stage(three, plays[0], reuse) as stage:
            before = stage.rows("decision")
        with Stage(three, other, reuse) as stage:
            after = stage.rows("decision")
        assert np.array_equal(before, after) == same


@pytest.mark.slow
def test_an_agent_that_reads_nothing_of_a_secret_shows_zero_through_reuse(three: Engine) -> None:
    """Bob's secret comes after everything that Alice reads, so nothing that she reads depends on it."""
    quiet = [game.model_copy(update={"messages": _with_late_secret(game)}) for game in talks(2)]
    found = measure(quiet, three, parts={"differential"})
    reuse = [e for e in found.effects if (e.reader, e.owner, e.arm) == ("alice", "bob", "reuse")]
    assert [e.tv_max for e in reuse] == [0.0, 0.0]
    assert not any(e.carried for e in reuse)
    assert all(e.rows > 0 for e in reuse)
    assert silent(found) == {"enough games"}


def _with_late_secret(game: Workflow) -> tuple[TraceMessage, ...]:
    """Makes Bob's rules public, so that only what he writes at the end is hidden from Alice."""
    told = {"audience": "everyone"}
    return tuple(m.model_copy(update=told) if m.id == "bob-rules" else m for m in game.messages)


@pytest.mark.slow
def test_the_fast_profile_has_noise_far_below_the_effect(three: Engine) -> None:
    found = measure(talks(2), three, deterministic=False, parts={"differential"})
    assert not found.deterministic
    effects = arms(found, BOB, "same-length")
    assert effects["floor"].tv_max < effects["reuse"].tv_max / 100
    assert found.noise == max(e.tv_max for e in found.effects if e.arm == "floor")
    assert silent(found) == {"enough games"}


@pytest.mark.slow
def test_the_same_games_measure_the_same_as_traces_and_as_transcripts(three: Engine) -> None:
    games = talks(1)
    entries = [replay(game, three, leakage="audit").entries for game in games]
    one, two = (measure(given, three, parts={"differential"}, seed=3) for given in (games, entries))
    assert one.effects == two.effects
    line = of_entries(entries[0]).by_id["hello"]
    assert line.headed == len(three.framing.content.encode("To Bob: "))


@pytest.mark.slow
def test_a_direct_reading_is_measured_and_enforcement_of_it_is_not(three: Engine) -> None:
    found = measure(talks(2, direct=True), three, parts={"differential"})
    effects = arms(found, BOB, "same-length")
    assert effects["reuse"].tv_max > 0
    assert "enforce" not in effects
    assert any("enforcement refuses" in note for note in found.notes)
    assert silent(found) > {"enough games"}


@pytest.mark.parametrize("reuse", [AUDIT, ENFORCE])
def test_places_are_counted_as_in_a_game(three: Engine, plays: Sequence[Play], reuse: ReusePolicy) -> None:
    def placed(plus: int) -> np.ndarray[Any, Any]:
        places = (None, After("bob-rules"), After("hello", plus))
        lines = (line._replace(places=places) if line.message.id == "reply" else line for line in plays[0].lines)
        with Stage(three, plays[0]._replace(lines=tuple(lines)), reuse) as stage:
            return stage.rows("reply")

    with Stage(three, plays[0], reuse) as stage:
        plain = stage.rows("reply")
    assert np.array_equal(placed(0), plain)
    assert not np.array_equal(placed(5), plain)


def test_a_score_of_a_direct_reading_is_refused_under_enforcement(three: Engine, plays: Sequence[Play]) -> None:
    play = of_workflow(talk(0, direct=True), three)
    with Stage(three, play, ENFORCE) as stage, pytest.raises(LeakageError):
        stage.rows("reply")


@pytest.mark.slow
def test_progress_ends_at_all_and_everything_that_was_encoded_is_given_up(three: Engine) -> None:
    heard, before = list[tuple[int, int]](), three.fullness
    measure(talks(2), three, tell=lambda what, done, of: heard.append((done, of)))
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    assert heard[-1] == (6, 6), "two games, and two for the probe of each of two owners"
    assert (three.fullness[:2], three.idle) == (before[:2], True)


# -- what is compared ------------------------------------------------------------------------------------


def test_pairs_are_those_with_something_to_hide(plays: Sequence[Play]) -> None:
    assert pairs(plays) == (ALICE, BOB)


def test_rows_are_compared_from_the_first_message_that_something_reached(plays: Sequence[Play]) -> None:
    said = [line.message.id for line in compared(plays[0], BOB)]
    assert said == ["reply", "guess", "decision", "diary"]
    assert [line.message.id for line in compared(plays[0], ALICE)] == ["last"]


def test_secrets_that_reach_a_reader(plays: Sequence[Play]) -> None:
    assert through_to(plays[0], BOB) == {"rules", "plan"}
    assert through_to(plays[0], ALICE) == {"bob-rules"}


@pytest.mark.parametrize("swap", SWAPS)
def test_a_swap_changes_what_is_hidden_and_nothing_else(plays: Sequence[Play], swap: Swap) -> None:
    for game, play in enumerate(plays):
        words = swapped(plays, game, BOB, swap, 0)
        other = play.saying(words)
        assert words.keys() == {"rules", "plan"}, "what she decides is the same in every game"
        for before, after in zip(play.lines, other.lines, strict=True):
            assert (before.content != after.content) == (before.message.id in words)
            same = len(before.content) == len(after.content)
            assert before.message.id not in words or same == (swap == "same-length")
            start, stop = after.message.content
            assert after.message.tokens[:start] == before.message.tokens[: before.message.content[0]]
            assert after.message.tokens[stop:] == before.message.tokens[before.message.content[1] :]


@pytest.mark.parametrize("swap", SWAPS)
def test_a_secret_that_is_the_same_in_every_game_is_shuffled_where_nothing_else_is_behind(
    three: Engine, swap: Swap
) -> None:
    same = [of_workflow(talk(0), three) for _ in range(3)]
    words = swapped(same, 1, BOB, swap, 0)
    assert set(words) == {"rules", "plan"}
    assert sorted(set(words["plan"])) == sorted(set(same[0].by_id["plan"].content))
    assert words["plan"] != same[0].by_id["plan"].content


def test_lengths_are_fitted() -> None:
    assert fitted((1, 2, 3), 2) == (1, 2)
    assert fitted((1, 2), 5) == (1, 2, 1, 2, 1)
    assert fitted((), 3) == ()
    assert lengthened((1, 2), 3) == (1, 2)
    assert lengthened((1, 2), 2) == (1, 2, 1)


# -- decisions -------------------------------------------------------------------------------------------


def test_a_decision_is_read_where_its_choices_part(three: Engine, plays: Sequence[Play]) -> None:
    encode = three.framing.content.encode
    found = question(plays[0], "bob", encode, three.framing.closing("assistant")[0], '"decision"')
    assert found is not None
    assert found.id == "decision"
    assert found.names == ("no", "yes")
    ids = [encode(choice) for choice in ('"no"', '"yes"')]
    assert ids[0][: found.row] == ids[1][: found.row]
    assert found.tokens == tuple(one[found.row] for one in ids)
    rows = np.zeros((9, 4000), dtype=np.float32)
    rows[found.row, found.tokens[1]] = 1.0
    rows[found.row, 5] = 9.0
    assert found.name(found.answer(rows)) == "yes", "what is no choice does not count"


def test_a_decision_ends_with_the_token_that_ends_answers_and_not_with_a_blank_before_it(
    plays: Sequence[Play], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = blank_before_the_end()
    ends = list[int]()
    monkeypatch.setattr(whole, "question", lambda closing, **more: ends.append(closing))
    experiment = SimpleNamespace(plays=plays, engine=SimpleNamespace(framing=derive(tokenizer, "spaced")))
    work = whole._Work(cast(Any, experiment), (), (), lambda *told: None)
    assert work._asked(plays[0], cast(Any, SimpleNamespace(reader="bob"))) == {}
    assert set(ends) == {tokenizer.eos_token_id}


def test_choices_are_guessed_only_where_nearly_each_text_is_one_of_few_words(
    three: Engine, plays: Sequence[Play]
) -> None:
    assert plays[0].by_id["decision"].choices == ('"no"', '"yes"')
    assert plays[0].by_id["reply"].choices == ()
    assert plays[0].by_id["last"].choices == (), "it is the same in all games"
    odd = [_answering(play, text) for play, text in zip(plays, ('"Yes"}', '"no" and so on'), strict=False)]
    games = guess_choices([*odd, *plays[2:]])
    assert games[0].by_id["decision"].choices == ('"no"}', '"yes"}'), "its own form, the usual spelling"
    assert games[1].by_id["decision"].choices == ()
    assert games[2].by_id["decision"].choices == ('"no"', '"yes"')
    bare = [_answering(play, '"yes"') for play in plays[:2]]
    assert guess_choices([*bare, odd[1], odd[1]])[0].by_id["decision"].choices == (), "half of them are of another form"


def _answering(play: Play, text: str) -> Play:
    """The game with a different text of Bob's decision and without its choices."""
    lines = (
        line._replace(message=line.message.saying(text=text), choices=()) if line.message.id == "decision" else line
        for line in play.lines
    )
    return play._replace(lines=tuple(lines))


def test_without_anything_hidden_there_is_nothing_to_measure(three: Engine) -> None:
    told = {"audience": "everyone"}
    open_ = [
        game.model_copy(update={"messages": tuple(m.model_copy(update=told) for m in game.messages)})
        for game in talks(2)
    ]
    found = measure(open_, three)
    assert not (*found.effects, *found.probes, *found.ablations)
    assert "nothing to swap" in found.notes[-1]


def test_without_choices_the_first_row_of_the_last_message_decides(three: Engine) -> None:
    bare = of_workflow(talk(0), three)
    found = question(bare, "bob", three.framing.content.encode, 0)
    assert found == Question("diary", 0)
    assert question(bare, "carol", three.framing.content.encode, 0) is None
    assert question(bare, "bob", three.framing.content.encode, 0, '"prediction"') is None


def test_flips_are_counted_by_direction() -> None:
    found = flips([1, 1, 1, 2, 1], [1, 2, 2, 1, 3], 1)
    assert (found.decisions, found.flips, found.gained, found.lost) == (5, 4, 1, 3)
    assert flips([7, 7, 8], [8, 7, 8]).lost == 1, "the reference is the most frequent before"
    assert flips([], []).p == 1.0


def test_the_ceiling_has_the_secrets_in_plain_sight(three: Engine, plays: Sequence[Play]) -> None:
    experiment = Experiment(three, plays, 0, True)
    (hidden,) = [
        s.tv for s in shifts_of(experiment, 0, BOB, original(experiment, 0, ["bob"]), None) if s.arm == "plain"
    ][:1]
    assert in_sight(plays[0], BOB) == ["rules", "plan"]
    assert in_sight(plays[0], ALICE) == ["bob-rules"]
    assert (hidden > 0).all()
    late = plays[0].saying({"diary": (9, 9, 9)})
    quiet = late._replace(lines=tuple(line for line in late.lines if line.message.id not in {"rules", "plan"}))
    assert in_sight(quiet._replace(lines=tuple(line.reading(quiet.by_id) for line in quiet.lines)), BOB) == []


def test_the_floor_of_the_fast_profile_is_found_with_each_encoding_made_alone(
    three: Engine, plays: Sequence[Play], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, steps = Experiment(three, plays, 0, False), list[bool]()
    step = three.step

    def noted(deterministic: bool = False) -> StepResult:
        steps.append(deterministic)
        return step(deterministic)

    monkeypatch.setattr(three, "step", noted)
    original(experiment, 0, ["bob"])
    assert set(steps) == {False, True}


def test_every_row_of_every_arm_is_there(three: Engine, plays: Sequence[Play]) -> None:
    experiment = Experiment(three, plays, 0, True)
    found = list(shifts_of(experiment, 0, BOB, original(experiment, 0, ["bob"]), Question("decision", 1)))
    lines: list[Line] = list(compared(plays[0], BOB))
    assert len(found) == 10
    assert {len(s.tv) for s in found} == {sum(len(line.content) - line.headed + 1 for line in lines)}
    assert all(s.before is not None for s in found)


# -- controls --------------------------------------------------------------------------------------------


def effect(arm: Arm, tv: float, swap: Swap = "same-length", rows: int = 9, carried: bool = True) -> Effect:
    """One effect of Alice's secrets on Bob."""
    nothing = Interval(low=0, high=tv, method="by hand")
    return Effect(
        reader="bob", owner="alice", swap=swap, arm=arm, carried=carried, games=8, rows=rows, tv_max=tv, tv_mean=tv,
        tv_interval=nothing, kl_max=tv, kl_mean=tv, kl_interval=nothing, decisions=8, flips=0, flip_interval=nothing,
        mcnemar_p=1, holm_p=1,
    )  # fmt: skip


def hand_made(games: int = 8, deterministic: bool = True, carried: bool = True, **tv: float) -> Measurement:
    """A measurement in which every control fires, except for the given values."""
    values = {"reuse": 0.4, "floor": 0.0, "enforce": 0.0, "plain": 0.5, "stale": 0.2} | tv
    made = tuple(
        effect(arm, values[arm], swap, carried=carried)
        for swap in SWAPS
        for arm in ("reuse", "floor", "enforce", "plain")
    )
    return Measurement(
        deterministic=deterministic, model="none", seed=0, games=games, noise=values["floor"], effects=made
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, set()),
        ({"games": 7}, {"enough games"}),
        ({"reuse": 0.0}, {"reuse"}),
        ({"reuse": 0.0, "carried": False}, set()),
        ({"reuse": 0.1, "carried": False}, {"out of reach"}),
        ({"plain": 0.0}, {"ceiling"}),
        ({"floor": 0.45}, {"reuse"}),
        ({"enforce": 1e-9}, {"enforce"}),
        ({"enforce": 1e-9, "deterministic": False}, set()),
        ({"enforce": 0.1, "deterministic": False}, {"enforce"}),
    ],
)
def test_a_control_fails_where_it_should(given: dict[str, float], told: set[str]) -> None:
    assert silent(hand_made(**given)) == told  # type: ignore[arg-type]


def test_controls_fire_on_logits_whatever_the_decisions_were(measured: Measurement) -> None:
    assert silent(measured) == {"enough games"}
    still = measured.model_copy(update={"effects": tuple(e.model_copy(update={"flips": 0}) for e in measured.effects)})
    assert controls(still) == controls(measured)


def test_an_arm_without_rows_has_seen_nothing() -> None:
    empty = hand_made().model_copy(update={"effects": tuple(effect(arm, 0.0, rows=0) for arm in ("reuse", "plain"))})
    assert not any(control.fired for control in controls(empty) if control.name != "enough games")


def test_a_pair_of_which_nothing_could_be_measured_is_not_cleared(three: Engine) -> None:
    nothing = hand_made().model_copy(update={"effects": ()})
    assert silent(nothing) == set(), "nobody hides anything"
    assert asked_pairs(talks(1), three) == (ALICE, BOB)
    assert {control.fired for control in controls(nothing, [BOB]) if "bob reads alice" in control.name} == {False}
    names = [control.name for control in controls(hand_made(), [BOB])]
    assert len(names) == len(set(names)), "a measured pair is controlled once"
    assert all(control.fired for control in controls(hand_made(), [BOB]))


def test_an_audit_of_games_that_are_too_long_for_the_model_has_controls_that_do_not_fire(
    three: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(*given: object) -> None:
        raise ContextOverflow(9, 8)

    monkeypatch.setattr(Stage, "rows", rows)
    found, tried = extension().measure(talks(2), three, 0, no_progress)
    assert found.effects == ()
    assert {control.fired for control in tried if " reads " in control.name} == {False}

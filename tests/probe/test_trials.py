"""Probes of simulated servers: sharing is found, and what could not have been found is never called clean."""

from __future__ import annotations

import random

import pytest

from agentcho.lab.probe import Plan, ProbeReport, judged, measure
from agentcho.lab.probe.endpoint import Heard, ServerRefused
from agentcho.lab.probe.findings import Verdict
from agentcho.lab.probe.trials import FEWEST, LENGTHS, PATIENCE, TRIED, Pair, apart, drawn

from .simulated import HIT, MISS, Simulated

PLAN = Plan(("keys", "salts", "beyond"), trials=16, prompts=12)


def probed(server: Simulated, plan: Plan = PLAN) -> ProbeReport:
    return judged(server, measure(server, plan, random.Random(3)))


def verdicts(report: ProbeReport) -> dict[str, Verdict]:
    return {one.question: one.verdict for one in report.comparisons}


def test_a_server_that_keeps_callers_apart_is_clean_and_the_report_says_what_would_have_been_seen() -> None:
    report = probed(Simulated("key", "salt"))
    assert verdicts(report) == {"control": "seen", "keys": "not seen", "salts": "not seen", "beyond": "not seen"}
    assert (report.conclusion, report.exit_code) == ("not seen", 0)
    for one in report.comparisons[1:]:
        assert one.power is not None
        assert one.power >= 0.9
        assert one.least is not None
        assert 0 < one.least < MISS - HIT
        assert one.adjusted_p is not None
        assert one.adjusted_p > 0.001


@pytest.mark.parametrize(
    ("kept", "shared"),
    [(("salt",), {"keys"}), (("key",), {"salts"}), ((), {"keys", "salts"})],
    ids=["across keys", "across salts", "across both"],
)
def test_what_is_shared_is_found_by_time_alone(kept: tuple[str, ...], shared: set[str]) -> None:
    report = probed(Simulated(*kept))
    assert {name for name, verdict in verdicts(report).items() if verdict == "shared"} == shared
    assert (report.conclusion, report.exit_code) == ("shared", 1)
    for one in report.comparisons[1:]:
        assert one.adjusted_p is not None
        assert (one.adjusted_p < 0.001) == (one.question in shared)


def test_what_the_server_itself_reports_is_found_though_its_times_hide_it() -> None:
    report = probed(Simulated("salt", tells=True, hides=True))
    keys, salts = report.comparisons[1:3]
    assert (keys.verdict, keys.reported) == ("shared", keys.trials)
    assert (salts.verdict, salts.reported) == ("inconclusive", 0), "its times would not have shown it"
    assert report.exit_code == 1


def test_a_count_that_every_prompt_has_is_no_reuse() -> None:
    report = probed(Simulated("key", "salt", tells=True))
    assert [one.reported for one in report.comparisons] == [PLAN.trials, 0, 0, 0]
    assert report.conclusion == "not seen"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["nothing", "hides"])
def test_without_a_hit_that_can_be_seen_nothing_is_clean(how: str) -> None:
    report = probed(Simulated("key", "salt", **{how: True}))
    assert set(verdicts(report).values()) == {"inconclusive"}
    assert report.words.verdict == "inconclusive"
    assert (report.conclusion, report.exit_code) == ("inconclusive", 3)
    assert report.prompt_words == LENGTHS[-1], "the longest prompts were tried"


@pytest.mark.parametrize("trials", [FEWEST, FEWEST + 1])
def test_the_fewest_trials_are_enough_where_all_hits_stand_apart(trials: int) -> None:
    report = probed(Simulated("key", "salt"), PLAN._replace(trials=trials))
    assert verdicts(report) == {"control": "seen", "keys": "not seen", "salts": "not seen", "beyond": "not seen"}
    assert [one.power for one in report.comparisons] == [1.0] * 4


def test_a_control_that_was_found_by_luck_is_no_measure_of_anything() -> None:
    server = Simulated("key", "salt")
    measured = measure(server, PLAN, random.Random(3))
    control = measured.pairs["control"]
    slow = [pair.hit._replace(seconds=pair.miss.seconds + 0.001) for pair in control[:3]]
    measured.pairs["control"] = [pair._replace(hit=hit) for pair, hit in zip(control, slow, strict=False)] + control[3:]
    report = judged(server, measured)
    control_, *others = report.comparisons
    assert control_.adjusted_p is None
    assert min(control_.ks_p or 1, control_.mann_whitney_p or 1) < report.alpha / 6, "it was found this time"
    assert control_.power is not None
    assert control_.power < 0.9
    assert control_.verdict == "inconclusive"
    assert "-n" in control_.reason
    assert {one.verdict for one in others} == {"inconclusive"}
    assert all("see the control" in one.reason and one.power is None for one in others)
    assert report.words.verdict == "not seen", "that some were hits is known"


def test_noise_that_would_hide_a_hit_is_inconclusive() -> None:
    server = Simulated("key", "salt")
    measured = measure(server, PLAN, random.Random(3))
    loud = [
        pair._replace(miss=pair.miss._replace(seconds=HIT + 0.2 * (number % 2)))
        for number, pair in enumerate(measured.pairs["keys"])
    ]
    measured.pairs["keys"] = [pair._replace(hit=pair.miss) for pair in loud]
    one = judged(server, measured).comparisons[1]
    assert one.verdict == "inconclusive"
    assert one.power is not None
    assert one.power < 0.9


def test_reuse_behind_another_system_prompt_is_seen_and_is_no_sharing() -> None:
    report = probed(Simulated("key", "salt", beyond=True))
    assert verdicts(report)["beyond"] == "seen"
    assert report.exit_code == 0


def test_words_that_a_hit_changes_are_told_from_words_that_change_by_themselves() -> None:
    moved, wandered = probed(Simulated("key", moves=True)).words, probed(Simulated("key", wanders=True)).words
    assert (moved.verdict, moved.changed, moved.unsteady) == ("seen", 12, 0)
    assert moved.p < 0.05
    assert wandered.verdict == "inconclusive"
    assert wandered.unsteady > 0
    same = probed(Simulated("key")).words
    assert (same.verdict, same.changed) == ("not seen", 0)
    assert same.interval.high < 0.3


def test_no_prompt_is_ever_a_miss_twice_and_both_arms_are_as_long() -> None:
    server = Simulated("key", "salt")
    report = probed(server)
    texts = [text for _, text in server.asked]
    assert len({len(text.split()) for text in texts}) == 1
    sent = {text: texts.count(text) for text in texts}
    openings, trials = 1 + len(PLAN.questions), TRIED + PLAN.trials * (1 + len(PLAN.questions))
    assert sorted(sent.values()) == [1] * (openings + trials) + [2] * trials + [3] * PLAN.prompts
    assert len({text[:28] for text in texts}) == len(sent), "prompts begin alike"
    assert report.spent.requests == len(texts)


def test_a_salt_is_never_used_for_two_trials() -> None:
    server = Simulated("key", "salt")
    probed(server, Plan(("salts",), trials=4, prompts=0))
    salts = [who.salt for who, _ in server.asked if who.salt is not None]
    assert sorted(salts.count(salt) for salt in set(salts)) == [1] * (1 + 4) + [2] * 4


def test_a_server_without_salts_leaves_that_question_open() -> None:
    report = probed(Simulated("key", saltless=True))
    one = report.comparisons[2]
    assert (one.verdict, one.reason, one.trials) == ("inconclusive", "the server does not accept cache_salt", 0)
    assert report.exit_code == 3


def test_prompts_stay_within_the_context() -> None:
    server = Simulated("key", hides=True)
    server.longest = LENGTHS[1]
    assert probed(server).prompt_words == LENGTHS[1]


def test_where_no_length_shows_a_hit_enough_trials_are_done_of_one_that_the_time_allows() -> None:
    server = Simulated("key", "salt", nothing=True, slows=True)
    server.seconds = 240.0
    report = probed(server)
    assert LENGTHS[0] < report.prompt_words < LENGTHS[-1]
    assert all(one.trials >= FEWEST for one in report.comparisons)
    assert report.conclusion == "inconclusive"
    assert "comes no sooner" in (report.comparisons[0].reason or "")


def test_the_bounds_hold_and_too_few_trials_say_nothing() -> None:
    server = Simulated("key", "salt")
    server.most = 50
    report = probed(server)
    assert server.requests <= 50
    assert all(one.trials < FEWEST for one in report.comparisons)
    assert set(verdicts(report).values()) == {"inconclusive"}
    assert report.ended is not None
    assert "bounds" in report.ended


def test_a_trial_that_the_server_was_too_busy_for_is_discarded_as_a_whole() -> None:
    server = Simulated("key", "salt")
    server.faults = {31: ServerRefused("slow down", 429, 3.0)}
    report = probed(server)
    assert report.spent.discarded == 1
    assert sum(one.trials for one in report.comparisons) == 4 * PLAN.trials - 1 or report.words.prompts == 11
    assert report.conclusion == "not seen"


def test_a_server_that_stays_busy_or_fails_ends_it_and_what_was_heard_is_judged() -> None:
    busy = Simulated("key", "salt")
    busy.faults = {number: ServerRefused("slow down", 429) for number in range(60, 200)}
    report = probed(busy)
    assert report.ended == "slow down"
    assert report.spent.discarded == PATIENCE
    assert report.conclusion == "inconclusive"
    broken = Simulated(tells=True)
    broken.faults = {60: ServerRefused("it failed", 500)}
    found = probed(broken)
    assert found.ended == "it failed"
    assert found.conclusion == "shared", "what was reported before that stays found"


def test_a_first_request_that_fails_is_an_error() -> None:
    server = Simulated()
    server.faults = {1: ServerRefused("refuses the key", 401)}
    with pytest.raises(ServerRefused):
        probed(server)


def test_words_are_drawn_anew_each_time() -> None:
    assert drawn(8) != drawn(8)
    assert len(drawn(8).split()) == 8


def test_a_length_is_taken_when_its_slowest_hit_comes_before_its_quickest_miss_with_room_between() -> None:
    def pair(hit: float, miss: float) -> Pair:
        return Pair(Heard(hit, "", None, None), Heard(miss, "", None, None))

    assert apart([pair(3.3, 5.5), pair(3.2, 5.4)])
    assert not apart([pair(3.3, 5.5), pair(5.1, 5.4)])
    assert not apart([pair(3.3, 5.5), pair(3.2, 3.4)])

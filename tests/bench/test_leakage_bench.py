"""The leakage benchmark: the same words in every arm, shown side by side. Its figures are not tested."""

from __future__ import annotations

from agentcho.lab.bench.leakage import ARMS, FirstToken, Throughput, measure
from agentcho.lab.bench.workflows import dilemma, open_talk
from agentcho.lab.display.bench import leakage
from agentcho.testing import FakeEngine


def test_all_arms_are_timed_on_the_same_words() -> None:
    told: list[tuple[str, int, int]] = []
    tell = lambda *heard: told.append(heard)  # noqa: E731
    found = measure("fake", FakeEngine(), [open_talk(1, 3, 2, 8)], [open_talk(2, 2, 1, 8)], 2, tell)
    first, throughput = found.first[0], found.throughput[0]
    assert told[3:5] == [
        ("repeats (fake: first tokens of open-talk-1)", 3, 6),
        ("repeats (fake: tokens a second in open-talk-2)", 3, 6),
    ]
    assert {arm: len(seconds) for arm, seconds in first.seconds.items()} == dict.fromkeys(ARMS, 2)
    assert len(throughput.plain) == len(throughput.shadowed) == 2
    assert min(*throughput.plain, *throughput.shadowed, *first.seconds["audit"]) > 0
    assert first.encoded["audit"] < first.encoded["enforce"] < first.encoded["baseline"]
    assert "enforce/audit" in leakage(found)
    assert set(found.to_json()["first_token_seconds"]["open-talk-1"]) == set(ARMS)


def test_ratios_are_made_within_a_repeat() -> None:
    first = FirstToken("w", {"audit": [1.0, 10.0, 2.0], "enforce": [1.1, 11.0, 4.0], "baseline": [4.4, 22.0, 4.0]}, {})
    assert [round(x, 6) for x in first.ratio("enforce", "audit")] == [1.1, 1.1, 2.0]
    assert [round(x, 6) for x in first.ratio("baseline", "enforce")] == [2.0, 1.0, 4.0]
    assert Throughput("w", [10.0, 20.0, 10.0], [9.0, 10.0, 6.0]).ratio == (0.6, 0.5, 0.9)


def test_the_workflows_are_what_they_say() -> None:
    game, talk = dilemma(3), open_talk(3)
    assert [m.kind for m in game.messages].count("decode") == 8
    assert [m.kind for m in talk.messages].count("decode") == 16
    assert len(talk.agents) == 8
    assert all(m.audience == (m.author,) for m in talk.messages if m.role == "system")
    assert dilemma(3) == game
    assert dilemma(4) != game

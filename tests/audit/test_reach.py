"""Compares what reached whom with the verdict's readings, message by message."""

from __future__ import annotations

from random import Random

import pytest

from agentcho.audit.reach import reach
from agentcho.audit.report import Edge, Verdict
from agentcho.audit.verdict import WORST, GameVerdict
from agentcho.provenance.views import Act, After

from .transcripts import Talk, chain


def anyhow(seed: int) -> Talk:
    """Four agents who whisper to each other and attend to anything, sometimes at odd positions."""
    random, talk = Random(seed), Talk()
    made = list[int]()
    for number in range(24):
        who = random.choice("abcd")
        over = sorted(random.sample(made, min(len(made), random.randrange(4))))
        places = tuple((id, 40 + 5 * n) for n, id in enumerate(over)) if random.random() < 0.1 else tuple(over)
        others = [name for name in "abcd" if name == who or random.random() < 0.3]
        act = Act("play.py:3", (After(f"{who}.{number}", 0),) * (len(over) + 1)) if random.random() < 0.1 else None
        audiences: list[str | list[str]] = ["everyone", [who], others]
        to = random.choice(audiences)
        made.append(talk.say(f"{who}.{number}", to, places, act=act))
        if random.random() < 0.4:
            made.append(talk.also(f"{who}.{number}", over[:1]))
    if seed % 3 == 0:
        talk.forge(talk.entries[2].message.id, cone=frozenset({"a.99"}))
    return talk


def _on(verdict: GameVerdict, edge: Edge, secret: str) -> Verdict:
    """The verdict of an edge on one secret: what a direct leak carries is transitive."""
    carried = edge.verdict == "direct" and secret not in verdict.cones.records[edge.encoding].messages
    return "transitive" if carried else edge.verdict


@pytest.mark.parametrize("talk", [chain(), *(anyhow(seed) for seed in range(40))])
def test_it_is_what_the_readings_say(talk: Talk) -> None:
    verdict = GameVerdict(0, talk.entries)
    found = reach(verdict)
    edges = [reading.edge for reading in verdict.readings()]
    assert found.keys() == {edge.reader for edge in edges}
    for reader, own in found.items():
        mine = [edge for edge in edges if edge.reader == reader]
        assert own.read == {edge.message for edge in mine}
        assert own.readings == len(mine)
        assert own.unclean == sum(edge.verdict != "clean" for edge in mine)
        assert own.worst == min((edge.verdict for edge in mine), key=WORST.index)
        told = {secret: edge for edge in reversed(mine) for secret in edge.secrets}
        behind = {
            secret
            for edge in mine
            if edge.verdict == "direct"
            for secret in verdict.cones.cones[edge.encoding]
            if not verdict.cones.messages[secret].audience.includes(reader)
        }
        assert own.reached.keys() == (told.keys() | behind) & verdict.cones.messages.keys()
        on = {(edge.encoding, secret): _on(verdict, edge, secret) for edge in mine for secret in edge.secrets}
        for secret, how in own.reached.items():
            seen = [edge for edge in mine if on.get((edge.encoding, secret)) == how.verdict]
            assert seen or (secret in behind and how.verdict == "transitive")
            assert all(how.call == edge.call for edge in seen[:1]) or secret in behind
            worse = WORST[: WORST.index(how.verdict)]
            assert not any(on.get((edge.encoding, secret)) in worse for edge in mine)
        for id, brought in own.brought.items():
            assert {edge.verdict for edge in mine if edge.encoding == id} == {brought.verdict}
        assert own.brought.keys() | own.felt or own.worst == "clean"


def test_it_is_quick_where_readings_are_many() -> None:
    talk, made = Talk(), list[int]()
    for number in range(300):
        made.append(talk.say(f"a{number % 20}.{number}", "everyone" if number % 3 else ["a1"], made))
    assert max(own.readings for own in reach(GameVerdict(0, talk.entries)).values()) > 2000

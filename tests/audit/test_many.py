"""Long games: what an audit asks of every message is looked up, and not searched for in a list."""

from __future__ import annotations

from agentcho.audit.calls import GameCalls
from agentcho.audit.verdict import GameVerdict
from agentcho.audit.words import GameWords
from agentcho.provenance.views import Act
from agentcho.records.transcript import TranscriptEntry

from .test_calls import POST, result
from .test_texts import OWN, Texts
from .transcripts import Talk, audited, subject


class Ids(tuple[str, ...]):
    """Ids of messages that must not be searched."""

    def __contains__(self, key: object, /) -> bool:
        raise AssertionError(f"{key} is searched for")


class Lines(list[TranscriptEntry]):
    """Lines that must not be searched."""

    def __contains__(self, key: object, /) -> bool:
        raise AssertionError("a line is searched for")


def test_what_the_code_had_looked_at() -> None:
    talk = Talk()
    for id in ("alice.0", "alice.1"):
        talk.say(id, ["alice"])
    act = Act("talk.py:7", tainted_by=("alice.0", "alice.1"), unproved=Ids(["alice.0"]), contained=Ids(["alice.1"]))
    talk.say("bob.0", "everyone", act=act)
    [finding] = (each for each in audited(talk).findings if each.rule == "AC006")
    assert finding.secrets == ("alice.1",)
    assert "its text contains the value of alice.1" in finding.message


def test_what_was_said_over_texts() -> None:
    talk = Texts()
    talk.text("alice.0", ["alice"])
    talk.text("alice.1", "everyone", ("alice.0",))
    result(talk, "scenario.0", "alice.1", POST)
    verdict = GameVerdict(0, talk.entries, models=OWN)
    verdict.texts = Lines(verdict.texts)
    assert [doubt.message for doubt in GameWords(verdict, subject()).doubts] == ["alice.1"]
    assert [call.verdict for call in GameCalls(verdict).calls] == ["told"]

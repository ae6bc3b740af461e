"""The sinks example: an agent that has read a mail cannot pay; one that has not can."""

from __future__ import annotations

from pathlib import Path

from agentcho.audit.audit import audit_entries
from agentcho.audit.notes import Seal
from agentcho.games.runs import library
from agentcho.testing import play

from ..audit.transcripts import subject

EXAMPLE = Path(__file__).parents[2] / "examples" / "sinks.py"


def test_who_has_read_a_mail_cannot_pay_and_who_has_not_may() -> None:
    obeys = '{"name": "pay", "arguments": {"to": "account 666"}}'
    lines = {
        "secretary": ['{"name": "inbox", "arguments": {}}', "It is due.", obeys, "it is due"],
        "teller": ['{"name": "pay", "arguments": {"to": "the landlord"}}', "Done."],
    }
    played = play(library.scenario(str(EXAMPLE))(), lines)
    outcome = played.over.outcome or {}
    assert outcome["paid"] == ["the landlord"]
    assert outcome["refused"].startswith("the call of pay by secretary was not run: the world would learn")
    report = audit_entries(subject(agents=("secretary", "teller")), {0: played.entries}, Seal(b"k" * 32))
    assert (report.conclusion, [call.verdict for call in report.calls]) == ("clean", ["clean", "clean"])


def test_it_plays_without_a_script() -> None:
    outcome = play(library.scenario(str(EXAMPLE))()).over.outcome or {}
    assert len(outcome["paid"]) == (outcome["chosen"] == "it is due")

"""The tools example plays, and its calls match their grammar."""

from __future__ import annotations

from pathlib import Path

from agentcho.games.runs import library
from agentcho.testing import play

EXAMPLE = Path(__file__).parents[2] / "examples" / "tools.py"


def test_a_clerk_looks_before_it_answers() -> None:
    calls = [
        '{"name": "stock", "arguments": {"item": "tea"}}',
        '{"name": "reserve", "arguments": {"item": "tea", "pieces": 9}}',
    ]
    played = play(
        library.scenario(str(EXAMPLE))(), {"customer": ["Nine teas, please."], "clerk": [*calls, "Three are left."]}
    )
    results = [entry.message for entry in played.entries if entry.origin == "tool"]
    assert [result.text for result in results] == ["3", "Error: ValueError: 3 pieces of tea are there"]
    assert {str(result.audience) for result in results} == {"clerk"}
    assert played.over.outcome == {"answer": "Three are left."}


def test_it_plays_without_a_script() -> None:
    played = play(library.scenario(str(EXAMPLE))())
    assert [entry.act.call for entry in played.entries if entry.origin == "tool"] == ["clerk.1.step0"]

"""The last line of a run reports its leaks as the audit of its record does."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from .conftest import PLAY, Command


@pytest.mark.parametrize(
    ("leakage", "word", "code"),
    [
        ("audit", "LEAKS: alice can learn what bob keeps private, and bob", 1),
        ("enforce", "CLEAN (encodings): no agent reads", 0),
    ],
)
@pytest.mark.parametrize("display", ["plain", "rich"])
def test_the_last_line_is_the_audits(leakage: str, word: str, code: int, display: str, agentcho: Command) -> None:
    last = agentcho(*PLAY, "--leakage", leakage, "--display", display).out.splitlines()[-1]
    assert last.startswith(word)
    words = shlex.split(last.rpartition(" · ")[2])
    assert words[:2] == ["agentcho", "audit"]
    audited = agentcho(*words[1:])
    assert audited.out.startswith(last.rpartition(" · ")[0])
    assert audited.code == code


def test_what_is_not_known_is_not_said_to_be_clean(agentcho: Command, here: Path) -> None:
    (here / "odd.py").write_text(
        "import agentcho\n\n\nclass Odd(agentcho.Scenario):\n    '''Fails.'''\n\n    name = 'odd'\n\n"
        "    async def play(self, game):\n        raise ValueError\n"
    )
    ran = agentcho("run", "odd.py", "--model", "fake")
    assert ran.code == 1
    assert ran.out.splitlines()[-1].startswith("INCONCLUSIVE: ")
    assert agentcho(*PLAY, "--display", "none").out == ""

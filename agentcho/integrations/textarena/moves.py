"""Reads the moves that a board lists: the choices of whose turn it is.

Only a list that is whole counts: a line that says what can be done, a colon, and nothing but moves in brackets behind
it. What stands for something else (`[bet X]`) is no move, and a list with one is not whole. Does not know: any game.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agentcho.integrations.textarena.environment import Observation

LISTED = re.compile(
    r"(?:available|valid|legal|possible|options|choose)\b[^\[\]\n]*:\s*(?P<moves>['\"]?\[[^\n]*)", re.IGNORECASE
)
BETWEEN = re.compile(r"(?:[\s'\"“”,;.|]|\bor\b|\band\b)*")
MOVE = re.compile(r"\[[^\[\]\n]+\]")
STANDS_FOR = re.compile(r"\[[a-z]+(?: [A-Z])+\]")
"""A move with a letter in the place of a number or a name."""


def listed(texts: Iterable[str]) -> tuple[str, ...]:
    """The moves of the last list in these texts, each once; empty: there is none that is whole."""
    found: tuple[str, ...] = ()
    for text in texts:
        for match in LISTED.finditer(text):
            found = _moves(match["moves"])
    return found


def of_player(player: int, told: Iterable[Observation]) -> tuple[str, ...]:
    """The moves that were listed to a player last. What others wrote lists none."""
    own = (each for each in told if each.author < 0 and each.to in (player, -1) and each.kind != "PROMPT")
    return listed(each.text for each in own)


def _moves(line: str) -> tuple[str, ...]:
    if BETWEEN.fullmatch(MOVE.sub("", line)) is None or STANDS_FOR.search(line):
        return ()
    return tuple(dict.fromkeys(MOVE.findall(line)))

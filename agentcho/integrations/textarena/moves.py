"""Reads the moves that a board lists, as the choices of the player to move.

Only a complete list counts: a phrase that announces options, a colon, and then nothing but moves in brackets. A
placeholder such as `[bet X]` is not a move, and a list with one is not complete. Independent of any particular game.
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
"""A placeholder move, with a capital letter in place of a number or a name."""


def listed(texts: Iterable[str]) -> tuple[str, ...]:
    """The moves of the last list in these texts, without duplicates. Empty if there is no complete list."""
    found: tuple[str, ...] = ()
    for text in texts:
        for match in LISTED.finditer(text):
            found = _moves(match["moves"])
    return found


def of_player(player: int, told: Iterable[Observation]) -> tuple[str, ...]:
    """The moves that were last listed to a player. Texts of other players do not count."""
    own = (each for each in told if each.author < 0 and each.to in (player, -1) and each.kind != "PROMPT")
    return listed(each.text for each in own)


def _moves(line: str) -> tuple[str, ...]:
    if BETWEEN.fullmatch(MOVE.sub("", line)) is None or STANDS_FOR.search(line):
        return ()
    return tuple(dict.fromkeys(MOVE.findall(line)))

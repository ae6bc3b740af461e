"""How far long work is: what it calls while it goes on.

Does not know: who listens, what it looks like.
"""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str, int, int], None]
"""Hears (what, how many are done, of how many). `what` begins with what they are, in the plural, and may end with which
are under way, in brackets: "games (baseline)". The first call about some work says how many were done before it began,
so that its rate can be told."""


def unheard(what: str, done: int, of: int) -> None:
    """Nobody listens."""


def counted(tell: Tell, what: str, of: int, done: int = 0) -> Callable[[int], None]:
    """Hears how many are done of work that begins now."""
    tell(what, done, of)
    return lambda done: tell(what, done, of)


def part(tell: Tell, before: int, of: int) -> Tell:
    """Hears of one part of larger work: `before` it, so many of all `of` were done."""
    return lambda what, done, _: tell(what, before + done, of)

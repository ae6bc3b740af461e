"""The callback by which long work reports its progress.

Does not know: who listens, how it is shown.
"""

from __future__ import annotations

from collections.abc import Callable

ProgressCallback = Callable[[str, int, int], None]
"""Called with (what, how many are done, of how many). `what` is a plural noun, and may end in brackets with which of
them are under way: "games (baseline)". The first call for some work says how many were done before it began, so that
its rate can be computed."""


def no_progress(what: str, done: int, of: int) -> None:
    """Ignores it."""


def counted(tell: ProgressCallback, what: str, of: int, done: int = 0) -> Callable[[int], None]:
    """A callback that reports how many of `of` are done, for work that begins now."""
    tell(what, done, of)
    return lambda done: tell(what, done, of)


def heard(tell: ProgressCallback, check: Callable[[], None]) -> ProgressCallback:
    """A callback that calls `check` first, whenever it is told of anything."""

    def telling(what: str, done: int, of: int) -> None:
        check()
        tell(what, done, of)

    return telling


def part(tell: ProgressCallback, before: int, of: int) -> ProgressCallback:
    """The callback for one part of larger work of `of` in all, of which `before` were done before the part began."""
    return lambda what, done, _: tell(what, before + done, of)

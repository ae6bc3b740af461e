"""The callback by which long work reports its progress. One form serves commands, notebooks and logs."""

from __future__ import annotations

from collections.abc import Callable

ProgressCallback = Callable[[str, int, int], None]
"""Called with (what, done, total). `what` is a plural noun, and may end with the ones in progress in brackets: "games
(baseline)". The first call for some work tells how much was done before it began, so that its rate can be computed."""


def no_progress(what: str, done: int, of: int) -> None:
    """Ignore the report."""


def counted(tell: ProgressCallback, what: str, of: int, done: int = 0) -> Callable[[int], None]:
    """Return a callback that reports how many of `of` are done, for work that begins now."""
    tell(what, done, of)
    return lambda done: tell(what, done, of)


def heard(tell: ProgressCallback, check: Callable[[], None]) -> ProgressCallback:
    """Return a callback that calls `check` before each report."""

    def telling(what: str, done: int, of: int) -> None:
        check()
        tell(what, done, of)

    return telling


def part(tell: ProgressCallback, before: int, of: int) -> ProgressCallback:
    """Return the callback for a part of larger work: `of` in total, of which `before` were done when the part began."""
    return lambda what, done, _: tell(what, before + done, of)

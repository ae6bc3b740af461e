"""What all errors are."""

from __future__ import annotations

from typing import ClassVar

SHORT = 60
"""Letters of a value that an error shows."""


class AgentchoError(Exception):
    """Base of all errors raised on purpose. `code` is what a command that it ends exits with: 2, for it was asked for
    something that cannot be, or 1, for it was begun and something failed."""

    code: ClassVar[int] = 2


def shown(value: object) -> str:
    """A value in an error's words: short, whatever it is."""
    try:
        words = repr(value)
    except Exception:  # a number too long to be written, a class of somebody's own
        return f"a value of type {type(value).__name__} that cannot be shown"
    return words if len(words) <= SHORT else f"{words[:SHORT]}…"

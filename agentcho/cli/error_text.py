"""Formats errors for standard error, always in separate lines and without control characters."""

from __future__ import annotations


def error_text(error: Exception) -> str:
    """One line for an error. For failed games, one line each, followed by one line per frame of the user's code."""
    from agentcho.errors import GamesFailed

    lines = error.lines if isinstance(error, GamesFailed) else (str(error),)
    first, *others = (f"error: {lines[0]}", *lines[1:])
    return "\n".join(
        (one_line(first), *(f"{'    ' if each.startswith('  ') else '  '}{one_line(each)}" for each in others))
    )


def one_line(words: str) -> str:
    """Return words in one line, without anything that moves the cursor of a terminal."""
    from agentcho.display.safe import visible

    return visible(" ".join(words.split()))

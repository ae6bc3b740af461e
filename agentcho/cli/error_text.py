"""An error as it is printed on standard error: always in lines of its own, without control characters.

Does not know: which command raised it.
"""

from __future__ import annotations


def error_text(error: Exception) -> str:
    """One line for an error; of games that failed, one for each, and below it one for each frame of the user's code."""
    from agentcho.errors import GamesFailed

    lines = error.lines if isinstance(error, GamesFailed) else (str(error),)
    first, *others = (f"error: {lines[0]}", *lines[1:])
    return "\n".join(
        (one_line(first), *(f"{'    ' if each.startswith('  ') else '  '}{one_line(each)}" for each in others))
    )


def one_line(words: str) -> str:
    """Words in one line, and nothing in them that moves a terminal."""
    from agentcho.display.safe import visible

    return visible(" ".join(words.split()))

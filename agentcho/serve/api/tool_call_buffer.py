"""Holds back text of a running answer that may still become a function call.

Knows only how a call begins.
"""

from __future__ import annotations

from agentcho.serve.request import Answer

BARE = "{"
"""The beginning of a call that has nothing around it."""
TAG = "<tool_call>"
"""Another beginning of a call where the format is bare JSON; see `ToolsPort.read`."""
WHOLE = (BARE, "[{", *(f"```{kind}{json}" for kind in ("", "json", "tool_call") for json in (BARE, "[{")))
"""Beginnings of an answer, whitespace removed, that is a call as a whole, where the format is bare JSON."""


class ToolCallBuffer:
    """Follows one answer while it is generated. A call begins with `opening`: from there on nothing is shown until the
    answer has ended. Characters that may become an opening, and whitespace before it, are held back too. An answer that
    is JSON from its first character may be a call in every format (see `ToolsPort.read`). If bare JSON is the format,
    so may be JSON in a code fence, and what begins with `TAG`. An empty opening holds everything back, None nothing."""

    def __init__(self, opening: str | None) -> None:
        self._opening = opening
        self._waiting = ""
        self._shown = 0
        self._open = opening == ""

    def add(self, text: str) -> str:
        """Add generated text; return what can be shown now."""
        if self._open:
            return ""
        self._waiting += text
        shown = self._waiting[: self._safe(self._opening)]
        self._waiting = self._waiting[len(shown) :]
        self._shown += len(shown)
        return shown

    @property
    def empty(self) -> bool:
        """Whether everything so far is shown."""
        return not self._open and not self._waiting

    def rest(self, answer: Answer) -> str:
        """The text of a finished answer that is still to be shown, without its calls."""
        return (answer.before if answer.calls else answer.text)[self._shown :]

    def _safe(self, opening: str | None) -> int:
        """The number of held characters that come before any complete or incomplete opening."""
        waiting = self._waiting
        if opening is None:
            return len(waiting)
        if not self._shown:
            squeezed, ways = "".join(waiting.split()).lower(), WHOLE if opening == BARE else (BARE,)
            self._open = squeezed.startswith(ways)
            if self._open or any(way.startswith(squeezed) for way in ways):
                return 0
        opening = TAG if opening == BARE else opening
        if (start := waiting.find(opening)) >= 0:
            self._open = True
            return len(waiting[:start].rstrip())
        begun = (size for size in range(len(opening) - 1, 0, -1) if waiting.endswith(opening[:size]))
        return len(waiting[: len(waiting) - next(begun, 0)].rstrip())

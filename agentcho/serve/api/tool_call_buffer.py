"""The text of a running answer that is not shown yet, because it may still become a call of a function.

Does not know: what a call looks like, but for how it begins.
"""

from __future__ import annotations

from agentcho.serve.request import Answer

BARE = "{"
"""How a call begins that has nothing around it."""
TAG = "<tool_call>"
"""How a call may also begin where bare JSON is what is asked for; see `ToolsPort.read`."""
WHOLE = (BARE, "[{", *(f"```{kind}{json}" for kind in ("", "json", "tool_call") for json in (BARE, "[{")))
"""How an answer may begin, without its white space, that is a call as a whole, where bare JSON is what is asked for."""


class ToolCallBuffer:
    """Follows one answer while it is said. A call begins with `opening`: from there on nothing is shown before the
    answer has ended, and no letters that may become an opening, or white space before one. An answer that is JSON from
    its first letter may be a call in every format (see `ToolsPort.read`); where that is the format, so may one that is
    JSON in a code fence, and what begins with `TAG`. An empty opening holds everything, None nothing."""

    def __init__(self, opening: str | None) -> None:
        self._opening = opening
        self._waiting = ""
        self._shown = 0
        self._open = opening == ""

    def add(self, text: str) -> str:
        """What can be shown now that `text` is said."""
        if self._open:
            return ""
        self._waiting += text
        shown = self._waiting[: self._safe(self._opening)]
        self._waiting = self._waiting[len(shown) :]
        self._shown += len(shown)
        return shown

    @property
    def empty(self) -> bool:
        """Whether all that was said is shown."""
        return not self._open and not self._waiting

    def rest(self, answer: Answer) -> str:
        """What is still to be shown of an answer that has ended, beside its calls."""
        return (answer.before if answer.calls else answer.text)[self._shown :]

    def _safe(self, opening: str | None) -> int:
        """How many letters of what waits are before any opening, begun or whole."""
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

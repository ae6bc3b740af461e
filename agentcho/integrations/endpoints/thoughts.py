"""Separates the thought that a server leaves in the text of an answer from the answer itself, while streaming.

The thought is a `<think>` block at the beginning of the text. A server whose chat template opens the thought in the
prompt sends only the closing tag. So the first text of such a model is held back until its end or until the tag.
"""

from __future__ import annotations

BEGIN, END = "<think>", "</think>"


class Habit:
    """What a model's answers have shown so far. `inside`: whether they begin inside a thought (None: unknown).
    `unclear`: a free answer was cut before it showed it."""

    def __init__(self, inside: bool | None = None) -> None:
        self.inside = inside
        self.unclear = False


class Parted:
    """The text of one answer. `thought` is the thought before it, without the tags.

    Args:
        habit: What is known about the model's answers; updated by this one.
        goes_on: The text continues words that were sent to the server, so no thought was opened for it.
        constrained: The server constrains the text to a choice or JSON. It then leaves out the thought, so a text
            without one tells nothing of the model's other answers.
    """

    def __init__(self, habit: Habit, goes_on: bool = False, constrained: bool = False) -> None:
        self._habit, self._goes_on = habit, goes_on
        self._free = not (goes_on or constrained)
        self._held = ""
        self._opened = False
        self._answers = False
        self._behind = False
        self.thought = ""

    @property
    def may_think(self) -> bool:
        """Whether stop strings are left to the client, because they might end a thought: if answers begin inside one,
        or if no free answer has been asked for yet. One that was cut tells nothing, and is not asked for again."""
        unknown = self._habit.inside is None and not self._habit.unclear
        return not self._goes_on and (self._habit.inside is True or unknown)

    def apart(self) -> None:
        """The server sends thoughts in a field of their own, so all of the text is the answer."""
        self._answers, self._habit.inside = True, False

    def add(self, piece: str) -> str:
        """Add a piece; return the text that is known to belong to the answer."""
        self._held += piece
        if not self._answers:
            self._look()
        return self._answered() if self._answers else ""

    def end(self, cut: bool) -> str:
        """Finish after the last piece; return the rest of the answer. `cut`: the text may have been ended inside a
        thought, by a limit or a requested stop."""
        if not self._answers and (self._opened or (self._habit.inside and self._free)):
            self.thought, self._held = self._held, ""  # the thought never ended
        elif not self._answers and self._free and self._held.strip():
            self._habit.inside, self._habit.unclear = (None, True) if cut else (False, False)
        self._answers = True
        return self._answered()

    def _look(self) -> None:
        bare = self._held.lstrip()
        if not self._opened and bare.startswith(BEGIN):
            self._opened, self._held = True, bare.removeprefix(BEGIN)
        elif not self._opened and BEGIN.startswith(bare):
            return
        if not self._opened and (self._goes_on or self._habit.inside is False):
            self._answers = True
            return
        thought, ended, answer = self._held.partition(END)
        if ended:
            self._habit.inside = self._habit.inside if self._opened else True
            self.thought, self._held = thought, answer
            self._answers = self._behind = True

    def _answered(self) -> str:
        """Return the held text of the answer, without whitespace right after the thought."""
        said = self._held.lstrip() if self._behind else self._held
        self._behind = self._behind and not said
        self._held = ""
        return said

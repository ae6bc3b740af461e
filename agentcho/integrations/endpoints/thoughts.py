"""Tells the thought that a server leaves in the text of an answer from the answer, while the text comes.

The thought is a `<think>` block that the text begins with. A server whose chat template opened the thought in the
prompt sends its end alone; so the first text of a model that might be one is held back until its end, or until the mark
comes. Does not know: how a text comes, who hears it.
"""

from __future__ import annotations

BEGIN, END = "<think>", "</think>"


class Habit:
    """What the answers of a model have shown. `inside`: whether they begin inside of a thought (None: nobody knows)."""

    def __init__(self, inside: bool | None = None) -> None:
        self.inside = inside


class Parted:
    """The text of one answer. `thought` is what was thought before it, without the marks.

    Args:
        habit: What is known of the model's answers; it learns from this one.
        goes_on: The text goes on with words that the server was sent, so that no thought was opened for it.
    """

    def __init__(self, habit: Habit, goes_on: bool = False) -> None:
        self._habit, self._goes_on = habit, goes_on
        self._held = ""
        self._opened = False
        self._answers = False
        self._behind = False
        self.thought = ""

    def apart(self) -> None:
        """The server sends thoughts apart from the text, which is the answer alone."""
        self._answers = True

    def add(self, piece: str) -> str:
        """What one more piece adds to the answer, as far as that is known."""
        self._held += piece
        if not self._answers:
            self._look()
        return self._answered() if self._answers else ""

    def end(self, cut: bool) -> str:
        """What is known to be the answer's now that no other piece comes. `cut`: a limit ended the text."""
        if not self._answers and (self._opened or (self._habit.inside and not self._goes_on)):
            self.thought, self._held = self._held, ""  # a thought that went on to the end
        elif not self._answers and not self._goes_on and not cut and self._held.strip():
            self._habit.inside = False
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
        """What is held of the answer; blanks behind a thought are no part of it."""
        said = self._held.lstrip() if self._behind else self._held
        self._behind = self._behind and not said
        self._held = ""
        return said

"""Words that the tokens of a decode may be guessed from.

A guess is checked by the model before it is said, so that a corpus decides nothing of what is said; but how often
guesses are right can be timed. So a corpus holds what all who draw from it may read, and belongs to one game. Does not
know: how guesses are made, who may read what.
"""

from __future__ import annotations


class Corpus:
    """Messages that may be drawn from, as token ids, in the order in which they were `add`ed; there may be more at any
    time. `messages` is to be read only."""

    def __init__(self, *messages: tuple[int, ...]) -> None:
        self.messages = list(messages)

    def add(self, tokens: tuple[int, ...]) -> None:
        """Let a message be drawn from. May be called while an engine steps in another thread."""
        self.messages.append(tokens)

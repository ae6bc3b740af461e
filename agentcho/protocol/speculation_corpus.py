"""Text from which the tokens of a decode may be drafted.

The model verifies draft tokens before they are used, so a corpus never changes the text. How often they are right can
be timed, however. A corpus must therefore hold only what all its users may read, and belongs to one game.
"""

from __future__ import annotations


class Corpus:
    """Messages that tokens may be guessed from, in the order in which they were added.

    Args:
        *messages: Token ids of each message.

    Attributes:
        messages: The messages. Read only.
    """

    def __init__(self, *messages: tuple[int, ...]) -> None:
        self.messages = list(messages)

    def add(self, tokens: tuple[int, ...]) -> None:
        """Add a message. It may be called while an engine steps in another thread.

        Args:
            tokens: Token ids of the message.
        """
        self.messages.append(tokens)

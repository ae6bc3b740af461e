"""What the playing code has looked at: whose words it may act on from then, and before whom.

A message that a verb returns tells here when its words are looked at. On the words that a task has looked at its later
acts may depend; and once a round is over, on those that its moves have looked at. A tripwire, no proof: values that go
from task to task by other ways are not followed. Does not know: encodings, what the words say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import fields
from typing import Any

from agentcho.message import Audience, Message, Words

Listener = Callable[[str], None] | None
"""What is called with each piece of a text as it comes."""
WORDS = frozenset({"words", "text", "tokens", "content", "sampled", "stopped", "canonical"})
"""What the words of a message are read by. Its header is none of them: the playing code gave it."""


class TrackedMessage(Message):
    """A message that tells when something of it is looked at that its metadata does not say. It equals every message of
    its game and id, so that to compare it is not to look at it."""

    __slots__ = ("_told",)

    def __getattribute__(self, name: str) -> Any:
        if name in WORDS:
            tell = getattr(self, "_told", None)
            if tell is not None:
                tell(self.id)
        return object.__getattribute__(self, name)

    @property
    def header(self) -> str:
        """What its author was given to begin with: to look at it tells nothing."""
        words: Words = object.__getattribute__(self, "words")
        return words.header

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (self.game, self.id) == (other.game, other.id)

    def __hash__(self) -> int:
        return hash((self.game, self.id))


class TaintTracker:
    """Whose words each task of one game has looked at."""

    def __init__(self) -> None:
        self._sources: ContextVar[set[str] | None] = ContextVar("sources", default=None)
        self._first: set[str] = set()

    @property
    def sources(self) -> set[str]:
        """Ids of the messages whose words the running task has looked at; tasks that it starts itself share them."""
        own = self._sources.get()
        return self._first if own is None else own

    def track(self, message: Message) -> Message:
        """The message, so that it tells when its words are looked at."""
        tracked = TrackedMessage(**{field.name: getattr(message, field.name) for field in fields(Message)})
        object.__setattr__(tracked, "_told", lambda id: self.sources.add(id))
        return tracked

    def listener(self, id: str, listen: Listener) -> Listener:
        """A listener to the words of a message that is being said: whoever hears of it has looked at them."""
        if listen is None:
            return None
        heard, told = self.sources, listen

        def hear(text: str) -> None:
            heard.add(id)
            told(text)

        return hear

    def fork(self) -> set[str]:
        """Give the running task, a move of a round, a set of its own; returns it, to `join` when the round is over."""
        own = set(self.sources)
        self._sources.set(own)
        return own

    def join(self, forks: list[set[str]]) -> None:
        """A round is over: who awaited it may know what its moves do."""
        self.sources.update(*forks)

    def tainted_by(self, before: Audience, audiences: Mapping[str, Audience]) -> tuple[str, ...]:
        """The messages that were looked at and that not everyone in `before` may read."""
        return tuple(sorted(id for id in self.sources if not audiences[id].covers(before)))

"""What the playing code has looked at: whose words it may act on from then, and before whom.

A message that a verb returns tells here when its words are looked at. What a task heard, its later acts may
depend on; so does what its parts of a round heard, once the round is over. A tripwire, no proof: values that go
from task to task by other ways are not followed. Does not know: encodings, what the words say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import fields
from typing import Any

from agentcho.message import Audience, Message, Words

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
    """What each task of one game has heard."""

    def __init__(self) -> None:
        self._heard: ContextVar[set[str] | None] = ContextVar("heard", default=None)
        self._first: set[str] = set()

    @property
    def heard(self) -> set[str]:
        """Ids that the running task has looked into; tasks it starts by itself share it."""
        own = self._heard.get()
        return self._first if own is None else own

    def lend(self, message: Message) -> Message:
        """The message, so that it tells when it is looked into."""
        lent = TrackedMessage(**{field.name: getattr(message, field.name) for field in fields(Message)})
        object.__setattr__(lent, "_told", self._teller())
        return lent

    def part(self) -> set[str]:
        """Hear apart from now, as a part of a round; returns what to `join` when it is over."""
        own = set(self.heard)
        self._heard.set(own)
        return own

    def join(self, parts: list[set[str]]) -> None:
        """A round is over: who awaited it may know what its parts do."""
        self.heard.update(*parts)

    def tainted_by(self, before: Audience, audiences: Mapping[str, Audience]) -> tuple[str, ...]:
        """What was heard that not everyone in `before` may read."""
        return tuple(sorted(id for id in self.heard if not audiences[id].covers(before)))

    def _teller(self) -> Callable[[str], None]:
        return lambda id: self.heard.add(id)

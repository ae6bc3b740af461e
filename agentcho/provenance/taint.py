"""What the playing code has looked at: whose words it may act on from then, and before whom.

A message that a verb returns tells here when its words are looked at, and the list of what was said when metadata of
private messages are. On what a task has looked at its later acts may depend; and once a round is over, on what its
moves have looked at. A tripwire, no proof: values that go from task to task by other ways are not followed. Which
reads count is in the table of `sights`. Does not know: encodings, what the words say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import fields
from typing import Any, overload

from agentcho.message import Audience, Message, Metadata, Words
from agentcho.provenance.code_reads import SILENT, WORDS
from agentcho.provenance.returned_values import ReturnedValue, has_value
from agentcho.provenance.views import History, MessageLog

Listener = Callable[[str], None] | None
"""What is called with each piece of a text as it comes."""
Notice = Callable[[Iterable[Metadata]], None]
"""What is called with messages whose metadata are looked at."""


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


class TrackedHistory(History):
    """A history that tells which of its messages are looked at: those that are listed. To count them is to list all."""

    def __init__(self, history: History, notice: Notice) -> None:
        self._parts = history._parts
        self._notice = notice

    def _all(self) -> Iterator[Metadata]:
        return super().__iter__()

    @property
    def logs(self) -> tuple[MessageLog, ...]:
        """As of any history; all of it was looked at."""
        self._notice(self._all())
        return super().logs

    def find(self, id: str) -> Metadata | None:
        """The message of that id. Where there is none, all that there are were looked at."""
        found = super().find(id)
        self._notice(self._all() if found is None else [found])
        return found

    def backwards(self, reader: str) -> Iterator[Metadata]:
        """The messages that a reader is in the audience of, the last one first, each looked at when it comes."""
        return map(self._looked_at, super().backwards(reader))

    def open_to(self, audience: Audience) -> Iterator[Metadata]:
        """Those that all of an audience may read, and of which nothing else was looked at."""
        return map(self._looked_at, super().open_to(audience))

    def _looked_at(self, message: Metadata) -> Metadata:
        self._notice([message])
        return message

    def __len__(self) -> int:
        self._notice(self._all())
        return super().__len__()

    def __iter__(self) -> Iterator[Metadata]:
        return map(self._looked_at, self._all())

    @overload
    def __getitem__(self, place: int) -> Metadata: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Metadata, ...]: ...
    def __getitem__(self, place: int | slice) -> Metadata | tuple[Metadata, ...]:
        self._notice(self._all())
        return super().__getitem__(place)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()


class TaintTracker:
    """Whose words and messages each task of one game has looked at."""

    def __init__(self) -> None:
        self._sources: ContextVar[set[str] | None] = ContextVar("sources", default=None)
        self._first: set[str] = set()
        self._given: set[str] = set()
        self._values: dict[str, ReturnedValue] = {}
        self._used: set[str] = set()

    @property
    def sources(self) -> set[str]:
        """Ids of the messages whose words the running task has looked at; tasks that it starts itself share them."""
        own = self._sources.get()
        return self._first if own is None else own

    def track(self, message: Message, value: ReturnedValue | None = None) -> Message:
        """The message, so that it tells when its words are looked at. `value`: a verb looks at them, to return what
        they say, and whether the playing code uses that is not seen."""
        tracked = TrackedMessage(**{field.name: getattr(message, field.name) for field in fields(Message)})
        if value is not None:
            self._values[message.id] = value
        object.__setattr__(tracked, "_told", self._look if value is None else lambda id: self.sources.add(id))
        self.give(message.id)
        return tracked

    def _look(self, id: str) -> None:
        self.sources.add(id)
        self._used.add(id)

    def unproved(self, ids: Iterable[str], text: str) -> tuple[str, ...]:
        """Those of these messages of which nothing shows that the playing code has used them, where it says `text`: it
        has had no more than the value that a verb returned, in none of its tasks, and the text does not have that."""
        contained = self.contained(ids, text)
        return tuple(id for id in ids if id in self._values and id not in self._used and id not in contained)

    def contained(self, ids: Iterable[str], text: str) -> tuple[str, ...]:
        """Those of these messages whose returned value `text` contains."""
        return tuple(id for id in ids if id in self._values and has_value(text, self._values[id]))

    def give(self, id: str) -> str:
        """The id of a message that the playing code has asked for: that there is this message tells it nothing."""
        self._given.add(id)
        return id

    def history(self, history: History) -> History:
        """The history, so that it tells which messages are looked at."""
        return TrackedHistory(history, self.notice)

    def notice(self, messages: Iterable[Metadata]) -> None:
        """The running task has looked at metadata of these messages. What everyone may read is no secret."""
        looked_at = {message.id for message in messages if message.audience.members is not None}
        self.sources.update(looked_at)
        self._used.update(looked_at)

    def probed(self, id: str, there: Metadata | None, messages: Iterable[Metadata]) -> None:
        """The running task has asked whether there is a message of that id; `messages` are all there are. An id counts
        its author's messages, so that to hear of none tells how many these are."""
        if id not in self._given:
            author = id.rpartition(".")[0]
            self.notice([there] if there else (message for message in messages if message.author == author))

    def failed(self, error: Exception, behind: Iterable[Metadata]) -> None:
        """A verb has failed in the running task; what that tells is of the messages `behind` it."""
        if type(error).__name__ not in SILENT:
            self.notice(behind)

    def listener(self, id: str, listen: Listener) -> Listener:
        """A listener to the words of a message that is being said: whoever hears of it has looked at them."""
        if listen is None:
            return None
        heard, told = self.sources, listen

        def hear(text: str) -> None:
            heard.add(id)
            self._used.add(id)
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

    def raced(self, moves: Iterable[set[str]]) -> None:
        """A race is over: who was first tells of all that its moves have said."""
        for said in moves:
            self.sources.update(said)
            self._used.update(said)

    def tainted_by(self, before: Audience, audiences: Mapping[str, Audience]) -> tuple[str, ...]:
        """The messages that were looked at and that not everyone in `before` may read."""
        return tuple(sorted(id for id in self.sources if not audiences[id].covers(before)))

"""Tracks what the playing code has looked at, and so which messages its later acts may depend on.

A message that a verb returns reports here when its words are read, and the history when metadata of private messages
are. The later acts of a task may depend on what it has looked at, and, once a round is over, on what the round's moves
have looked at. This is a tripwire, not a proof: values that pass between tasks in other ways are not tracked. The table
in `code_reads` lists the reads that count. Independent of encodings, and of what the words say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import fields
from traceback import walk_tb
from typing import Any, NamedTuple, overload

from agentcho.errors import RequestError
from agentcho.message import Audience, Message, Metadata, Words
from agentcho.protocol.call_site import is_users
from agentcho.provenance.code_reads import SILENT, WORDS
from agentcho.provenance.returned_values import CodeText, ReturnedValue
from agentcho.provenance.views import History, MessageLog, shown_to

Listener = Callable[[str], None] | None
"""Called with each piece of a text as it comes."""
Notice = Callable[[Iterable[Metadata]], None]
"""Called with messages whose metadata are looked at."""


class TrackedMessage(Message):
    """A message that reports when its words or its parents are read; its offsets tell how many these are.
    It equals every message with its game and id, so that comparisons do not read its words."""

    __slots__ = ("_thought", "_told")

    def __getattribute__(self, name: str) -> Any:
        if name in ("thought", "thoughts"):
            probe: Callable[[], None] | None = getattr(self, "_thought", None)
            if probe is not None:
                probe()
        if name in WORDS or name in ("parents", "offsets", "new_offset"):
            tell: Callable[[str], None] | None = getattr(self, "_told", None)
            if tell is not None:
                for id in (self.id,) if name in WORDS else object.__getattribute__(self, "parents"):
                    tell(id)
        return object.__getattribute__(self, name)

    @property
    def header(self) -> str:
        """The beginning that its author was given. Reading it reveals nothing."""
        words: Words = object.__getattribute__(self, "words")
        return words.header

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (self.game, self.id) == (other.game, other.id)

    def __hash__(self) -> int:
        return hash((self.game, self.id))


class TrackedHistory(History):
    """A history that reports which of its messages are looked at: those that are listed. Counting them lists all."""

    def __init__(self, history: History, notice: Notice, listed: Notice) -> None:
        self._parts = history._parts
        self._notice, self._listed = notice, listed

    def _all(self) -> Iterator[Metadata]:
        return super().__iter__()

    @property
    def logs(self) -> tuple[MessageLog, ...]:
        """One log of all messages, as views see them. Counts as a look at all."""
        return (MessageLog(self),)

    def find(self, id: str) -> Metadata | None:
        """The message with this id. If there is none, this counts as a look at all messages."""
        found = super().find(id)
        self._notice(self._all() if found is None else [found])
        return None if found is None else shown_to("", found, super().find)

    def backwards(self, reader: str) -> Iterator[Metadata]:
        """The messages that a reader may read, the last one first. Each counts as looked at when it is yielded."""
        return map(self._looked_at, super().backwards(reader))

    def open_to(self, audience: Audience) -> Iterator[Metadata]:
        """The messages that all of an audience may read. Only these count as looked at."""
        return map(self._looked_at, super().open_to(audience))

    def _looked_at(self, message: Metadata) -> Metadata:
        """The message with those parents that all its readers may know, as views see it."""
        self._listed([message])
        return shown_to("", message, super().find)

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
        if isinstance(place, slice):
            return tuple(map(self._looked_at, super().__getitem__(place)))
        return self._looked_at(super().__getitem__(place))

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()


def _is_silent(error: Exception) -> bool:
    """Whether an error reveals nothing: it is one of the package's own, and no code of the user within the verb, such
    as a view that counts what the agent may read, had a part in raising it."""
    if type(error).__name__ not in SILENT or not type(error).__module__.startswith("agentcho."):
        return False
    return not any(is_users(frame) for frame, _ in walk_tb(error.__traceback__))


class Seen(NamedTuple):
    """What the tasks of one move know: the messages that they have looked at, those that they have requested, whose
    existence therefore reveals nothing, and those that the history has listed for them."""

    sources: set[str]
    requested: set[str]
    listed: set[str]


class TaintTracker:
    """Tracks the messages that each task of one game has looked at."""

    def __init__(self) -> None:
        self._own: ContextVar[Seen | None] = ContextVar("seen", default=None)
        self._first = Seen(set(), set(), set())
        self._moves: list[Seen] = []
        self._given: set[str] = set()
        self._values: dict[str, tuple[ReturnedValue, tuple[str, ...]]] = {}
        self._used: set[str] = set()

    def begin(self) -> None:
        """Begin in the running task, which plays the game. Tasks that it starts share its looks."""
        self._own.set(self._first)

    @property
    def sources(self) -> frozenset[str]:
        """Ids of the messages that the running task has looked at. Tasks that it starts itself share them."""
        return frozenset().union(*(seen.sources for seen in self._those))

    @property
    def _seen(self) -> Seen:
        return self._own.get() or self._first

    @property
    def _those(self) -> tuple[Seen, ...]:
        """What the running task may know. In a context that no task of the game has started, such as a thread's own, it
        may act for any move under way."""
        own = self._own.get()
        return (self._first, *self._moves) if own is None else (own,)

    def looked(self, ids: Iterable[str]) -> None:
        """Record that the running task knows something about these messages."""
        ids = set(ids)
        for seen in self._those:
            seen.sources.update(ids)

    def track(
        self,
        message: Message,
        value: ReturnedValue | None = None,
        offered: tuple[str, ...] = (),
        thought: Callable[[], None] | None = None,
    ) -> Message:
        """The message in a form that reports when its words are read. `value`: the value that a verb reads from the
        words and returns; whether the playing code uses it is not visible. `offered`: as in `CodeText`. `thought` is
        called when the code reads whether there was a thought."""
        tracked = TrackedMessage(**{field.name: getattr(message, field.name) for field in fields(Message)})
        if value is not None:
            self._values[message.id] = value, offered
        object.__setattr__(tracked, "_told", self.look if value is None else lambda id: self.looked([id]))
        object.__setattr__(tracked, "_thought", thought)
        return tracked

    def look(self, id: str) -> None:
        """Record that the running task reads the words of a message, not only the value that a verb made of them."""
        self.looked([id])
        self._used.add(id)

    def returned(self, ids: Iterable[str], written: CodeText) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The messages among these of which no task of the playing code got more than the value that a verb returned:
        those whose value is not in what the code wrote, so that nothing shows that it used it, and those whose value
        is."""
        known = [id for id in ids if id in self._values and id not in self._used]
        contained = tuple(id for id in known if written.has_value(*self._values[id]))
        return tuple(id for id in known if id not in contained), contained

    def give(self, id: str) -> str:
        """Note that the playing code has requested this message, so its existence reveals nothing. Returns the id."""
        self._seen.requested.add(id)
        self._given.add(id)
        return id

    def given(self, message: Message) -> Message:
        """Note that the playing code has requested this message, and return it."""
        self.give(message.id)
        return message

    def history(self, history: History) -> History:
        """The history in a form that reports which messages are looked at."""
        return TrackedHistory(history, self.notice, self.listed)

    def notice(self, messages: Iterable[Metadata]) -> None:
        """Record that the running task has looked at metadata of these messages. Public messages do not count."""
        looked_at = {message.id for message in messages if message.audience.members is not None}
        self.looked(looked_at)
        self._used.update(looked_at)

    def listed(self, messages: Iterable[Metadata]) -> None:
        """Record that the history has listed these messages for the running task, which counts as a look at them."""
        messages = tuple(messages)
        for seen in self._those:
            seen.listed.update(message.id for message in messages)
        self.notice(messages)

    def awaited(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Those of these ids that the running task did not get from a list of what happened to be out, so that it must
        have waited for their messages."""
        return tuple(id for id in ids if id not in self._seen.listed)

    def probed(self, id: str, there: Metadata | None, messages: Iterable[Metadata]) -> None:
        """Record that the running task has asked whether a message with this id exists; `messages` are all messages.
        Ids begin with whose they are and number them, so a missing id reveals how many there are."""
        if id not in self._seen.requested:
            whose = id.partition(".")[0]
            self.notice([there] if there else (each for each in messages if each.id.partition(".")[0] == whose))

    def named(self, message: Metadata) -> None:
        """Record that a view names a message. That it exists is news if no verb has returned its id to any task."""
        if message.id not in self._given:
            self.notice([message])

    def failed(self, error: Exception, behind: Iterable[Metadata]) -> None:
        """Record that a verb has failed in the running task, which reveals something about the messages `behind` it."""
        private = isinstance(error, RequestError) and error.field in ("offsets", "typed")
        if private or not _is_silent(error):
            self.notice(behind)

    def listener(self, id: str, listen: Listener) -> Listener:
        """A listener to the words of a message that is being generated. To listen counts as a look at them, even if
        none come: that they are none is heard too."""
        if listen is None:
            return None
        self.look(id)
        return listen

    def fork(self) -> Seen:
        """Give the running task, a move of a round, its own looks. Returns them, to `join` when the round is over."""
        own = Seen(*map(set, self._seen))
        self._moves.append(own)
        self._own.set(own)
        return own

    def join(self, forks: Iterable[Seen]) -> None:
        """End a round: the task that awaited it may know what its moves know."""
        for each in forks:
            self._seen.sources.update(each.sources)
            self._seen.requested.update(each.requested)
            self._seen.listed.update(each.listed)
            self._moves = [move for move in self._moves if move is not each]

    def raced(self, moves: Iterable[set[str]]) -> None:
        """End a race: who was first reveals something about all that its moves have generated."""
        for said in moves:
            self.looked(said)
            self._used.update(said)

    @staticmethod
    def tainted_by(before: Audience, looked_at: Mapping[str, Audience]) -> tuple[str, ...]:
        """Those of the messages that were looked at, given with their audiences, that not everyone in `before` may
        read."""
        return tuple(sorted(id for id, audience in looked_at.items() if not audience.covers(before)))

"""Which message of a society a client means when it quotes one.

A client sends its whole prompt anew with each request, in its own words and roles. A message of it is one that is
known where its id says so, or its text, and the agent that sends it may read that one; otherwise it is new. A text that
equals somebody else's private message is new like any other, so that no answer, count or time tells that it was there.
Does not know: encodings, where messages are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import islice

from agentcho.message import Audience, Role
from agentcho.serve.request import ToolCall
from agentcho.serve.sharing.prompt import Framed, same_calls

MOST = 256
"""Of so many messages with one text that a reader may read, at most, the right one is looked for: the latest."""


class Standing:
    """The messages that stand before one place of a prompt. `ids` are theirs; `key` is the same where the same messages
    stand in the same order, and takes no more room for many than for few."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self.key, self.ids = b"", set[str]()
        for id in ids:
            self.add(id)

    def add(self, id: str) -> None:
        """One more message stands there, at the end."""
        self.key = hashlib.blake2b(id.encode(), key=self.key, digest_size=16).digest()
        self.ids.add(id)


@dataclass(frozen=True, eq=False)
class Known:
    """A message of a society as it can be quoted.

    `id` is its own in the society, `public_id` the one that answers carry. `before` is the key of the messages that
    stood before it in the prompt that brought it, or over which it was said (see `Standing`). `said`: a model said it.
    `calls` and `lead` as in `Framed`.
    """

    id: str
    public_id: str
    role: Role
    text: str
    name: str | None
    author: str | None
    audience: Audience
    before: bytes
    said: bool = False
    calls: tuple[ToolCall, ...] = ()
    lead: str = ""


@dataclass(frozen=True)
class Reader:
    """The agent whose request is read. `proven`: a name that its key, path or header gave, and not a hash, which two
    conversations with equal system messages have in common."""

    agent: str
    proven: bool

    @property
    def own(self) -> Audience:
        """The agent alone."""
        return Audience(frozenset({self.agent}))


class MessageIndex:
    """The messages of a society, by id and by text."""

    def __init__(self) -> None:
        self._by_id: dict[str, Known] = {}
        self._by_text: dict[str, dict[Audience, list[Known]]] = {}
        self._behind: dict[tuple[str, bytes], list[Known]] = {}
        self._places: dict[Known, int] = {}

    def add(self, known: Known) -> None:
        """One more message."""
        self._by_id[known.public_id] = known
        self._by_text.setdefault(known.text, {}).setdefault(known.audience, []).append(known)
        self._behind.setdefault((known.text, known.before), []).append(known)
        self._places[known] = len(self._places)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Known]:
        return iter(self._by_id.values())

    def find(self, quoted: Framed, reader: Reader, before: Standing) -> Known | None:
        """The message that is quoted after those of `before`; None: it is new. An id decides where the words are those
        of its message; else, of equal texts, what was first sent or said after the same messages, then what does not
        stand in this prompt already, then the latest."""
        wanted = self._candidates(quoted, reader, before)
        return next((known for known in wanted if self._is(quoted, known, reader, before)), None)

    def _candidates(self, quoted: Framed, reader: Reader, before: Standing) -> Iterator[Known]:
        """What may be meant, the likeliest first."""
        if named := self._by_id.get(quoted.id or ""):
            yield named
        yield from reversed(self._behind.get((quoted.text, before.key), ())[-MOST:])
        yield from (known for known in self._latest(quoted.text, reader) if known.id not in before.ids)
        yield from self._latest(quoted.text, reader)

    def _latest(self, text: str, reader: Reader) -> Iterator[Known]:
        """The latest messages with a text that a reader may read, the last first. What it may not read takes no place
        among them: a message that is missed for that would tell that it is there."""
        texts = self._by_text.get(text, {}).items()
        latest = (reversed(known[-MOST:]) for audience, known in texts if audience.includes(reader.agent))
        return islice(merge(*latest, key=self._places.__getitem__, reverse=True), MOST)

    def _is(self, quoted: Framed, known: Known, reader: Reader, before: Standing) -> bool:
        return self._may_be(quoted, known, reader, before) and _same_words(quoted, known)

    def _may_be(self, quoted: Framed, known: Known, reader: Reader, before: Standing) -> bool:
        """Whether the reader may read it, and can mean it by a message of this role. Whoever is known by a hash alone
        has, of what is not everyone's, only what stands behind the same messages: another conversation may have the
        same hash."""
        if not known.audience.includes(reader.agent) or not _fits(quoted, known, reader):
            return False
        return reader.proven or known.audience.members is None or known.before == before.key


def _fits(quoted: Framed, known: Known, reader: Reader) -> bool:
    """Whether a message of this role may mean it. What a model said comes back in either role, from clients that give
    the words of other agents to a model as a user's."""
    match quoted.role:
        case "system" | "tool":
            return known.role == quoted.role and known.author == reader.agent
        case "user":
            return known.said or (known.role == "user" and known.name == quoted.name)
    return known.said or known.role == "assistant"


def _same_words(quoted: Framed, known: Known) -> bool:
    if quoted.calls or known.calls:
        return quoted.lead.strip() == known.lead.strip() and same_calls(quoted.calls, known.calls)
    return quoted.text == known.text


def reads_as_others(known: Known, reader: Reader, before: bytes) -> bool:
    """Whether the reader has a message that it said itself as all others have it: it cannot be told from another
    conversation with the same hash, and this prompt is not the one over which it was said."""
    return known.author == reader.agent and known.said and not reader.proven and known.before != before

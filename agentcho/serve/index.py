"""Which message of a society a client means when it quotes one.

A client sends its whole prompt anew with each request, in its own words and roles. A message of it is one that is
known where its id says so, or its text, and the agent that sends it may read that one; otherwise it is new. A text that
equals somebody else's private message is new like any other, so that no answer, count or time tells that it was there.
Does not know: encodings, where messages are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentcho.message import Audience, Role
from agentcho.serve.prompt import Framed, same_calls
from agentcho.serve.request import ToolCall

MOST = 256
"""Of so many messages with one text, at most, the right one is looked for: the latest."""


@dataclass(frozen=True, eq=False)
class Known:
    """A message of a society as it can be quoted.

    `id` is its own in the society, `public_id` the one that answers carry. `before` are the messages that stood before
    it in the prompt that brought it, or over which it was said. `said`: a model said it. `calls` and `lead` as in
    `Framed`.
    """

    id: str
    public_id: str
    role: Role
    text: str
    name: str | None
    author: str | None
    audience: Audience
    before: tuple[str, ...]
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
        self._by_text: dict[str, list[Known]] = {}

    def add(self, known: Known) -> None:
        """One more message."""
        self._by_id[known.public_id] = known
        self._by_text.setdefault(known.text, []).append(known)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Known]:
        return iter(self._by_id.values())

    def find(self, quoted: Framed, reader: Reader, before: tuple[str, ...]) -> Known | None:
        """The message that is quoted after those of `before`; None: it is new. An id decides where the words are those
        of its message; else, of equal texts, what was first sent or said after the same messages, then what does not
        stand in this prompt already, then the latest."""
        named = self._by_id.get(quoted.id or "")
        if named is not None and _same_words(quoted, named) and self._may_be(quoted, named, reader, before):
            return named
        fits = [known for known in self._texts(quoted) if self._may_be(quoted, known, reader, before)]
        places = {known: place for place, known in enumerate(fits)}
        return max(fits, key=lambda k: (k.before == before, k.id not in before, places[k]), default=None)

    def _texts(self, quoted: Framed) -> list[Known]:
        latest = self._by_text.get(quoted.text, [])[-MOST:]
        return [known for known in latest if _same_words(quoted, known)]

    def _may_be(self, quoted: Framed, known: Known, reader: Reader, before: tuple[str, ...]) -> bool:
        """Whether the reader may read it, and can mean it by a message of this role. Whoever is known by a hash alone
        has, of what is not everyone's, only what stands behind the same messages: another conversation may have the
        same hash."""
        if not known.audience.includes(reader.agent) or not _fits(quoted, known, reader):
            return False
        return reader.proven or known.audience.members is None or known.before == before


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


def reads_as_others(known: Known, reader: Reader, before: tuple[str, ...]) -> bool:
    """Whether the reader has a message that it said itself as all others have it: it cannot be told from another
    conversation with the same hash, and this prompt is not the one over which it was said."""
    return known.author == reader.agent and known.said and not reader.proven and known.before != before

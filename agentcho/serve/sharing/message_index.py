"""Finds the message of a society that a client means when it quotes one.

A client sends its whole prompt with each request, in its own words and roles. A message of it is a known one if its id
or its text says so and the sending agent may read the known one; otherwise it is new. Among new messages, `restyled`
and `inside` find answers repeated with other whitespace or a name before them, or within other text.

Each agent searches two shelves: messages that everyone may read, and those that it may read besides. Messages kept from
it are on neither, so a text equal to another agent's private message is searched for and missed just like one that
nobody has. Independent of encodings.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, islice
from typing import Literal, NamedTuple, get_args

from agentcho.message import Audience, Part, Role
from agentcho.serve.request import ToolCall
from agentcho.serve.sharing.request_prompt import FramedMessage, same_calls

MOST = 256
"""Maximum number of readable messages with the same text that are considered: the latest ones."""
MOST_SHELVES = 1000
"""Maximum number of agents whose shelves are kept: any request may come under a new name, even one that is refused."""
ANCHOR = 4
"""Number of consecutive token ids that locate an answer within other text."""
WORK = 64
"""Limit on the answer tokens compared for each token of a text."""
LEAST = 8
"""Minimum number of tokens of a contained answer; fewer are not worth an encoding of their own."""
EDGE = 2
"""Number of tokens at either end of an answer that may differ: whitespace, or a character that merged with its
surroundings."""
NAMED = re.compile(r"[*_\[(<\"']*(?P<name>[^\n:*_\[\]()<>\"']{1,128}?)[*_\])>\"']*(?: said| says)?:[*_]*\s+")
"""A speaker's name before a message, as frameworks write it: `ann: `, `**ann**: `, `[ann]: `, `ann said: `."""
FAR = 512
"""Number of characters at the beginning of a message that may be a name and what surrounds it."""
Miss = Literal["first_sent", "not_said_here", "changed", "other_role", "other_prompt", "restyled", "inside"]
"""Why a message of a prompt is new, as far as its sender may know:

- first_sent: a system, user or tool message with words that are new to this agent.
- not_said_here: an assistant message with words that no model said here to this agent.
- changed: it has the id of an answer, but other words.
- other_role: its words are known from a message of another role or name, which it cannot stand for.
- other_prompt: its words are known over another prompt. It may be another conversation, because the agent has no name.
- restyled: it is an answer with other whitespace at its ends or a name before it, for the first time.
- inside: it is an answer within other text, for the first time.
"""
Owner = tuple[str | None, Audience]
"""The author of a message that a prompt brings (None: the society), and who may read it."""


class PromptPosition:
    """The messages before a place in a prompt. `ids` are theirs. `key` is equal if the same messages come in the same
    order, and has a fixed size."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self.key, self.ids = b"", set[str]()
        for id in ids:
            self.add(id)

    def add(self, id: str) -> None:
        """Append a message."""
        self.key = hashlib.blake2b(id.encode(), key=self.key, digest_size=16).digest()
        self.ids.add(id)


@dataclass(frozen=True, eq=False)
class QuotableMessage:
    """A message of a society in the form in which it can be quoted.

    `id` is its own in the society, `public_id` the one that answers carry. `before` is the key of the messages that
    came before it in the prompt that brought it, or over which it was said (see `PromptPosition`). `said`: a model said
    it, or an agent declared so. `calls` and `lead` as in `FramedMessage`. `tokens`: the ids of a part of a message.
    `quotable`: the ids of the texts by which an answer is found within other text.
    """

    id: str
    public_id: str
    role: Role | Part
    text: str
    name: str | None
    author: str | None
    audience: Audience
    before: bytes
    said: bool = False
    calls: tuple[ToolCall, ...] = ()
    lead: str = ""
    tokens: tuple[int, ...] = ()
    quotable: tuple[tuple[int, ...], ...] = ()

    @property
    def repeatable(self) -> bool:
        """Whether it is a text answer, which a client may send with other whitespace."""
        return self.said and not self.calls


@dataclass(frozen=True)
class Reader:
    """The agent that sends the request. `proven`: its name comes from its key, path or header, and is not a hash, which
    conversations with equal system messages share."""

    agent: str
    proven: bool

    @property
    def own(self) -> Audience:
        """The agent alone."""
        return Audience(frozenset({self.agent}))


class QuotedAnswer(NamedTuple):
    """An answer contained in a text, at the token ids from `start` to `stop`."""

    known: QuotableMessage
    start: int
    stop: int


NOBODY = QuotableMessage(
    id="", public_id="", role="assistant", text="", name=None, author=None, audience=Audience(frozenset()), before=b""
)


class ReadableShelf:
    """Searchable messages that share a set of readers."""

    def __init__(self) -> None:
        self.ids: dict[str, QuotableMessage] = {}
        self.texts: dict[str, list[QuotableMessage]] = {}
        self.behind: dict[tuple[str, bytes], list[QuotableMessage]] = {}
        self.bare: dict[str, list[QuotableMessage]] = {}
        self.anchors: dict[tuple[int, ...], list[tuple[QuotableMessage, tuple[int, ...]]]] = {}
        self.parts: dict[tuple[str, str | None, tuple[int, ...]], QuotableMessage] = {}

    def add(self, known: QuotableMessage) -> None:
        """Add a message, or a part of one."""
        if not _is_whole(known):
            self.parts.setdefault((known.role, known.name, known.tokens), known)
            return
        self.ids[known.public_id] = known
        self.texts.setdefault(known.text, []).append(known)
        self.behind.setdefault((known.text, known.before), []).append(known)
        if known.repeatable:
            self.bare.setdefault(_bare(known.text), []).append(known)
        for ids in known.quotable:
            for place in range(min(EDGE + 1, len(ids) - LEAST + 1)):
                self.anchors.setdefault(ids[place : place + ANCHOR], []).append((known, ids[place:]))


class MessageIndex:
    """The messages of a society, by id, by text, and by what an agent may read."""

    def __init__(self) -> None:
        self._by_id: dict[str, QuotableMessage] = {}
        self._everyone = ReadableShelf()
        self._own: dict[str, ReadableShelf] = {}
        self._narrow: list[QuotableMessage] = []
        self._places: dict[QuotableMessage, int] = {}

    def add(self, known: QuotableMessage) -> None:
        """Add a message."""
        self._places[known] = len(self._places)
        if _is_whole(known):
            self._by_id[known.public_id] = known
        if known.audience.members is None:
            self._everyone.add(known)
            return
        self._narrow.append(known)
        for agent in known.audience.members & self._own.keys():
            self._own[agent].add(known)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[QuotableMessage]:
        return iter(self._by_id.values())

    def _shelves(self, reader: Reader) -> tuple[ReadableShelf, ReadableShelf]:
        """What everyone may read, and what this agent may read besides. The latter is made on first use, because an
        audience may name hundreds of agents that never appear."""
        if reader.agent not in self._own:
            shelf = self._own[reader.agent] = ReadableShelf()
            for known in self._narrow:
                if known.audience.includes(reader.agent):
                    shelf.add(known)
            if len(self._own) > MOST_SHELVES:
                del self._own[next(iter(self._own))]
        else:
            self._own[reader.agent] = self._own.pop(reader.agent)  # the latest used one is dropped last
        return self._everyone, self._own[reader.agent]

    # -- whole messages ----------------------------------------------------------------------------------

    def find(self, quoted: FramedMessage, reader: Reader, before: PromptPosition) -> QuotableMessage | None:
        """The message that is quoted after those of `before`, None if it is new. An id decides if its message has the
        same words. Otherwise, of messages with equal text, one that was first sent or said after the same messages is
        preferred, then one that is not in this prompt already, then the latest."""
        wanted = self._candidates(quoted, reader, before)
        return next((known for known in wanted if self._is(quoted, known, reader, before)), None)

    def _candidates(self, quoted: FramedMessage, reader: Reader, before: PromptPosition) -> Iterator[QuotableMessage]:
        """The messages that may be meant, likeliest first."""
        shelves = self._shelves(reader)
        yield from (shelf.ids[quoted.id] for shelf in shelves if quoted.id in shelf.ids)
        place = quoted.text, before.key
        yield from self._latest(shelf.behind.get(place, ()) for shelf in shelves)
        yield from (known for known in self._with_text(quoted.text, reader) if known.id not in before.ids)
        yield from self._with_text(quoted.text, reader)

    def _with_text(self, text: str, reader: Reader) -> Iterator[QuotableMessage]:
        return self._latest(shelf.texts.get(text, ()) for shelf in self._shelves(reader))

    def _latest(self, found: Iterable[Sequence[QuotableMessage]]) -> Iterator[QuotableMessage]:
        """The latest messages of several lists, latest first."""
        lists = (reversed(known[-MOST:]) for known in found)
        return islice(merge(*lists, key=self._places.__getitem__, reverse=True), MOST)

    def _is(self, quoted: FramedMessage, known: QuotableMessage, reader: Reader, before: PromptPosition) -> bool:
        return _fits(quoted, known, reader) and self._heard(known, reader, before) and _same_words(quoted, known)

    @staticmethod
    def _heard(known: QuotableMessage, reader: Reader, before: PromptPosition) -> bool:
        """Whether a message for the reader belongs to this conversation. A reader known only by a hash gets, of
        messages that are not for everyone, only those after the same messages, because another conversation may have
        the same hash."""
        return reader.proven or known.audience.members is None or known.before == before.key

    # -- messages that contain others --------------------------------------------------------------------

    def restyled(self, quoted: FramedMessage, reader: Reader) -> QuotableMessage | None:
        """The answer that a new message repeats with other whitespace at its ends, its author's name before it, or as
        the same JSON in another form."""
        if quoted.role not in ("user", "assistant") or not _is_text(quoted):
            return None
        bare, text = _bare(quoted.text), quoted.text.lstrip()
        named = NAMED.match(text[:FAR])
        for known in self._repeated(bare, reader):
            return known
        if named is not None:
            for known in self._repeated(_bare(text[named.end() :]), reader):
                if named["name"].strip().casefold() in {(known.author or "").casefold(), (known.name or "").casefold()}:
                    return known
        return None

    def _repeated(self, bare: str, reader: Reader) -> Iterator[QuotableMessage]:
        found = self._latest(shelf.bare.get(bare, ()) for shelf in self._shelves(reader)) if bare else ()
        return (known for known in found if reader.proven or known.audience.members is None)

    def inside(self, quoted: FramedMessage, ids: Sequence[int], reader: Reader) -> list[QuotedAnswer]:
        """The answers contained in a new message whose content has these ids: in order, without overlaps, and the
        longer one if two begin at the same place."""
        if quoted.role not in ("system", "user", "assistant") or not _is_text(quoted):
            return []
        shelves = self._shelves(reader)
        found = list[QuotedAnswer]()
        at = 0
        looks = WORK * len(ids)
        while at + LEAST <= len(ids) and looks > 0:
            anchor, best = tuple(ids[at : at + ANCHOR]), QuotedAnswer(NOBODY, at, at)
            for known, answer in chain(*(shelf.anchors.get(anchor, ())[-MOST:] for shelf in shelves)):
                if reader.proven or known.audience.members is None:
                    looks -= len(answer)
                    best = max(best, QuotedAnswer(known, at, _same_until(answer, ids, at)), key=_length)
            if best.stop > at:
                found.append(best)
            at = max(at + 1, best.stop)
        return found

    def part(self, role: str, name: str | None, ids: tuple[int, ...], reader: Reader) -> QuotableMessage | None:
        """A part of a message that was encoded before and that the reader may read."""
        found = (shelf.parts.get((role, name, ids)) for shelf in self._shelves(reader))
        return next((known for known in found if known is not None), None)

    # -- reasons for new messages ------------------------------------------------------------------------

    def why(self, quoted: FramedMessage, reader: Reader, before: PromptPosition) -> Miss:
        """Why a message is new. Depends only on what the reader may read."""
        if any(quoted.id in shelf.ids for shelf in self._shelves(reader)):
            return "changed"
        same = [known for known in self._with_text(quoted.text, reader) if _same_words(quoted, known)]
        if any(_fits(quoted, known, reader) for known in same):
            return "other_prompt"
        if same:
            return "other_role"
        return "not_said_here" if quoted.role == "assistant" else "first_sent"


def _bare(text: str) -> str:
    """A key that is equal for texts that differ only in whitespace at their ends or, as JSON, in form."""
    bare = text.strip()
    if bare[:1] not in ("{", "["):
        return bare
    try:  # keeps everything, duplicate keys included
        return f"JSON {json.loads(bare, object_pairs_hook=tuple, parse_float=str)!r}"
    except (ValueError, RecursionError):
        return bare


def strings(text: str) -> Iterator[str]:
    """The strings within a JSON document, which frameworks extract and pass on. None if it is not JSON."""
    if text.strip()[:1] not in ("{", "["):
        return
    try:
        left = [json.loads(text)]
    except (ValueError, RecursionError):
        return
    while left:
        match left.pop():
            case str(found):
                yield found
            case list(found):
                left += reversed(found)
            case dict(found):
                left += reversed(found.values())


def _is_whole(known: QuotableMessage) -> bool:
    return known.role in get_args(Role)


def _is_text(quoted: FramedMessage) -> bool:
    """Whether it consists of text only, without function calls, function results, or a list of functions."""
    return quoted.tokens is None and not quoted.calls


def _length(inside: QuotedAnswer) -> int:
    return inside.stop - inside.start


def _same_until(answer: Sequence[int], ids: Sequence[int], at: int) -> int:
    """Return where an answer that begins at `at` in `ids` ends; its last few tokens may differ. `at`: it is not there,
    or too little of it."""
    pairs = zip(answer, ids[at : at + len(answer)], strict=False)
    same = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(answer), len(ids) - at))
    return at + same if same >= max(LEAST, len(answer) - EDGE) else at


def _fits(quoted: FramedMessage, known: QuotableMessage, reader: Reader) -> bool:
    """Whether a message of this role may mean the known one. Answers come back in either role, because some clients
    give a model the words of other agents as a user's."""
    match quoted.role:
        case "system" | "tool":
            return known.role == quoted.role and known.author == reader.agent
        case "user":
            return known.said or (known.role == "user" and known.name == quoted.name)
    return known.said or known.role == "assistant"


def _same_words(quoted: FramedMessage, known: QuotableMessage) -> bool:
    if quoted.calls or known.calls:
        return quoted.lead.strip() == known.lead.strip() and same_calls(quoted.calls, known.calls)
    return quoted.text == known.text


def reads_as_others(known: QuotableMessage, reader: Reader, before: bytes) -> bool:
    """Whether the reader gets its own message in the form that all others get: it repeats what it said, for all who may
    read that; or it cannot be told from another conversation with the same hash, and the message was not said over this
    prompt."""
    if known.author != reader.agent:
        return False
    if not known.said:
        return known.audience != reader.own
    return not reader.proven and known.before != before

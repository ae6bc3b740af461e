"""Which message of a society a client means when it quotes one.

A client sends its whole prompt anew with each request, in its own words and roles. A message of it is one that is
known where its id says so, or its text, and the agent that sends it may read that one; otherwise it is new. Of what is
new, `restyled` and `inside` find the answers that it repeats with other blanks or a name before them, or among other
words.

Each agent looks on shelves of its own: one of what everyone may read, and one of what it may read besides. What is kept
from it is on neither, so a text that equals somebody else's private message is looked for, and missed, just as one that
nobody has. Does not know: encodings, where messages are kept.
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
"""Of so many messages with one text that a reader may read, at most, the right one is looked for: the latest."""
ANCHOR = 4
"""By so many token ids one after the other the place is found where an answer stands among other words."""
WORK = 64
"""For each token of a text, so many tokens of answers are compared with it at most."""
LEAST = 8
"""So many tokens of an answer have to stand there: fewer are not worth an encoding of their own."""
EDGE = 2
"""So many tokens at either end of an answer may be others: a blank, or a letter that grew together with what is around
it."""
NAMED = re.compile(r"[*_\[(<\"']*(?P<name>[^\n:*_\[\]()<>\"']{1,128}?)[*_\])>\"']*(?: said| says)?:[*_]*\s+")
"""A name before what its bearer said, as frameworks write it: `ann: `, `**ann**: `, `[ann]: `, `ann said: `."""
FAR = 512
"""So many letters at the beginning of a message may be a name and what is around it."""
Miss = Literal["first_sent", "not_said_here", "changed", "other_role", "other_prompt", "restyled", "inside"]
"""Why a message of a prompt is new, as far as its sender may know:

- first_sent: a system, user or tool message with words that this agent has not met.
- not_said_here: an assistant message with words that no model said here, in this agent's hearing.
- changed: it has the id of an answer, and other words.
- other_role: its words are known, from a message of another role or by another name, for which it cannot stand.
- other_prompt: its words are known, over another prompt; it may be another conversation, for the agent has no name.
- restyled: it is an answer with other blanks at its ends or a name before it, and this is the first time.
- inside: it is an answer among other words, and this is the first time.
"""
Owner = tuple[str | None, Audience]
"""The author of a message that a prompt brings (None: the society's), and who may read it."""


class PromptPosition:
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
class QuotableMessage:
    """A message of a society as it can be quoted.

    `id` is its own in the society, `public_id` the one that answers carry. `before` is the key of the messages that
    stood before it in the prompt that brought it, or over which it was said (see `PromptPosition`). `said`: a model
    said it, or an agent declared so. `calls` and `lead` as in `FramedMessage`. `tokens`: the ids of a part of a
    message. `quotable`: those of the texts by which an answer is found among other words.
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
        """Whether it is an answer in words, which a client may send with other blanks."""
        return self.said and not self.calls


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


class QuotedAnswer(NamedTuple):
    """An answer that stands in a text, at the token ids from `start` to `stop`."""

    known: QuotableMessage
    start: int
    stop: int


NOBODY = QuotableMessage(
    id="", public_id="", role="assistant", text="", name=None, author=None, audience=Audience(frozenset()), before=b""
)


class ReadableShelf:
    """Messages with one set of readers in common, as they are looked for."""

    def __init__(self) -> None:
        self.ids: dict[str, QuotableMessage] = {}
        self.texts: dict[str, list[QuotableMessage]] = {}
        self.behind: dict[tuple[str, bytes], list[QuotableMessage]] = {}
        self.bare: dict[str, list[QuotableMessage]] = {}
        self.anchors: dict[tuple[int, ...], list[tuple[QuotableMessage, tuple[int, ...]]]] = {}
        self.parts: dict[tuple[str, str | None, tuple[int, ...]], QuotableMessage] = {}

    def add(self, known: QuotableMessage) -> None:
        """One more message, or part of one."""
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
        """One more message."""
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
        """What everyone may read, and what this agent may read besides. The latter is made when it is first asked for:
        an audience may name agents by the hundred that never come."""
        if reader.agent not in self._own:
            shelf = self._own[reader.agent] = ReadableShelf()
            for known in self._narrow:
                if known.audience.includes(reader.agent):
                    shelf.add(known)
        return self._everyone, self._own[reader.agent]

    # -- whole messages ----------------------------------------------------------------------------------

    def find(self, quoted: FramedMessage, reader: Reader, before: PromptPosition) -> QuotableMessage | None:
        """The message that is quoted after those of `before`; None: it is new. An id decides where the words are those
        of its message; else, of equal texts, what was first sent or said after the same messages, then what does not
        stand in this prompt already, then the latest."""
        wanted = self._candidates(quoted, reader, before)
        return next((known for known in wanted if self._is(quoted, known, reader, before)), None)

    def _candidates(self, quoted: FramedMessage, reader: Reader, before: PromptPosition) -> Iterator[QuotableMessage]:
        """What may be meant, the likeliest first."""
        shelves = self._shelves(reader)
        yield from (shelf.ids[quoted.id] for shelf in shelves if quoted.id in shelf.ids)
        place = quoted.text, before.key
        yield from self._latest(shelf.behind.get(place, ()) for shelf in shelves)
        yield from (known for known in self._with_text(quoted.text, reader) if known.id not in before.ids)
        yield from self._with_text(quoted.text, reader)

    def _with_text(self, text: str, reader: Reader) -> Iterator[QuotableMessage]:
        return self._latest(shelf.texts.get(text, ()) for shelf in self._shelves(reader))

    def _latest(self, found: Iterable[Sequence[QuotableMessage]]) -> Iterator[QuotableMessage]:
        """The latest messages of several lists, the last first."""
        lists = (reversed(known[-MOST:]) for known in found)
        return islice(merge(*lists, key=self._places.__getitem__, reverse=True), MOST)

    def _is(self, quoted: FramedMessage, known: QuotableMessage, reader: Reader, before: PromptPosition) -> bool:
        return _fits(quoted, known, reader) and self._heard(known, reader, before) and _same_words(quoted, known)

    @staticmethod
    def _heard(known: QuotableMessage, reader: Reader, before: PromptPosition) -> bool:
        """Whether a message that is for the reader was for this conversation of it. Whoever is known by a hash alone
        has, of what is not everyone's, only what stands behind the same messages: another conversation may have the
        same hash."""
        return reader.proven or known.audience.members is None or known.before == before.key

    # -- messages with something of another in them ------------------------------------------------------

    def restyled(self, quoted: FramedMessage, reader: Reader) -> QuotableMessage | None:
        """The answer that a new message repeats, with other blanks at its ends, its author's name before it, or as the
        same JSON in another form."""
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
        """The answers that stand in a new message, whose content has these ids: in order, none over another, of two at
        one place the longer one."""
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
        """A part of a message that was encoded before, and that the reader may read."""
        found = (shelf.parts.get((role, name, ids)) for shelf in self._shelves(reader))
        return next((known for known in found if known is not None), None)

    # -- what is new, and why ----------------------------------------------------------------------------

    def why(self, quoted: FramedMessage, reader: Reader, before: PromptPosition) -> Miss:
        """Why a message is new. It goes by what the reader may read alone."""
        if any(quoted.id in shelf.ids for shelf in self._shelves(reader)):
            return "changed"
        same = [known for known in self._with_text(quoted.text, reader) if _same_words(quoted, known)]
        if any(_fits(quoted, known, reader) for known in same):
            return "other_prompt"
        if same:
            return "other_role"
        return "not_said_here" if quoted.role == "assistant" else "first_sent"


def _bare(text: str) -> str:
    """What two texts have in common that differ in blanks at their ends, or, as JSON, in form."""
    bare = text.strip()
    if bare[:1] not in ("{", "["):
        return bare
    try:  # all of it, keys that come twice too
        return f"JSON {json.loads(bare, object_pairs_hook=tuple, parse_float=str)!r}"
    except (ValueError, RecursionError):
        return bare


def strings(text: str) -> Iterator[str]:
    """The strings within a JSON document, which frameworks take out of it and hand on; none where it is no JSON."""
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
    """Whether it has words alone, and no calls or results of functions, nor a list of these."""
    return quoted.tokens is None and not quoted.calls


def _length(inside: QuotedAnswer) -> int:
    return inside.stop - inside.start


def _same_until(answer: Sequence[int], ids: Sequence[int], at: int) -> int:
    """Up to where an answer stands in `ids` from there on, all but its last few; `at`: it does not, or too little of
    it."""
    pairs = zip(answer, ids[at : at + len(answer)], strict=False)
    same = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(answer), len(ids) - at))
    return at + same if same >= max(LEAST, len(answer) - EDGE) else at


def _fits(quoted: FramedMessage, known: QuotableMessage, reader: Reader) -> bool:
    """Whether a message of this role may mean it. What a model said comes back in either role, from clients that give
    the words of other agents to a model as a user's."""
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
    """Whether the reader has a message that it said itself as all others have it: it repeats what it said, for all who
    may read that; or it cannot be told from another conversation with the same hash, and this prompt is not the one
    over which it was said."""
    if known.author != reader.agent:
        return False
    if not known.said:
        return known.audience != reader.own
    return not reader.proven and known.before != before

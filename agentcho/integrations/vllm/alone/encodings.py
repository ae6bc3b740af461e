"""Keeps track of the encodings of messages: who may know of each, and which are dropped first. Lengths and names only.

Under `enforce` an encoding is reused only if every message that it was computed over comes before it in the prompt at
hand, so that nothing reaches an answer that its prompt does not contain. And it is reused only by agents that may read
it and all that it was computed over, so that a cache hit reveals nothing that is not meant for them. Under `audit`
violations of the first rule are only counted. Must not import vLLM or torch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Literal, NamedTuple

from agentcho.integrations.vllm.alone.request_params import Readers

Leakage = Literal["enforce", "audit"]
Scope = tuple[str, str]
"""The cache salt of a request, and its society."""
MOST_SAID = 4096
"""The number of answers whose readers a society remembers."""
MOST_SOCIETIES = 1024
"""The maximum number of societies; the least recently used one is forgotten first."""


def message_digest(ids: Sequence[int]) -> bytes:
    """A digest of token ids."""
    return blake2b(",".join(map(str, ids)).encode(), digest_size=16).digest()


def place_after(before: bytes, name: str) -> bytes:
    """The name of a place in a prompt, derived from the encodings before it, in order. The first place is `b""`."""
    return blake2b(name.encode(), key=before, digest_size=16).digest()


def common_readers(one: Readers, other: Readers) -> Readers:
    """The agents that may read both."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


@dataclass(frozen=True, eq=False)
class Encoding:
    """The keys and values of one message.

    Attributes:
        scope: Where it may be used.
        message: The digest of its ids.
        before: The place at which it was computed, see `place_after`.
        start: The position of its first token there.
        length: The number of its tokens.
        over: The messages that it was computed over.
        readers: The agents that may know of it.
        open: It is an answer without its end, which is usable only at the place where it was generated.
    """

    scope: Scope
    message: bytes
    before: bytes
    start: int
    length: int
    over: frozenset[bytes]
    readers: Readers
    open: bool = False

    @cached_property
    def name(self) -> str:
        """Its name for the scheduler and the worker."""
        readers = "society" if self.readers is None else repr(sorted(self.readers))
        told = (*self.scope, self.message.hex(), self.before.hex(), readers, self.open)
        return blake2b(repr(told).encode(), digest_size=16).hexdigest()


class ReadingPlace(NamedTuple):
    """A place in a prompt: the encodings before it, its position, the agent that reads, and the messages before it."""

    before: bytes
    start: int
    agent: str
    seen: frozenset[bytes]

    def has(self, encoding: Encoding) -> bool:
        """Whether an encoding was computed at exactly this place."""
        return encoding.before == self.before and encoding.start == self.start

    def may_know(self, encoding: Encoding) -> bool:
        """Whether the reading agent may know of an encoding."""
        return encoding.readers is None or self.agent in encoding.readers


@dataclass
class _Society:
    """The encodings of one society by message, its open ones by place, and the readers of its answers."""

    messages: defaultdict[bytes, list[Encoding]] = field(default_factory=lambda: defaultdict(list))
    open: defaultdict[bytes, list[Encoding]] = field(default_factory=lambda: defaultdict(list))
    said: dict[bytes, list[Readers]] = field(default_factory=dict)
    tokens: int = 0

    def shelf(self, encoding: Encoding) -> tuple[defaultdict[bytes, list[Encoding]], bytes]:
        """The index that holds an encoding, and its key there."""
        return (self.open, encoding.before) if encoding.open else (self.messages, encoding.message)


class Encodings:
    """All encodings of one server.

    Args:
        tokens: The maximum number of tokens.
        society_tokens: The maximum for one society.
        leakage: "enforce" or "audit".

    Attributes:
        tokens: The number of tokens held.
        dropped: The names of encodings dropped since this list was last emptied.
    """

    def __init__(self, tokens: int, society_tokens: int, leakage: Leakage = "enforce") -> None:
        self._most, self._most_of_society = tokens, society_tokens
        self.leakage = leakage
        self._used = dict[str, Encoding]()  # least recently used first
        self._holders = Counter[str]()
        self._societies = dict[Scope, _Society]()
        self.tokens = 0
        self.dropped = list[str]()

    def __len__(self) -> int:
        return len(self._used)

    def __contains__(self, name: str) -> bool:
        return name in self._used

    # -- lookup ------------------------------------------------------------------------------------------

    def find(self, scope: Scope, message: bytes, place: ReadingPlace, turns: bool) -> Encoding | None:
        """The encoding of a message for a place: the one computed there, or else, of the reusable ones, the one
        computed over the most messages. `turns`: keys can be moved to other positions."""

        def reusable(encoding: Encoding) -> bool:
            if not place.may_know(encoding) or not (turns or encoding.start == place.start):
                return False
            return self.leakage == "audit" or encoding.over <= place.seen

        found = [each for each in self._society(scope).messages.get(message, ()) if reusable(each)]
        return max(found, key=lambda each: (place.has(each), len(each.over)), default=None)

    def find_open(self, scope: Scope, ids: Sequence[int], place: ReadingPlace) -> Encoding | None:
        """The longest answer that was generated at this place and is a prefix of these ids."""
        found = [
            each
            for each in self._society(scope).open.get(place.before, ())
            if place.has(each)
            and place.may_know(each)
            and each.length < len(ids)
            and message_digest(ids[: each.length]) == each.message
        ]
        return max(found, key=lambda each: each.length, default=None)

    def said_to(self, scope: Scope, answer: bytes, agent: str) -> frozenset[str] | None:
        """The readers of an answer with this digest, as far as the agent is one of them. None: the whole society. The
        agent alone, if no such answer was said."""
        for readers in reversed(self._society(scope).said.get(answer, ())):
            if readers is None or agent in readers:
                return readers
        return frozenset({agent})

    # -- updates -----------------------------------------------------------------------------------------

    def say(self, scope: Scope, answer: bytes, readers: Readers) -> None:
        """Remember the readers of an answer."""
        said = self._society(scope).said
        known = said.pop(answer, [])
        said[answer] = [*(each for each in known if each != readers), readers][-8:]
        if len(said) > MOST_SAID:
            del said[next(iter(said))]

    def add(self, encoding: Encoding) -> bool:
        """Add an encoding; to make room, the least recently used ones are dropped. Returns False if it is there already
        or there is no room."""
        name, society = encoding.name, self._society(encoding.scope)
        if name in self._used:
            self.use([name])
            return False
        if encoding.length > min(self._most, self._most_of_society):
            return False
        of_society = society.tokens + encoding.length - self._most_of_society
        if not self._make_room(of_society, lambda each: each.scope == encoding.scope):
            return False
        if not self._make_room(self.tokens + encoding.length - self._most, lambda each: True):
            return False
        self._used[name] = encoding
        shelf, key = society.shelf(encoding)
        shelf[key].append(encoding)
        society.tokens += encoding.length
        self.tokens += encoding.length
        return True

    def use(self, names: Iterable[str]) -> None:
        """Mark these as used now."""
        for name in names:
            if name in self._used:
                self._used[name] = self._used.pop(name)

    def hold(self, names: Iterable[str]) -> None:
        """Keep the encodings that a request reads from being dropped while it runs."""
        self._holders.update(names)

    def let_go(self, names: Iterable[str]) -> None:
        """Release the encodings of a request that has ended."""
        for name in names:
            self._holders[name] -= 1
            if not self._holders[name]:
                del self._holders[name]

    def drop(self, name: str) -> None:
        """Drop an encoding."""
        encoding = self._used.pop(name, None)
        if encoding is None:
            return
        self.dropped.append(name)
        self.tokens -= encoding.length
        society = self._societies.get(encoding.scope)
        if society is None:
            return
        society.tokens -= encoding.length
        shelf, key = society.shelf(encoding)
        shelf[key].remove(encoding)
        if not shelf[key]:
            del shelf[key]

    def clear(self) -> None:
        """Drop all encodings."""
        for name in list(self._used):
            self.drop(name)
        self._societies.clear()

    def _make_room(self, tokens: int, among: Callable[[Encoding], bool]) -> bool:
        """Drop at least this many tokens. Returns False, and drops nothing, if too many are in use."""
        chosen = list[str]()
        unused = self._unused(among)
        while tokens > 0:
            encoding = next(unused, None)
            if encoding is None:
                return False
            chosen.append(encoding.name)
            tokens -= encoding.length
        for name in chosen:
            self.drop(name)
        return True

    def _unused(self, among: Callable[[Encoding], bool]) -> Iterator[Encoding]:
        return (each for name, each in self._used.items() if not self._holders[name] and among(each))

    def _society(self, scope: Scope) -> _Society:
        """A society, now the most recently used one."""
        known = self._societies.pop(scope, None)
        society = self._societies[scope] = _Society() if known is None else known
        while len(self._societies) > MOST_SOCIETIES:
            oldest = next(iter(self._societies))
            for name in [name for name, each in self._used.items() if each.scope == oldest]:
                self.drop(name)
            del self._societies[oldest]
        return society

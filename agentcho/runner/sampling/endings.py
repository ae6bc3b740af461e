"""Finds short endings of a JSON document of a grammar, searching byte by byte.

llguidance tells only whether a document may end in a state and which bytes may come next. So states are tried. First
straight ahead: the nearest mark that ends a string or a value, then the next, and so on; a string may end as the
schema's patterns suggest (`pattern_hints`), since after `foo|bar` all states allow all bytes. Then breadth-first over
whole endings: states after the same number of bytes that allow the same next bytes count as one; if that finds nothing
short enough, several of them are kept. One search tries at most `STEPS` states.

Independent of tokens and token budgets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from heapq import heappop, heappush
from typing import NamedTuple

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

END = 256
"""The end of a document in a vocabulary that has one token for each byte."""
PLAIN = bytes(byte for byte in range(0x20, 0x7F) if byte != ord("\\"))
"""Most endings need only these bytes."""
EVERY = bytes(range(256))
OPENING, ENDING = b"{[", b"}],"
"""Marks that begin an object or a list, and marks before which a value ends, outside of strings."""
GLANCE, RUN = 1024, 4096
"""The numbers of states that are tried straight ahead, at first and later."""
BROAD, APART, WHOLE = 1500, 500, 1000
"""The numbers of states that are tried breadth-first: over plain bytes, over these with `SEVERAL` alike, and over all
bytes."""
SEVERAL = 8
"""The number of states kept that are reached after the same number of bytes and allow the same next bytes, where one is
not enough."""
BROKEN, MIDDLE = 9, 64
"""Inside a character or an escape at most `MIDDLE` bytes may come next, and it ends within `BROKEN` bytes."""
DIGITS = 12
"""Numbers longer than this may be an artifact of merging states that allow the same next digits."""
STEPS = GLANCE + BROAD + APART + RUN + WHOLE
"""The most states that one search tries. A state takes 1 to 50 microseconds."""
OUTSIDE, INSIDE, ESCAPED = range(3)
"""Where in a document a path ends: outside of any string, inside one, or inside one after a backslash."""
_ENDINGS = [bytes([mark]) for mark in ENDING]
_FIRST = {OUTSIDE: b'}],:"1234567890ntf.-', INSIDE: b'"abcdefghijklmnopqrstuvwxyz1234567890', ESCAPED: b'n"'}
_ORDER = {
    place: bytes([*first, *(byte for byte in range(256) if byte not in first)]) for place, first in _FIRST.items()
}
"""The order in which bytes are tried."""


class _Octets:
    """A vocabulary of one token for each byte, in the form that llguidance expects."""

    eos_token_id, bos_token_id = END, None
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
    special_token_ids = (END,)

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


@cache
def byte_vocabulary() -> LLTokenizer:
    """The vocabulary of `_Octets`."""
    return LLTokenizer(TokenizerWrapper(_Octets()), END + 1, END, slices=[])


class SearchExhausted(Exception):
    """A search has tried as many states as it may."""


class LearnedStates(NamedTuple):
    """What was learned about states, which are identified by the bytes that they allow. `kinds`: of the bytes that a
    search may try, one for each distinct next state. `ways`: how a string or value ended, by state and by where the
    path ended."""

    kinds: dict[tuple[bytes, bytes], bytes]
    ways: dict[tuple[bytes, int], bytes]


class DocumentEndings:
    """Endings of documents of one `grammar`, using only bytes in `letters`. `hints` are possible endings of strings of
    the grammar, best first.

    What a search learns about the grammar's states decides what later ones find. So each document learns for itself:
    an ending must not tell what another document says.
    """

    def __init__(self, grammar: str, letters: bytes = EVERY, hints: Sequence[bytes] = ()) -> None:
        self._start, self._letters = LLMatcher(byte_vocabulary(), grammar), letters
        self._hints = tuple(hint + b'"' for hint in hints if not hint.translate(None, letters))
        self._learned = LearnedStates({}, {})

    def document(self) -> DocumentEnding:
        """An empty document."""
        learned = LearnedStates(dict(self._learned.kinds), dict(self._learned.ways))
        return DocumentEnding(self._start.deep_copy(), self._letters, learned, self._hints)

    def begin_with(self, document: DocumentEnding) -> None:
        """Let later documents begin with what an empty document has learned by now, which says nothing of any other."""
        self._learned = LearnedStates(dict(document.learned.kinds), dict(document.learned.ways))


class DocumentEnding:
    """Endings of one document as it grows. `steps`: the number of states tried for it so far. `learned`: what was
    learned from them."""

    def __init__(self, matcher: LLMatcher, letters: bytes, learned: LearnedStates, hints: Sequence[bytes] = ()) -> None:
        self._matcher, self._letters = matcher, letters
        self.learned, self._hints = learned, hints
        self._at, self._said = b"", bytearray()
        self._mask: bytes | None = None
        self._place, self._last = OUTSIDE, (b"", OUTSIDE)
        self.steps = self._bound = 0

    @property
    def broken(self) -> bool:
        """Whether the grammar has hit a limit of the compiler and can no longer be used."""
        return bool(self._matcher.is_error())

    def follow(self, said: bytes | bytearray) -> None:
        """Append these bytes to the document."""
        self._said += said

    def endings(self, behind: bytes = b"", thorough: bool = True) -> Iterator[bytes | None]:
        """Yield endings of the document after the bytes `behind`, until the caller finds one short enough. Each comes
        from a more thorough search than the one before; the most thorough ones run only if nothing was found or with
        `thorough`. A final None means that there is no ending at all."""
        for byte in self._said:
            self._matcher.consume_token(byte)
        self._mask, self._place = None, _place(self._said, self._place)
        self._last = b"", self._place
        self._said.clear()
        for search, most in self._searches():
            try:
                self._bound = self.steps + most
                found = search(behind)
            except SearchExhausted:
                continue
            finally:
                self._go(b"")
            if self.broken:
                return
            if found is not None:
                yield found[len(behind) :]
                if search == self._apart and not thorough:
                    return
            elif search == self._whole:
                yield None
                return

    def _searches(self) -> tuple[tuple[Callable[[bytes], bytes | None], int], ...]:
        return (
            (self._straight, GLANCE),
            (self._broad, BROAD),
            (self._apart, APART),
            (self._straight, RUN),
            (self._whole, WHOLE),
        )

    def _broad(self, behind: bytes) -> bytes | None:
        return self._breadth(behind, PLAIN)

    def _apart(self, behind: bytes) -> bytes | None:
        return self._breadth(behind, PLAIN, alike=SEVERAL)

    def _whole(self, behind: bytes) -> bytes | None:
        return self._breadth(behind, EVERY)

    def _straight(self, behind: bytes) -> bytes | None:
        """The ending that closes whatever can be closed, and otherwise continues as simply as possible. None if it
        leads into a state in which nothing can follow."""
        path: bytes | None = behind
        while path is not None and not self._go(path).is_accepting():
            path = self._near(path)
        return path

    def _near(self, path: bytes) -> bytes | None:
        """A path to the end of the string, or else of the value, in which a path ends."""
        where = self._next(path), self._within(path)
        way = self.learned.ways.get(where, b"")
        for known in [way[:-1] + bytes([mark]) for mark in ENDING] if way[-1:] in _ENDINGS else [way]:
            if known and self._matcher.validate_tokens([*known]) == len(known):
                self._step()
                return path + known
        found = (self._hinted(path) or self._text(path)) if where[1] != OUTSIDE else self._value(path)
        if found is not None:
            self.learned.ways[where] = found[len(path) :]
        return found

    def _hinted(self, path: bytes) -> bytes | None:
        """A path to the end of the string in which a path ends, by a hint: after the character or escape in which the
        path breaks off, if it does."""
        for _ in range(BROKEN if self._hints else 0):
            for hint in self._hints:
                self._step()
                if self._go(path).validate_tokens([*hint]) == len(hint):
                    return path + hint
            allowed = self._allowed(self._next(path), self._within(path))
            if not allowed or (self._within(path) == INSIDE and len(allowed) > MIDDLE):
                return None
            path += allowed[:1]
        return None

    def _text(self, path: bytes) -> bytes | None:
        return self._breadth(path, PLAIN, to=b'"')

    def _value(self, path: bytes) -> bytes | None:
        """A path to the end of a value, preferably one that opens no other object or list."""
        flat = PLAIN.translate(None, OPENING)
        found = self._breadth(path, flat, to=ENDING)
        if found is None:
            return self._breadth(path, PLAIN, to=ENDING + OPENING)
        if len(found) - len(path) > DIGITS and found[len(path) : -1].isdigit():
            return self._breadth(path, flat, alike=SEVERAL, to=ENDING)
        return found

    def _breadth(self, start: bytes, letters: bytes, alike: int = 1, to: bytes = b"") -> bytes | None:
        """The shortest ending that begins with `start`, over `letters` where one of them may follow, else over all
        bytes; or the shortest path from `start` to one of the marks `to`. Of the states after the same number of bytes
        that allow the same next bytes, `alike` are expanded. None if there is no path."""
        if self._go(start).is_accepting():
            return start
        known = Counter[tuple[int, bytes]]()
        number, left = 0, [(len(start), 0, start)]
        while left:
            _, _, path = heappop(left)
            for after in self._after(path, letters, learn=alike == 1):
                if self._go(after).is_accepting() or (to and self._is_mark(after, to)):
                    return after
                state, number = (len(after), self._next(after)), number + 1
                known[state] += 1
                if known[state] <= alike:
                    heappush(left, (len(after), number, after))
        return None

    def _is_mark(self, path: bytes, marks: bytes) -> bool:
        """Whether the last byte of a path is one of these marks, and not part of a string."""
        if path[-1] not in marks:
            return False
        place = self._within(path[:-1])
        return place == OUTSIDE or (place == INSIDE and path[-1:] == b'"')

    def _after(self, path: bytes, letters: bytes, learn: bool) -> Iterator[bytes]:
        """The continuations of a path, each counted as an attempt. With `learn`, of bytes that lead to the same set of
        next bytes only the first is tried, once this is known."""
        mask = self._next(path)
        known = self.learned.kinds.get((mask, letters)) if learn else None
        allowed = self._allowed(mask, self._within(path)) if known is None else known
        found = dict[bytes, int]()
        if path[-1:] == b'"' and (hinted := self._hinted(path)) is not None:
            yield hinted
        for byte in bytes(byte for byte in allowed if byte in letters) or allowed:
            self._step()
            after = path + bytes([byte])
            yield after
            if known is None:
                found.setdefault(self._next(after), byte)
        if learn and known is None:
            self.learned.kinds[mask, letters] = bytes(found.values())

    def _within(self, path: bytes) -> int:
        """Where in the document a path ends."""
        before, place = self._last
        if not path.startswith(before):
            before, place = b"", self._place
        self._last = path, _place(path[len(before) :], place)
        return self._last[1]

    def _step(self) -> None:
        if self.steps == self._bound:
            raise SearchExhausted
        self.steps += 1

    def _allowed(self, mask: bytes, place: int) -> bytes:
        """The bytes of a mask that `letters` has, in the order in which they are tried."""
        return bytes(b for b in _ORDER[place] if mask[b >> 3] >> (b & 7) & 1 and b in self._letters)

    def _next(self, path: bytes) -> bytes:
        """The mask of the bytes that may follow a path."""
        matcher = self._go(path)
        if self._mask is None:
            self._mask = matcher.compute_bitmask()
        return self._mask

    def _go(self, path: bytes) -> LLMatcher:
        """The matcher after a path from the end of the document."""
        if path == self._at:
            return self._matcher
        same = self._common(path)
        if same < len(self._at):
            self._matcher.rollback(len(self._at) - same)
        for byte in path[same:]:
            self._matcher.consume_token(byte)
        self._at, self._mask = path, None
        return self._matcher

    def _common(self, path: bytes) -> int:
        """The number of bytes that a path has in common with the previous one."""
        if path.startswith(self._at):
            return len(self._at)
        if path.startswith(self._at[:-1]):  # the most frequent case: only the last byte differs
            return len(self._at) - 1
        low, high = 0, min(len(path), len(self._at))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if path[:middle] == self._at[:middle] else (low, middle - 1)
        return low


def _place(path: bytes | bytearray, place: int) -> int:
    """Where a path ends that begins at `place`."""
    for byte in path:
        if place == ESCAPED:
            place = INSIDE
        elif byte == ord('"'):
            place = INSIDE if place == OUTSIDE else OUTSIDE
        elif place == INSIDE and byte == ord("\\"):
            place = ESCAPED
    return place

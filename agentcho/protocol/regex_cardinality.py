"""Counts exactly how many texts of bounded length match regular expressions, and tests whether a text matches.

The expressions are those of JSON schemas, and match anywhere in a text unless anchored by ^ and $; `\\d`, `\\w` and
`\\s` are ASCII, as in the grammars used for sampling. Counting and matching use the same automaton, so they agree. Also
finds a shortest text that matches an expression. Independent of schemas and tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

LETTERS = ((0, 0xD7FF), (0xE000, 0x10FFFF))
"""All characters of a text: Unicode without surrogates."""
ALPHABET = sum(last - first + 1 for first, last in LETTERS)
MOST_STATES = 2000
MOST_PLACES = 8000
LONGEST = 1 << 12
"""Maximum number of characters of counted texts."""
_SETS = {
    "d": (("0", "9"),),
    "w": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "s": (("\t", "\r"), (" ", " ")),
}
_SIGNS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}


class Uncountable(ValueError):
    """The number of values is unknown: it is infinite, or the values cannot be counted here. The message quotes
    nothing of the input."""


Span = tuple[int, int]
Letters = tuple[Span, ...]
"""Inclusive ranges of code points, in ascending order."""
State = frozenset[int]


class RegexAutomaton:
    """A nondeterministic automaton of an expression. `edges[place]` are (letters, next place), and `free[place]` the
    places that are reached without a letter."""

    def __init__(self, pattern: str) -> None:
        self.edges: list[list[tuple[Letters, int]]] = []
        self.free: list[list[int]] = []
        begin = self.place()
        self.end = _Parser(pattern).whole()(self, begin)
        self.start = self.closure({begin})

    def place(self, *before: int) -> int:
        """Add a place that is reached from the places `before` without a letter. Returns it."""
        if len(self.edges) >= MOST_PLACES:
            raise Uncountable("a pattern is too long to be counted")
        self.edges.append([])
        self.free.append([])
        for each in before:
            self.free[each].append(len(self.edges) - 1)
        return len(self.edges) - 1

    def closure(self, places: Iterable[int]) -> State:
        """All places that are reached from these without a letter."""
        found, left = set(places), list(places)
        while left:
            fresh = [each for each in self.free[left.pop()] if each not in found]
            found.update(fresh)
            left += fresh
        return frozenset(found)

    def step(self, state: State, letter: int) -> State:
        """The state after a letter."""
        edges = (edge for place in state for edge in self.edges[place])
        return self.closure({to for letters, to in edges if _has(letters, letter)})

    def shortest(self) -> str | None:
        """One of the shortest texts that match, of plain letters where these match. None if no text matches."""
        known = dict.fromkeys(self.start, "")
        left = deque(self.start)
        while left:
            place = left.popleft()
            if place == self.end:
                return known[place]
            for letters, to in self.edges[place]:
                if letters:
                    fresh = self.closure({to}) - known.keys()
                    known |= dict.fromkeys(fresh, known[place] + _plain(letters))
                    left.extend(fresh)
        return None

    def cuts(self) -> Iterator[int]:
        """The first code points of the ranges of all edges, and those after their ends."""
        for edges in self.edges:
            for letters, _ in edges:
                for first, last in letters:
                    yield from (first, last + 1)


Build = Callable[[RegexAutomaton, int], int]
"""Adds a part of an expression to an automaton, starting at a place. Returns the place where it ends."""


def _letter(letters: Letters) -> Build:
    def build(into: RegexAutomaton, begin: int) -> int:
        end = into.place()
        into.edges[begin].append((letters, end))
        return end

    return build


def _anything(into: RegexAutomaton, begin: int) -> int:
    loop = into.place(begin)
    into.edges[loop].append((LETTERS, loop))
    return loop


def _row(parts: Sequence[Build]) -> Build:
    def build(into: RegexAutomaton, begin: int) -> int:
        here = into.place(begin)
        for part in parts:
            here = part(into, here)
        return here

    return build


def _any_of(ways: Sequence[Build]) -> Build:
    return lambda into, begin: into.place(*(way(into, into.place(begin)) for way in ways))


def _times(part: Build, least: int, most: int | None) -> Build:
    def build(into: RegexAutomaton, begin: int) -> int:
        here = _row([part] * least)(into, begin)
        if most is None:
            loop = into.place(here)
            into.free[part(into, loop)].append(loop)
            return into.place(loop)
        ends = [here]
        for _ in range(most - least):
            ends.append(part(into, into.place(ends[-1])))
        return into.place(*ends)

    return build


class _Parser:
    """Parses one expression by recursive descent."""

    def __init__(self, pattern: str) -> None:
        self._text, self._at = pattern, 0

    def whole(self) -> Build:
        """Alternatives, each of which may be anchored to the beginning and to the end of the text."""
        ways = [self._bound()]
        while self._took("|"):
            ways.append(self._bound())
        if self._at < len(self._text):
            raise self._unknown()
        return _any_of(ways)

    def _bound(self) -> Build:
        before = [] if self._took("^") else [_anything]
        inside = self._sequence()
        return _row([*before, inside, *([] if self._took("$") else [_anything])])

    def _sequence(self) -> Build:
        """Consecutive parts."""
        parts: list[Build] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)$":
            parts.append(self._repeated())
        return _row(parts)

    def _repeated(self) -> Build:
        """One atom with its quantifier."""
        atom, sign = self._atom(), self._next()
        if sign not in ("*", "+", "?", "{"):
            return atom
        self._at += 1
        known: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        times = self._counted() if sign == "{" else known[sign]
        if self._next() in ("?", "+", "*", "{"):
            raise self._unknown()
        return _times(atom, *times)

    def _counted(self) -> tuple[int, int | None]:
        """The numbers in braces, after the opening brace was read. None for no maximum."""
        inside, brace, _ = self._text[self._at :].partition("}")
        least, comma, most = inside.partition(",")
        numbers = [least, *([most] if most else [])]
        if not brace or not all(each.isdecimal() and each.isascii() and len(each) < 5 for each in numbers):
            raise self._unknown()
        self._at += len(inside) + 1
        low, high = int(least), int(most) if most else None if comma else int(least)
        if high is not None and high < low:
            raise self._unknown()
        return low, high

    def _atom(self) -> Build:
        """A letter, a set of letters, or a group."""
        sign = self._next()
        if sign in "*+?{^":
            raise self._unknown()
        self._at += 1
        if sign == "(":
            return self._group()
        if sign == "[":
            return _letter(self._set())
        if sign == ".":
            return _letter(_but((ord("\n"), ord("\n"))))
        return _letter(self._escaped() if sign == "\\" else ((ord(sign), ord(sign)),))

    def _group(self) -> Build:
        if self._took("?") and not self._took(":"):
            raise self._unknown()
        ways = [self._sequence()]
        while self._took("|"):
            ways.append(self._sequence())
        if not self._took(")"):
            raise self._unknown()
        return _any_of(ways)

    def _escaped(self) -> Letters:
        """The letters of an escape, after its backslash was read."""
        sign = self._next()
        self._at += 1
        if sign and sign in "dwsDWS":
            letters = tuple((ord(first), ord(last)) for first, last in _SETS[sign.lower()])
            return _but(*letters) if sign.isupper() else letters
        if not sign or (sign.isalnum() and sign not in _SIGNS):
            raise self._unknown()
        letter = ord(_SIGNS.get(sign, sign))
        return ((letter, letter),)

    def _set(self) -> Letters:
        """The letters in brackets, after the opening bracket was read."""
        negated, found = self._took("^"), list[Span]()
        if self._next() == "]":
            raise self._unknown()
        while not self._took("]"):
            first = self._member()
            if self._next() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                first = self._range(first, self._member())
            found += first
        return _but(*found) if negated else _merged(found)

    def _range(self, first: Letters, last: Letters) -> Letters:
        """The range from one letter to another."""
        (low, one), (other, high) = first[0], last[-1]
        if low != one or other != high or low > high or len(first) + len(last) > 2:
            raise self._unknown()
        return ((low, high),)

    def _member(self) -> Letters:
        sign = self._next()
        if not sign or sign == "[" or self._text[self._at : self._at + 2] in ("&&", "--", "~~"):
            raise self._unknown()
        self._at += 1
        return self._escaped() if sign == "\\" else ((ord(sign), ord(sign)),)

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _took(self, sign: str) -> bool:
        found = self._text.startswith(sign, self._at)
        self._at += found
        return found

    def _unknown(self) -> Uncountable:
        return Uncountable(f"a pattern has something at its letter {self._at + 1} that cannot be counted")


@dataclass(frozen=True)
class MatchingTexts:
    """Texts that match all `patterns`, of at least `least` and at most `most` characters (None: unlimited)."""

    patterns: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None

    def both(self, other: MatchingTexts) -> MatchingTexts:
        """The texts that are in both."""
        most = min((each for each in (self.most, other.most) if each is not None), default=None)
        patterns = tuple(dict.fromkeys((*self.patterns, *other.patterns)))
        return MatchingTexts(patterns, max(self.least, other.least), most)

    def contains(self, text: str) -> bool:
        """Whether a text is one of them."""
        if not self.least <= len(text) or (self.most is not None and len(text) > self.most):
            return False
        return all(_matches(RegexAutomaton(pattern), text) for pattern in self.patterns) and not _surrogate(text)

    def count(self) -> int:
        """The number of texts. Raises `Uncountable` if it is infinite, or the texts are too long."""
        if self.most is not None and self.most < self.least:
            return 0
        if not self.patterns and self.most is not None and self.most <= LONGEST:
            return sum(ALPHABET**length for length in range(self.least, self.most + 1))
        return _Counter([RegexAutomaton(pattern) for pattern in self.patterns]).count(self.least, self.most)


States = tuple[State, ...]


class _Counter:
    """Counts the texts that several automata accept. The tuple of their states is one state of a deterministic
    automaton."""

    def __init__(self, automata: list[RegexAutomaton]) -> None:
        self._automata = automata
        cuts = {0, 0xD800, 0xE000, 0x110000, *(cut for each in automata for cut in each.cuts())}
        ordered = sorted(cuts)
        pairs = pairwise(ordered)
        self._atoms = [(first, after - first) for first, after in pairs if not 0xD800 <= first < 0xE000]
        self._ways: dict[States, dict[States, int]] = {}
        self._explore(tuple(each.start for each in automata))

    def count(self, least: int, most: int | None) -> int:
        """The number of texts with `least` to `most` characters."""
        useful = self._useful()
        now = {state: 1 for state in [tuple(each.start for each in self._automata)] if state in useful}
        total, length = 0, 0
        while now and (most is None or length <= most):
            if most is None and length > len(useful):
                raise Uncountable("unlimited strings match a pattern; give a maximum length")
            if length > LONGEST:
                raise Uncountable(f"strings of more than {LONGEST} characters are not counted")
            total += sum(ways for state, ways in now.items() if length >= least and self._accepts(state))
            now = self._after(now, useful)
            length += 1
        return total

    def _after(self, now: dict[States, int], useful: set[States]) -> dict[States, int]:
        after: dict[States, int] = {}
        for state, ways in now.items():
            for to, letters in self._ways[state].items():
                if to in useful:
                    after[to] = after.get(to, 0) + ways * letters
        return after

    def _explore(self, start: States) -> None:
        left = [start]
        while left:
            state = left.pop()
            if state in self._ways:
                continue
            if len(self._ways) >= MOST_STATES:
                raise Uncountable("the patterns together are too complex to be counted")
            ways: dict[States, int] = {}
            self._ways[state] = ways
            for letter, weight in self._atoms:
                to = tuple(each.step(part, letter) for each, part in zip(self._automata, state, strict=True))
                ways[to] = ways.get(to, 0) + weight
            left += ways

    def _useful(self) -> set[States]:
        """The states from which an accepting state can be reached."""
        before: dict[States, list[States]] = {}
        for state, ways in self._ways.items():
            for to in ways:
                before.setdefault(to, []).append(state)
        found = {state for state in self._ways if self._accepts(state)}
        left = list(found)
        while left:
            fresh = [each for each in before.get(left.pop(), ()) if each not in found]
            found.update(fresh)
            left += fresh
        return found

    def _accepts(self, state: States) -> bool:
        return all(each.end in part for each, part in zip(self._automata, state, strict=True))


def _matches(automaton: RegexAutomaton, text: str) -> bool:
    state = automaton.start
    for letter in text:
        state = automaton.step(state, ord(letter))
    return automaton.end in state


def _surrogate(text: str) -> bool:
    """Whether a text has a surrogate, which UTF-8 cannot encode."""
    return any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)


def _has(letters: Letters, letter: int) -> bool:
    place = bisect_right(letters, (letter, 0x110000)) - 1
    return place >= 0 and letters[place][0] <= letter <= letters[place][1]


def _plain(letters: Letters) -> str:
    """One of these letters, a plain one if possible."""
    return next((each for each in "a0A " if _has(letters, ord(each))), chr(letters[0][0]))


def _merged(spans: Iterable[Span]) -> Letters:
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)


def _but(*spans: Span) -> Letters:
    """All letters except these."""
    left, first = list[Span](), 0
    for low, high in (*_merged([*spans, (0xD800, 0xDFFF)]), (0x110000, 0)):
        if first < low:
            left.append((first, low - 1))
        first = high + 1
    return tuple(left)

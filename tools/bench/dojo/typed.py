"""Defines what can be told about untrusted results: a sequence of choices, each from a fixed set of options.

The options are determined by code before anything is read: which tool, of those that the user's request asks for; for
each text up to twelve pieces, each a run of the request's own words or up to sixteen figures; for each number its
figures; yes or no; one of an enum; how many. Nothing else of a result can be said. Independent of games and of
AgentDojo.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, NamedTuple

FIGURES, GROUP, LONGEST, PIECES, MANY = "0123456789.:-/", 3, 16, 12, 8
END, SOME, GIVEN, LEFT_OUT, NO_MORE = "end", "figures", "given", "left out", "nothing more"
_WORD = re.compile(r"\w+|[^\w\s]")
_SOME = re.compile(rf"[0-9][{re.escape(FIGURES)}]*")
_GROUPS = tuple("".join(each) or "none" for size in range(GROUP + 1) for each in product(FIGURES, repeat=size))


class Choice(NamedTuple):
    """Which of `options` is said. All options are known in advance."""

    options: tuple[str, ...]
    said: str


class Unsayable(Exception):
    """No value close to the wanted one can be told this way."""


class Told(NamedTuple):
    """The choices that tell a value, and the value that they tell: the wanted one, or one close to it."""

    choices: tuple[Choice, ...]
    value: Any


class _Run(NamedTuple):
    """The words from `first` to `last` of a request, whose text is `text`."""

    first: int
    last: int
    text: str


class Grammar:
    """What can be told for one request."""

    def __init__(self, request: str) -> None:
        self._request = request
        self._words = [(match.start(), match.end()) for match in _WORD.finditer(request)]
        names = [request[start:end] for start, end in self._words]
        self._from = tuple(f"from word {place} {name}" for place, name in enumerate(names))
        self._to = tuple(f"to word {place} {name}" for place, name in enumerate(names))

    def call(self, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Told:
        """The arguments of a call, by the schema of its tool. `Unsayable`: one of them cannot be told at all."""
        choices, said = list[Choice](), dict[str, Any]()
        for name, kind in schema.get("properties", {}).items():
            given = arguments.get(name) is not None
            if name not in schema.get("required", ()):
                choices.append(Choice((GIVEN, LEFT_OUT), GIVEN if given else LEFT_OUT))
            if given:
                told = self._value(_kind(kind, schema, arguments[name]), arguments[name])
                choices += told.choices
                said[name] = told.value
        return Told(tuple(choices), said)

    def text(self, value: str) -> Told:
        """A text, piece by piece: the part of it that can be said, with a space between pieces."""
        choices, said, place = list[Choice](), list[str](), 0
        while place < len(value) and len(said) < PIECES:
            run, figures = self._run(value, place), _figures(value, place)
            if figures and (run is None or len(figures) > len(run.text)):
                choices += [self._piece(SOME), *_spelled(figures)]
                said.append(figures)
            elif run is not None:
                to = self._to[run.first :]
                choices += [self._piece(self._from[run.first]), Choice(to, self._to[run.last])]
                said.append(run.text)
            place += len(said[-1]) if figures or run else _skipped(value, place)
            place += len(value[place:]) - len(value[place:].lstrip())
        return Told((*choices, self._piece(END)) if len(said) < PIECES else tuple(choices), " ".join(said))

    def _piece(self, said: str) -> Choice:
        return Choice((END, SOME, *self._from), said)

    def _value(self, kind: Mapping[str, Any], value: Any) -> Told:
        if "enum" in kind:
            options = tuple(map(str, kind["enum"]))
            if value not in kind["enum"]:
                raise Unsayable(value)
            return Told((Choice(options, str(value)),) if len(options) > 1 else (), value)
        match value:
            case bool():
                return Told((Choice(("no", "yes"), "yes" if value else "no"),), value)
            case int() | float():
                if len(figures := str(value)) > LONGEST or set(figures) - set(FIGURES):
                    raise Unsayable(value)
                return Told(_spelled(figures), value)
            case str():
                return self.text(value)
            case list() if len(value) <= MANY:
                told = [self._value(kind.get("items", {}), each) for each in value]
                many = Choice(tuple(f"{count} of them" for count in range(MANY + 1)), f"{len(value)} of them")
                return Told(
                    (many, *(choice for each in told for choice in each.choices)), [each.value for each in told]
                )
        raise Unsayable(value)

    def _run(self, value: str, place: int) -> _Run | None:
        """The longest run of the request's words that occurs in a value at a position, and ends at the end of a word of
        the value."""
        ends = {match.end() for match in _WORD.finditer(value)}
        found: _Run | None = None
        for first, (start, _) in enumerate(self._words):
            for last in range(first, len(self._words)):
                text = self._request[start : self._words[last][1]]
                if not value.startswith(text, place):
                    break
                if place + len(text) in ends and (found is None or len(text) > len(found.text)):
                    found = _Run(first, last, text)
        return found


def which(tools: Iterable[str], said: str) -> Choice:
    """The choice of the next tool to call."""
    return Choice((*tools, NO_MORE), said)


def _kind(kind: Mapping[str, Any], schema: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
    """The schema of one argument, without references and alternatives."""
    if "$ref" in kind:
        kind = schema["$defs"][kind["$ref"].rpartition("/")[2]]
    for each in kind.get("anyOf", ()):
        if (each.get("type") == "array") == isinstance(value, list) and each.get("type") != "null":
            return _kind(each, schema, value)
    return kind


def _figures(value: str, place: int) -> str:
    """The figures in a value at a position, up to the end of a word."""
    match = _SOME.match(value, place)
    found = match[0].rstrip(".:-/") if match else ""
    after = value[place + len(found) : place + len(found) + 1]
    return "" if len(found) > LONGEST or after.isalnum() or after == "_" else found


def _spelled(figures: str) -> tuple[Choice, ...]:
    """Figures in groups of three. A shorter group is the last."""
    groups = [figures[at : at + GROUP] for at in range(0, len(figures), GROUP)]
    ended = groups if len(groups[-1]) < GROUP or len(figures) >= LONGEST - 1 else [*groups, "none"]
    return tuple(Choice(_GROUPS, group) for group in ended)


def _skipped(value: str, place: int) -> int:
    """The length of a word that cannot be said."""
    match = _WORD.match(value, place)
    return len(match[0]) if match else 1

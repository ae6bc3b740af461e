"""Values that verbs return to the playing code: the words in them, and whether a text of the code contains one.

A text without any of them does not prove that the code did not use the value. Independent of games and audiences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple


class ReturnedValue(NamedTuple):
    """One value: the words and numbers in it, as a text would spell them; the spellings of whole objects and arrays,
    without whitespace and in lower case; and its numbers, which a text may also format or round."""

    words: tuple[str, ...]
    wholes: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()


class CodeText(NamedTuple):
    """What the playing code wrote of a message: its `texts`, and what it `offered` an agent to say, which are choices,
    or the words and numbers of a JSON schema."""

    texts: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()

    def has_value(self, value: ReturnedValue, before: Iterable[str]) -> bool:
        """Whether it contains the value. `before` is what was offered when the value was said: to offer some of that
        again shows nothing, because the code knew it without the value."""
        new = set(self.offered).difference(before)
        return any(has_value(text, value) for text in (*self.texts, *new))


_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_FORMATTED = re.compile(r"(?<!\d)(?:\d{1,3}(?:[.,'_\u00a0\u2009\u202f ]\d{3})+(?:[.,]\d+)?|\d+[.,]\d+)")
"""A number with separators of thousands, decimals, or both."""
_NO_DIGIT = re.compile(r"\D")
_LETTER = rf"[^\W\d_{_UNSPACED}]"
"""A letter of a script that puts spaces between words."""


def of_json(text: str, known: Iterable[str] = ()) -> ReturnedValue:
    """The words and numbers in JSON with the keys that are not among the `known` words, and its objects and arrays as
    wholes. Text that is not JSON counts as one word. True, false and null alone are left out, because any text may
    contain them."""
    try:
        value = json.loads(text)
        keys = sorted(set(_keys(value)).difference(known))
        spelled = (_squeezed(each) for whole in _wholes(value) for each in _spellings(whole))
        words, numbers = (*_leaves(value), *keys), dict.fromkeys(_numbers(value))
        return ReturnedValue(tuple(dict.fromkeys(words)), tuple(dict.fromkeys(spelled)), tuple(numbers))
    except (RecursionError, ValueError):
        return ReturnedValue((text,))


def words_of(schema: Any) -> tuple[str, ...]:
    """The words and numbers in a JSON schema."""
    return tuple(dict.fromkeys(_leaves(schema)))


def known_words(schema: Any) -> tuple[str, ...]:
    """The words and numbers in a JSON schema, and its keys, such as the names of properties."""
    return tuple(dict.fromkeys((*_leaves(schema), *_keys(schema))))


def _wholes(value: Any) -> Iterator[Any]:
    """A value, if it is an object or an array, and those within it that contain no others."""
    if isinstance(value, dict | list) and value:
        yield value
        for each in _within(value):
            yield from _innermost(each)


def _innermost(value: Any) -> Iterator[Any]:
    inner = [each for each in _within(value) if isinstance(each, dict | list) and each]
    if isinstance(value, dict | list) and value and not inner:
        yield value
    for each in inner:
        yield from _innermost(each)


def _spellings(whole: Any) -> Iterator[str]:
    """How JSON, Python and pydantic spell an object or array."""
    yield from (json.dumps(whole), json.dumps(whole, ensure_ascii=False), str(whole))
    if isinstance(whole, dict):
        fields = [f"{name}={each!r}" for name, each in whole.items()]
        yield from ("".join(fields), ",".join(fields))


def _squeezed(text: str) -> str:
    return "".join(text.split()).casefold()


def _within(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for each in _within(value):
        yield from _keys(each)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in _within(value):
            yield from _leaves(each)
    elif isinstance(value, str):
        yield value
    elif value is not None and not isinstance(value, bool):
        yield str(value)
        with suppress(OverflowError):  # of an integer that is larger than any float
            yield f"{value:g}"


def _numbers(value: Any) -> Iterator[float]:
    """The numbers in a JSON value, without signs."""
    if isinstance(value, dict | list):
        for each in _within(value):
            yield from _numbers(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):  # of an integer that is larger than any float
            yield abs(float(value))


def has_value(text: str, value: ReturnedValue) -> bool:
    """Whether a text contains one of the value's words as a whole word, ignoring case: not inside a run of letters or
    of digits. Scripts without spaces between words have no such runs. Or one of its wholes, whatever the spaces. Or one
    of its numbers, with separators of thousands, or rounded to one decimal place or more."""
    if not text:
        return False
    words = (word.strip() for word in value.words)
    if any(re.search(_whole(word), text, re.IGNORECASE) for word in words if word):
        return True
    squeezed = _squeezed(text) if value.wholes else ""
    return any(whole in squeezed for whole in value.wholes) or _has_number(text, value.numbers)


def _has_number(text: str, numbers: Iterable[float]) -> bool:
    spelled = [each for found in _FORMATTED.findall(text) for each in _read(found)] if numbers else []
    return any(round(number, places) == said for number in numbers for said, places in spelled)


def _read(found: str) -> Iterator[tuple[float, int]]:
    """The numbers that a formatted one may be, with either mark of decimals, and how many decimal places each has."""
    for mark in ".,":
        whole, _, decimals = found.partition(mark) if found.count(mark) == 1 else (found, "", "")
        digits = _NO_DIGIT.sub("", whole)
        if decimals.isdecimal():
            yield float(f"{digits}.{decimals}"), len(decimals)
        elif not decimals and len(digits) < len(whole):
            yield float(digits), 0


def _whole(word: str) -> str:
    first, last = _border(word[0]), _border(word[-1])
    return f"{first and f'(?<!{first})'}{re.escape(word)}{last and f'(?!{last})'}"


def _border(end: str) -> str:
    """What must not stand beside the end of a word: more of the same kind."""
    return _LETTER if re.match(_LETTER, end) else r"\d" if end.isdecimal() else ""

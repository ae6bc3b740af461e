"""Values that verbs return to the playing code: the words in them, and whether a text of the code contains one.

A text without any of them does not prove that the code did not use the value. Independent of games and audiences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

ReturnedValue = tuple[str, ...]
"""The words and numbers in one value, as a text would spell them."""


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
_LETTER = rf"[^\W\d_{_UNSPACED}]"
"""A letter of a script that puts spaces between words."""


def of_json(text: str, known: Iterable[str] = ()) -> ReturnedValue:
    """The words and numbers in JSON with the keys that are not among the `known` words of its schema, and each object
    and array as a whole. Text that is not JSON counts as one word. True, false and null alone are left out, because any
    text may contain them."""
    try:
        value = json.loads(text)
        keys = set(_keys(value)).difference(known)
        return tuple(dict.fromkeys((*_leaves(value), *sorted(keys), *_wholes(value))))
    except (RecursionError, ValueError):
        return (text,)


def words_of(schema: Any) -> tuple[str, ...]:
    """The words and numbers in a JSON schema."""
    return tuple(dict.fromkeys(_leaves(schema)))


def keys_of(schema: Any) -> tuple[str, ...]:
    """The keys in a JSON schema, such as the names of properties."""
    return tuple(dict.fromkeys(_keys(schema)))


def _wholes(value: Any) -> Iterator[str]:
    """How JSON, Python and pydantic spell each object and array, apart from whitespace."""
    if isinstance(value, dict | list) and value:
        yield from (json.dumps(value), json.dumps(value, ensure_ascii=False), str(value))
        if isinstance(value, dict):
            fields = [f"{name}={each!r}" for name, each in value.items()]
            yield from (" ".join(fields), ", ".join(fields))
        for each in _within(value):
            yield from _wholes(each)


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


def has_value(text: str, value: Iterable[str]) -> bool:
    """Whether a text contains one of these words as a whole word, ignoring case: not inside a run of letters or of
    digits. Scripts without spaces between words have no such runs. Objects and arrays match whatever their spaces."""
    words = (word.strip() for word in value)
    return any(re.search(_whole(word), text, re.IGNORECASE) for word in words if word)


def _whole(word: str) -> str:
    if word[0] in "{[":  # an object or array, however it is spaced
        return r"\s*".join(map(re.escape, "".join(word.split())))
    first, last = _border(word[0]), _border(word[-1])
    return f"{first and f'(?<!{first})'}{re.escape(word)}{last and f'(?!{last})'}"


def _border(end: str) -> str:
    """What must not stand beside the end of a word: more of the same kind."""
    return _LETTER if re.match(_LETTER, end) else r"\d" if end.isdecimal() else ""

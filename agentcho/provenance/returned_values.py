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


def of_json(text: str) -> ReturnedValue:
    """The words and numbers in JSON. Text that is not JSON counts as one word. True, false and null are left out,
    because any text may contain them."""
    try:
        return tuple(dict.fromkeys(_leaves(json.loads(text))))
    except (RecursionError, ValueError):
        return (text,)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    elif isinstance(value, str):
        yield value
    elif value is not None and not isinstance(value, bool):
        yield str(value)
        with suppress(OverflowError):  # of an integer that is larger than any float
            yield f"{value:g}"


def has_value(text: str, value: Iterable[str]) -> bool:
    """Whether a text contains one of these words as a whole word, ignoring case."""
    words = (word.strip() for word in value)
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) for word in words if word)

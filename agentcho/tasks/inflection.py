"""The inflected forms of an English word: plurals and tenses, by rule and from a list."""

from __future__ import annotations

import re
from functools import cache

from agentcho.tasks.word_lists import lists

HISSING = re.compile(r"(?:s|x|z|ch|sh)$")
SHORT = re.compile(r"^[^aeiou]*[aeiou][bdgklmnprtvz]$")


@cache
def forms(word: str) -> frozenset[str]:
    """All forms of a word in lower case, including itself."""
    return frozenset({word, *_regular(word), *_irregular().get(word, ())})


def _regular(word: str) -> set[str]:
    if re.search(r"[^aeiou]y$", word):
        return {f"{word[:-1]}{end}" for end in ("ies", "ied")} | {f"{word}ing"}
    if re.search(r"[eoy]e$", word):
        return {f"{word}s", f"{word}d", f"{word}ing"}
    if word.endswith("e"):
        return {f"{word}s", f"{word}d", f"{word[:-1]}ing"}
    stem = word + word[-1] if SHORT.search(word) else word
    plural = f"{word}es" if HISSING.search(word) else f"{word}s"
    also = {f"{word}es"} if re.search(r"[^aeiou]o$", word) else set()
    return {plural, f"{stem}ed", f"{stem}ing", *also}


@cache
def _irregular() -> dict[str, tuple[str, ...]]:
    pairs = (line.split(" = ") for line in lists("concepts")["irregular"])
    return {base: tuple(others.split(", ")) for base, others in pairs}

"""Replaces generated parts of pages, which are between two marks, `<!-- NAME -->` and `<!-- end of NAME -->`."""

from __future__ import annotations

import re
from collections.abc import Iterable

AGE = "age"
"""The part about the age of a page's figures, which depends on the commit that is checked out."""


def between(page: str, name: str) -> str | None:
    """The text between two marks, None if the page does not have them."""
    found = _marked(name).search(page)
    return None if found is None else found[1].strip("\n")


def put(page: str, name: str, lines: Iterable[str]) -> str:
    """The page with these lines between two marks, if it has them."""
    within = "".join(f"{line}\n" for line in lines)
    return _marked(name).sub(lambda old: f"<!-- {name} -->\n{within}<!-- end of {name} -->", page, count=1)


def without_age(page: str) -> str:
    """The page as its generator writes it, with that part empty."""
    return put(page, AGE, ())


def keeping_age(page: str, old: str) -> str:
    """A regenerated page, with what the old one says about the age of its figures."""
    return put(page, AGE, (between(old, AGE) or "").splitlines())


def _marked(name: str) -> re.Pattern[str]:
    return re.compile(f"<!-- {name} -->\n(.*?)<!-- end of {name} -->", re.DOTALL)

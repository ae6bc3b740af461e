"""Which variables a chat template reads beside the conversation. Does not know: their values, how it is rendered."""

from __future__ import annotations

import re
from functools import lru_cache

from jinja2 import Environment, TemplateError
from jinja2.meta import find_undeclared_variables

GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
"""Marks of transformers for what an assistant says; jinja itself does not know the tag."""


@lru_cache(maxsize=64)
def read_by(source: str) -> frozenset[str] | None:
    """The names of the variables that a template reads.

    Args:
        source: The template's source.

    Returns:
        The names; None where the template cannot be parsed, so that nobody knows.
    """
    try:
        parsed = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(GENERATION.sub("", source))
        return frozenset(find_undeclared_variables(parsed))
    except (TemplateError, RecursionError):
        return None


def unread(source: str, names: frozenset[str]) -> list[str]:
    """Those of these names that a template does not read, sorted; none where nobody knows."""
    known = read_by(source)
    return [] if known is None else sorted(names - known)

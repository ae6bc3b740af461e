"""Finds the variables that a chat template reads beside the conversation."""

from __future__ import annotations

import re
from functools import lru_cache

from jinja2 import Environment, TemplateError
from jinja2.meta import find_undeclared_variables

GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
"""A tag of transformers around the text of an assistant, which jinja itself does not support."""


@lru_cache(maxsize=64)
def read_by(source: str) -> frozenset[str] | None:
    """The names of the variables that a template reads.

    Args:
        source: The template's source.

    Returns:
        The names. None if the template cannot be parsed.
    """
    try:
        parsed = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(GENERATION.sub("", source))
        return frozenset(find_undeclared_variables(parsed))
    except (TemplateError, RecursionError):
        return None


def unread(source: str, names: frozenset[str]) -> list[str]:
    """The names among these that a template does not read, sorted. Empty if the template cannot be parsed."""
    known = read_by(source)
    return [] if known is None else sorted(names - known)

"""A result as JSON."""

from __future__ import annotations

import json

from pydantic import BaseModel


def json_text(found: BaseModel, *, ascii: bool = False) -> str:
    """A result as indented JSON.

    Args:
        found: A report, or another result.
        ascii: Whether to escape all non-ASCII characters.

    Returns:
        The JSON, ending in a newline.
    """
    text = json.dumps(found.model_dump(mode="json"), indent=2) if ascii else found.model_dump_json(indent=2)
    return text + "\n"

"""A result as JSON. Does not know: what is in it."""

from __future__ import annotations

import json

from pydantic import BaseModel


def json_text(found: BaseModel, *, ascii: bool = False) -> str:
    """A result as indented JSON.

    Args:
        found: A report, or another result.
        ascii: Whether all other signs are escaped.

    Returns:
        The JSON, with a line end after it.
    """
    text = json.dumps(found.model_dump(mode="json"), indent=2) if ascii else found.model_dump_json(indent=2)
    return text + "\n"

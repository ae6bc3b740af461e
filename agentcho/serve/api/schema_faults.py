"""Says what is wrong with a JSON schema that no answer can be held to, where, and what to do.

Independent of the parameter that contains the schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentcho.protocol.schema_limits import LEAST, MOST, TOO_LARGE, escaped, parts

INVALID = re.compile(r"Invalid type\b|must be an? |regex parse error")
"""What the compiler says of a schema that is none, rather than one that it cannot enforce."""


def schema_fault(schema: Mapping[str, Any], lenient: bool = False) -> str | None:
    """What makes a schema unusable, with the place as a JSON pointer and the remedy. None: it is usable. `lenient`:
    what a grammar cannot enforce is no fault."""
    from agentcho.runner.sampling.grammar import fault

    found = fault(dict(schema), lenient=lenient)
    if found is None:
        return None
    if (place := too_large(schema)) is not None:
        return f"at {place}: {TOO_LARGE}"
    if found.hopeless or INVALID.search(found.why):
        return f"{found}; correct the schema"
    return f"{found}; leave this out, and check the answer yourself"


def too_large(value: object, pointer: str = "#") -> str | None:
    """The JSON pointer of the first whole number that a grammar cannot be made of."""
    if isinstance(value, int):
        return None if LEAST <= value <= MOST else pointer
    found = (too_large(part, f"{pointer}/{escaped(name)}") for name, part in parts(value))
    return next((place for place in found if place is not None), None)

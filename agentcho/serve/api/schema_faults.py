"""Says what is wrong with a JSON schema that no answer can be held to, where, and what to do.

Independent of the parameter that contains the schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LEAST, MOST = -(1 << 63) + 1024, (1 << 64) - 1
"""The whole numbers that a grammar can be made of. As a float, a smaller one is the least number of 64 bits, or less."""
TOO_LARGE = f"the number is too large; give one from {LEAST} to {MOST}"
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
    parts: list[tuple[Any, Any]] = []
    if isinstance(value, Mapping):
        parts = [(str(name).replace("~", "~0").replace("/", "~1"), part) for name, part in value.items()]
    elif isinstance(value, list):
        parts = list(enumerate(value))
    return next((found for name, part in parts if (found := too_large(part, f"{pointer}/{name}")) is not None), None)

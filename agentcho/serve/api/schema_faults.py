"""Says what is wrong with a JSON schema that no answer can be held to, where, and what to do.

Independent of the parameter that contains the schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

LEAST, MOST = -(1 << 63) + 1024, (1 << 64) - 1
"""The whole numbers that a grammar can be made of. Below them, a float may be the least number of 64 bits, or less."""
TOO_LARGE = f"the number is too large; give one from {LEAST} to {MOST}"
INVALID = re.compile(r"Invalid type\b|must be an? |regex parse error")
"""What the compiler says of a schema that is none, rather than one that it cannot enforce."""


HARMLESS = frozenset({"minimum", "exclusiveMinimum", "default", "examples"})
"""Keywords whose numbers may be below `LEAST`, because the compiler refuses them or does not read them."""


def fatal_number(value: object, pointer: str = "#", exact: bool = False) -> str | None:
    """The JSON pointer of the first number on which the compiler of grammars (llguidance 1.9.1) may end the whole
    process: it recurses without end on a range of whole numbers whose ends are both the least number of 64 bits.
    `exact`: the value is one that answers must equal, so that names in it are not keywords."""
    if isinstance(value, int | float):
        return pointer if value < LEAST else None
    for name, part in _parts(value):
        if not exact and name in HARMLESS and not isinstance(part, Mapping):
            continue
        inside = exact or name in ("const", "enum")
        if (found := fatal_number(part, f"{pointer}/{_escaped(name)}", inside)) is not None:
            return found
    return None


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
    found = (too_large(part, f"{pointer}/{_escaped(name)}") for name, part in _parts(value))
    return next((place for place in found if place is not None), None)


def _parts(value: object) -> Iterable[tuple[str, Any]]:
    """The parts of an object or a list, by name or number."""
    if isinstance(value, Mapping):
        return value.items()
    return [(str(number), part) for number, part in enumerate(value)] if isinstance(value, list) else ()


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")

"""Messages for tests, with the parts of their words named beside all else."""

from __future__ import annotations

from typing import Any

from agentcho.message import Message, Words


def message(**fields: Any) -> Message:
    """A message of these fields, its words' among them."""
    words = {name: fields.pop(name) for name in Words._fields if name in fields}
    return Message(**fields, words=Words(**words))

"""Messages for tests, with the fields of their words given beside all others."""

from __future__ import annotations

from typing import Any

from agentcho.message import Message, Words


def message(**fields: Any) -> Message:
    """A message with these fields, including those of its words."""
    words = {name: fields.pop(name) for name in Words._fields if name in fields}
    return Message(**fields, words=Words(**words))

"""A workflow as a chat API has it: for every decode the ids of its whole prompt, and those it is forced to.

The ids are those that the engine's baseline feeds. Does not know: how they are fed.
"""

from __future__ import annotations

from typing import NamedTuple

from agentcho.calls.call import FramingPort
from agentcho.games.traced import framed
from agentcho.records.trace import Workflow

Ids = tuple[int, ...]


class Prompt(NamedTuple):
    """One decode: who makes it, its prompt up to and with the header, its text without the closing."""

    id: str
    author: str
    prompt: Ids
    text: Ids


def prompts(workflow: Workflow, framing: FramingPort) -> dict[str, Prompt]:
    """All decodes by id."""
    laid = {message.id: framed(message, framing) for message in workflow.messages}
    start = framing.begin
    found = {}
    for message in (m for m in workflow.messages if m.kind == "decode"):
        read, own = (id for parent in message.parents for id in laid[parent].tokens), laid[message.id]
        found[message.id] = Prompt(message.id, message.author or "", (*start, *read, *own.begun), own.content)
    return found

"""A workflow as a chat API sees it: for every decode the ids of its whole prompt, and those that it is made to say.

The ids are those that the engine's baseline feeds. Does not know: how they are fed.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from agentcho.calls.call import EnginePort, FramingPort
from agentcho.records.trace import TraceMessage, Workflow

Ids = tuple[int, ...]


class Framed(FramingPort, Protocol):
    """The fixed ids around a message's content, and what every prompt begins with."""

    @property
    def bos(self) -> int | None: ...


class Prompt(NamedTuple):
    """One decode: who makes it, its prompt up to and with the header, its text without the closing."""

    id: str
    author: str
    prompt: Ids
    text: Ids


class PromptPort(EnginePort, Protocol):
    """An engine with the framing of a real model."""

    @property
    def framing(self) -> Framed: ...


def prompts(workflow: Workflow, framing: Framed) -> dict[str, Prompt]:
    """All decodes by id."""
    whole = {message.id: _whole(message, framing) for message in workflow.messages}
    start = () if framing.bos is None else (framing.bos,)
    found = {}
    for message in (m for m in workflow.messages if m.kind == "decode"):
        read = tuple(id for parent in message.parents for id in whole[parent])
        begun = (*framing.opening("assistant", message.name), *framing.content.encode(message.header or ""))
        text = tuple(framing.content.encode(message.text))
        found[message.id] = Prompt(message.id, message.author or "", (*start, *read, *begun), text)
    return found


def _whole(message: TraceMessage, framing: Framed) -> Ids:
    encode = framing.content.encode
    said = (*encode(message.header or ""), *encode(message.text))
    return (*framing.opening(message.role, message.name), *said, *framing.closing(message.role))

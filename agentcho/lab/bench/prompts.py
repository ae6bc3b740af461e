"""Converts a workflow to the prompts of a chat API: for every decode the ids of its whole prompt and its forced ids.

The ids are those that the engine's baseline feeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agentcho.engine.call_layout import FramedTokens
from agentcho.games.runs.trace_framing import framed
from agentcho.protocol.call import ChatMessage, FramingPort
from agentcho.provenance.baseline_prompts import PromptTurn, baseline_prompt
from agentcho.records.trace import TraceMessage, Workflow

Ids = tuple[int, ...]


class Prompt(NamedTuple):
    """One decode: its author, its prompt including the header, its text without the closing."""

    id: str
    author: str
    prompt: Ids
    text: Ids


class Piece(NamedTuple):
    """Some ids of a prompt, and the messages that they belong to."""

    ids: Ids
    messages: tuple[str, ...]


class Laid(NamedTuple):
    """The prompt of one decode after BOS: its pieces, and the ids that open the answer, header included. `own` are the
    ids of the answer in its own frame."""

    pieces: tuple[Piece, ...]
    begun: Ids
    own: FramedTokens


def laid(workflow: Workflow, framing: FramingPort) -> dict[str, Laid]:
    """The prompts of all decodes, by id."""
    frames = {message.id: framed(message, framing) for message in workflow.messages}
    turns = {message.id: _turn(message, frames) for message in workflow.messages}
    found = {}
    for message in (m for m in workflow.messages if m.kind == "decode"):
        prompt, own = baseline_prompt([turns[id] for id in message.parents], framing), frames[message.id]
        pieces = tuple(
            Piece(turns[part.messages[0]].framed if part.tokens is None else part.tokens, part.messages)
            for part in prompt.parts
        )
        opening = own.opening if prompt.opening is None else prompt.opening
        found[message.id] = Laid(pieces, (*opening, *own.header), own)
    return found


def prompts(workflow: Workflow, framing: FramingPort) -> dict[str, Prompt]:
    """All decodes by id."""
    start = framing.begin
    authors = {message.id: message.author or "" for message in workflow.messages}
    return {
        id: Prompt(id, authors[id], (*start, *(i for piece in pieces for i in piece.ids), *begun), own.content)
        for id, (pieces, begun, own) in laid(workflow, framing).items()
    }


def _turn(message: TraceMessage, frames: Mapping[str, FramedTokens]) -> PromptTurn:
    words = frames[message.id]
    said = ChatMessage(message.role, (message.header or "") + message.text, message.name)
    return PromptTurn(message.id, said, words.tokens, words.span)

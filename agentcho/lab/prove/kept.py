"""The secrets of one agent from another in a workflow, and the workflow with these swapped or left out.

An agent's secrets from a reader are the messages that it wrote, or that the scenario addressed to it, and that the
reader may not read. Independent of encodings.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from agentcho.audit.measurement import Swapped
from agentcho.lab.measure.play import Line, Play, reaching
from agentcho.lab.measure.swap import Secrets, reworded
from agentcho.records.trace import TraceMessage, Workflow

NOT_IN_IT = "it has no agent of that name"
HIDES_NOTHING = "nothing is kept from it"
SILENT = "it generates nothing"
NO_WAY = "nothing it reads depends on a message that is kept from it"
WORDLESS = "no other words were found for what is kept from it"


class Secret(NamedTuple):
    """Messages that an owner keeps from all `readers`; `through` are those that reach what these readers read."""

    owner: str
    readers: tuple[str, ...]
    messages: frozenset[str]
    through: frozenset[str]


def kept(play: Play, owner: str, reader: str) -> tuple[Line, ...]:
    """What `owner` wrote, or the scenario told `owner`, alone or with others, and `reader` may not read."""
    own = (line for line in play.lines if line.message.author == owner or _told(line, owner))
    return tuple(line for line in own if not line.message.audience.includes(reader))


def _told(line: Line, owner: str) -> bool:
    return line.message.author is None and line.message.audience.includes(owner)


def secrets(play: Play, owner: str, readers: Sequence[str]) -> tuple[list[Secret], dict[str, str]]:
    """The secrets of `owner`, with readers grouped by equal secrets; and why the other readers cannot be compared."""
    found: dict[frozenset[str], list[tuple[str, frozenset[str]]]] = {}
    why: dict[str, str] = {}
    for reader in readers:
        messages = frozenset(line.message.id for line in kept(play, owner, reader))
        through = reaching(play, reader, messages)
        if not messages or not play.decodes(reader) or not through:
            why[reader] = HIDES_NOTHING if not messages else NO_WAY if play.decodes(reader) else SILENT
        else:
            found.setdefault(messages, []).append((reader, through))
    return [
        Secret(owner, tuple(reader for reader, _ in group), messages, frozenset().union(*(t for _, t in group)))
        for messages, group in found.items()
    ], why


def changed(
    workflow: Workflow, plays: Sequence[Play], game: int, secret: Secret, swap: Swapped, seed: int, tokenizer: str
) -> tuple[Workflow, frozenset[str]]:
    """The workflow with the secrets swapped, and the ids of the messages that changed; empty: no other words were
    found."""
    if swap == "absent":
        return without(workflow, secret.messages), secret.messages
    hidden = [line for line in plays[game].lines if line.message.id in secret.messages]
    words = reworded(plays=plays, game=game, hidden=hidden, through=secret.through, swap=swap, seed=seed)
    return saying(workflow, plays[game], words, tokenizer), frozenset(words)


def saying(workflow: Workflow, play: Play, words: Secrets, tokenizer: str) -> Workflow:
    """The workflow with other ids in these messages."""
    lines = play.saying(words).by_id
    return _with(
        workflow,
        [
            message.model_copy(update={"tokens": lines[message.id].message.tokens, "tokenizer": tokenizer})
            if message.id in words
            else message
            for message in workflow.messages
        ],
    )


def without(workflow: Workflow, gone: Collection[str]) -> Workflow:
    """The workflow without these messages, which are also removed from the parents of others."""
    return _with(workflow, [_closed_up(message, gone) for message in workflow.messages if message.id not in gone])


def _closed_up(message: TraceMessage, gone: Collection[str]) -> TraceMessage:
    places = message.offsets or (None,) * len(message.parents)
    left = [(id, at) for id, at in zip(message.parents, places, strict=True) if id not in gone]
    update = {"parents": tuple(id for id, _ in left)}
    more = {} if message.offsets is None else {"offsets": tuple(at for _, at in left)}
    return message.model_copy(update=update | more)


def _with(workflow: Workflow, messages: Sequence[TraceMessage]) -> Workflow:
    return workflow.model_copy(update={"messages": tuple(messages)})

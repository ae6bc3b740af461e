"""Converts a workflow to the requests that clients of a chat server send: for every decode a list of messages, as
text. Independent of servers and token ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agentcho.games.runs.replay import awaited
from agentcho.records.trace import TraceMessage, Workflow


class Chat(NamedTuple):
    """One decode as a request: its author, the decodes that must have ended before it, its messages in the JSON of
    OpenAI's API, and for each of these the decode that it quotes (None: it is not a decode)."""

    id: str
    agent: str
    after: frozenset[str]
    messages: tuple[dict[str, str], ...]
    quotes: tuple[str | None, ...]

    @property
    def nameless(self) -> Chat:
        """The same chat without the names of speakers."""
        left = ({key: value for key, value in message.items() if key != "name"} for message in self.messages)
        return self._replace(messages=tuple(left))

    def quoting(self, said: Mapping[str, str]) -> Chat:
        """The same chat with other texts for the quoted decodes, by id."""
        both = zip(self.messages, self.quotes, strict=True)
        messages = (m if id is None else m | {"content": said.get(id, m["content"])} for m, id in both)
        return self._replace(messages=tuple(messages))


def chats(workflow: Workflow, label: str = "") -> list[Chat]:
    """The requests of all decodes with the recorded texts, each after the decodes that it waits for.

    An agent's own messages have the role assistant; those of others have the role user and a name, as AutoGen sends
    them. `label` is prepended to every message that begins a prompt, so that the prompts of two plays share no prefix.
    """
    known = {message.id: message for message in workflow.messages}
    decodes = [message for message in workflow.messages if message.kind == "decode" and message.parents]
    first = {message.parents[0] for message in decodes}
    needs = awaited(workflow)
    made = []
    for decode in decodes:
        agent = decode.author or ""
        quoted = (_quoted(known[id], agent, label if id in first else "") for id in decode.parents)
        quotes = (id if known[id].kind == "decode" else None for id in decode.parents)
        made.append(
            Chat(
                id=decode.id,
                agent=agent,
                after=needs[decode.id] & {each.id for each in decodes},
                messages=tuple(quoted),
                quotes=tuple(quotes),
            )
        )
    return made


def _quoted(message: TraceMessage, reader: str, label: str) -> dict[str, str]:
    text = f"{label}{message.header or ''}{message.text}"
    if message.role != "assistant" or message.author == reader:
        return {"role": message.role, "content": text}
    named = {} if message.author is None else {"name": message.author}
    return {"role": "user", **named, "content": text}

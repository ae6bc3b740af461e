"""A message of a trace in the token ids of one model. Independent of how a trace is played."""

from __future__ import annotations

from agentcho.engine.call_layout import FramedTokens, frame
from agentcho.message import Message, Words
from agentcho.protocol.call import FramingPort
from agentcho.records.trace import TraceMessage


def framed(message: TraceMessage, template: FramingPort) -> FramedTokens:
    """Return header and text of a message as ids, in this template's framing.

    A system message with the text of the default prompt is that prompt.
    """
    default, encode = template.default, template.content.encode
    if default is not None and message.role == "system" and message.text == default.text:
        start, stop = default.content
        return FramedTokens(default.tokens[:start], (), default.tokens[start:stop], default.tokens[stop:])
    header = encode(message.header or "")
    said = encode(message.text)
    answer = message.kind == "decode"
    return frame(template=template, role=message.role, name=message.name, header=header, content=said, answer=answer)


def traced(
    message: TraceMessage, template: FramingPort, game: int = 0, tokens: tuple[int, ...] | None = None
) -> Message:
    """Return the message as it is in a game. `tokens` are all its token ids, if they are not those of its text."""
    own = framed(message, template)
    ids = own.tokens if tokens is None else tokens
    content = len(own.opening), len(ids) - len(own.closing)
    return Message(
        id=message.id,
        game=game,
        kind=message.kind,
        role=message.role,
        author=message.author,
        audience=message.readers,
        parents=message.parents,
        words=Words(message.header or "", message.text, ids, content),
        name=message.name,
        offsets=message.offsets,
        new_offset=message.new_offset,
    )

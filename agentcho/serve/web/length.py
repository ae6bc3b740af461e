"""Whether the texts of a request can fit into a model's context, found out while others are served.

Tokenising millions of letters takes seconds. It is done here in a thread, piece by piece, and no further than it takes
to know. Does not know: what is encoded already, how long an answer may be.
"""

from __future__ import annotations

from collections.abc import Iterator

import anyio.to_thread

from agentcho.calls.call import FramePort
from agentcho.errors import ContextOverflow
from agentcho.serve.request import ChatRequest

SHORT = 1 << 14
"""So many letters are tokenised in a moment: as many are a piece."""
SLACK = 64
"""So many tokens more may come of a piece because the text was cut there."""


async def check_length(request: ChatRequest, frames: FramePort) -> None:
    """`ContextOverflow`: the texts alone have more tokens than there are positions."""
    if sum(len(text) for text in _texts(request)) <= SHORT:
        return
    count = 0
    for piece in _pieces(request):
        count += len(await anyio.to_thread.run_sync(frames.framing.content.encode, piece)) - SLACK
        if count > frames.context:
            raise ContextOverflow(count, frames.context)


def _pieces(request: ChatRequest) -> Iterator[str]:
    for text in _texts(request):
        for start in range(0, len(text), SHORT):
            yield text[start : start + SHORT]


def _texts(request: ChatRequest) -> Iterator[str]:
    """All texts of the messages, the arguments of calls of functions included."""
    for message in request.messages:
        yield message.text
        yield from (call.arguments for call in message.calls)

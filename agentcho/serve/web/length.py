"""Whether the texts of a request can fit into a model's context, found out while others are served.

Tokenising millions of letters takes seconds. It is done here in a thread, piece by piece, and no further than it takes
to know. Does not know: what is encoded already, how long an answer may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from agentcho.errors import ContextOverflow
from agentcho.protocol.call import FramePort
from agentcho.serve.request import SHORT, ChatRequest
from agentcho.serve.worker_thread import beside

SLACK = 64
"""So many tokens more may come of a piece because the text was cut there."""


async def check_length(request: ChatRequest, frames: FramePort) -> None:
    """`ContextOverflow`: the texts alone have more tokens than there are positions."""
    if not request.is_long:
        return
    count = 0
    for piece in _pieces(request):
        count += len(await beside(partial(frames.framing.content.encode, piece))) - SLACK
        if count > frames.context:
            raise ContextOverflow(count, frames.context)


def _pieces(request: ChatRequest) -> Iterator[str]:
    for text in request.texts:
        for start in range(0, len(text), SHORT):
            yield text[start : start + SHORT]

"""Checks whether the texts of a request can fit into a model's context, without blocking other requests.

Tokenising millions of characters takes seconds. It is done in a thread, piece by piece, and only until the answer is
known. Independent of what is already encoded, and of the length of answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from agentcho.errors import ContextOverflow
from agentcho.protocol.call import FramePort
from agentcho.serve.request import SHORT, ChatRequest
from agentcho.serve.worker_thread import beside

SLACK = 64
"""Number of additional tokens that a piece may have because the text was split there."""


async def check_length(request: ChatRequest, frames: FramePort) -> None:
    """`ContextOverflow`: the texts alone have more tokens than the model has positions."""
    if request.letters <= SHORT:
        return
    count = 0
    for piece, slack in _pieces(request):
        count += len(await beside(partial(frames.framing.content.encode, piece))) - slack
        if count > frames.context:
            raise ContextOverflow(count, frames.context)


def _pieces(request: ChatRequest) -> Iterator[tuple[str, int]]:
    """The pieces of all texts, each with the tokens that it may have because the text was split before it."""
    for text in request.texts:
        for start in range(0, len(text), SHORT):
            yield text[start : start + SHORT], SLACK if start else 0

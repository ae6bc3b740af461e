"""A model behind an API that is not there, to test agents and scenarios that speak through one. Does not know: HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter

import anyio.lowlevel

from agentcho.engine.fake.smallest_json import smallest
from agentcho.protocol.text_calls import PromptMessage, TextCall, TextReply, TokensSpent

Reply = Callable[[TextCall], str | Awaitable[str]]


class FakeEndpoint:
    """A `TextPort` that answers by itself.

    - `reply(call)` gives the text of an answer, at once or as something to await; what it raises, `ask` raises. By
      default: the first of the choices, the smallest document of the schema, or how many messages it was shown.
    - `pieces`: every answer is shown in so many pieces, of which each comes in a round of the event loop of its own.
    - `thought`: what it thinks before every answer, and sends apart from it.
    - `reported`: whether it says how many tokens it took: one a word.
    - `calls` are those that were asked, in order.
    """

    def __init__(
        self,
        reply: Reply | None = None,
        *,
        name: str = "fake-endpoint",
        vendor: str = "127.0.0.1:1",
        context: int | None = None,
        pieces: int = 2,
        thought: str = "",
        reported: bool = True,
    ) -> None:
        self.name = name
        self.vendor = vendor
        self.context = context
        self.fingerprint = {"model": name, "server": "fake", "address": vendor}
        self._reply = reply or _answer
        self._pieces = pieces
        self._reported = reported
        self._thought = thought
        self.calls: list[TextCall] = []
        self.closed = 0

    async def ask(self, call: TextCall) -> TextReply:
        """The answer to a call."""
        asked = perf_counter()
        self.calls.append(call)
        said = self._reply(call)
        text = said if isinstance(said, str) else await said
        await anyio.lowlevel.checkpoint()
        first = perf_counter() - asked
        for piece in cut(text, self._pieces):
            if call.on_text is not None:
                call.on_text(piece)
            await anyio.lowlevel.checkpoint()
        spent, seconds = self._spent(call.messages, text), perf_counter() - asked
        return TextReply(text=text, stopped="stop", spent=spent, first=first, seconds=seconds, thought=self._thought)

    async def aclose(self) -> None:
        """Counts in `closed`."""
        self.closed += 1

    def _spent(self, prompt: Sequence[PromptMessage], text: str) -> TokensSpent:
        if not self._reported:
            return TokensSpent()
        return TokensSpent(sum(len(each.text.split()) for each in prompt), 0, max(1, len(text.split())))


def cut(text: str, pieces: int) -> list[str]:
    """A text in so many pieces, or fewer, none of them empty."""
    long = max(1, -(-len(text) // max(1, pieces)))
    return [text[start : start + long] for start in range(0, len(text), long)]


def _answer(call: TextCall) -> str:
    sampling = call.sampling
    if sampling.choices is not None:
        return sampling.choices[0]
    if sampling.json_schema is not None:
        return smallest(sampling.json_schema)
    return f"I have read {len(call.messages)} messages."

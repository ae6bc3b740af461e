"""A fake model behind an API, for tests of agents and scenarios that speak through one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter

import anyio.lowlevel

from agentcho.engine.fake.smallest_json import smallest
from agentcho.protocol.text_calls import PromptMessage, TextCall, TextReply, TokensSpent

Reply = Callable[[TextCall], str | Awaitable[str]]


class FakeEndpoint:
    """A fake model behind an API.

    Args:
        reply: Returns the text of an answer to a `TextCall`, or an awaitable of it. What it raises, `ask` raises. None
            answers with the first of the choices, the smallest document of the schema, or the number of messages that
            it was shown.
        name: Name of the model.
        vendor: Who sees what is sent.
        context: Number of positions. None if it is not known.
        pieces: Number of pieces that each answer is shown in, each in a round of the event loop of its own.
        thought: What it thinks before every answer, sent apart from the text.
        reported: Whether it reports token counts: one token per word.

    Attributes:
        calls: The calls so far, in order.
        closed: How often `aclose` was called.
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
        """Return the answer to a call.

        Args:
            call: The call.

        Returns:
            The answer.
        """
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
        """Count the call in `closed`."""
        self.closed += 1

    def _spent(self, prompt: Sequence[PromptMessage], text: str) -> TokensSpent:
        if not self._reported:
            return TokensSpent()
        return TokensSpent(sum(len(each.text.split()) for each in prompt), 0, max(1, len(text.split())))


def cut(text: str, pieces: int) -> list[str]:
    """Return a text in at most `pieces` pieces, none of them empty."""
    long = max(1, -(-len(text) // max(1, pieces)))
    return [text[start : start + long] for start in range(0, len(text), long)]


def _answer(call: TextCall) -> str:
    sampling = call.sampling
    if sampling.choices is not None:
        return sampling.choices[0]
    if sampling.json_schema is not None:
        return smallest(sampling.json_schema)
    return f"I have read {len(call.messages)} messages."

"""Tool calls of one game, each recorded before and after it runs.

An earlier call whose result is unknown is not repeated unless the user asks for it, because it may have had effects.
Independent of audiences and of how a model writes a call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import anyio

from agentcho.events import Called, Calling, Sink
from agentcho.games.play.journal import RecordedLines
from agentcho.games.play.limits import Meter
from agentcho.games.tools import running
from agentcho.games.tools.running import Returned
from agentcho.games.tools.tool import Tool
from agentcho.provenance.views import ToolUse

CANCELLED = "this call was cancelled before it had a result. Nobody knows whether it was made"
SKIPPED = "this call was begun before and broken off. Nobody knows whether it was made; it was not made again"


class ToolCallAttempt(NamedTuple):
    """A tool call that is to be made: its tool, arguments, message, author and use, and whether it is a release."""

    tool: Tool
    arguments: str
    id: str
    author: str
    use: ToolUse
    release: bool


class ToolCalls:
    """The tool calls of game `index`.

    `sink` has recorded an event when it returns or, if there is a `confirmed`, when that returns.
    """

    def __init__(
        self,
        index: int,
        recorded: RecordedLines,
        meter: Meter,
        sink: Sink,
        confirmed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._index = index
        self._recorded = recorded
        self._meter = meter
        self._sink = sink
        self._confirmed = confirmed

    async def wait(self, author: str) -> None:
        """Wait to be cancelled, as the recorded call was. Raises as `make`."""
        with self._meter.deadline(author):
            await anyio.sleep_forever()

    async def make(self, making: ToolCallAttempt) -> Returned:
        """Make a call within the time limits of its agent and of the game.

        Raises errors that end the game: `LimitReached`, and errors of the tool that concern more than this call.
        """
        if self._recorded.skips(making.id):
            return running.failed("skipped", SKIPPED)
        tool, attempt = making.tool, self._recorded.attempt
        self._sink(Calling(self._index, making.id, making.use, making.release, tool.declared.idempotent, attempt))
        how = "failed"
        seconds = 0.0
        began = anyio.current_time()
        try:
            with self._meter.deadline(making.author):
                if self._confirmed is not None:
                    await self._confirmed()
                found = await running.call(tool, making.arguments)
                how = found.how
        except anyio.get_cancelled_exc_class():
            how = "cancelled"
            raise
        finally:
            seconds = anyio.current_time() - began
            self._sink(Called(game=self._index, id=making.id, how=how, seconds=seconds, attempt=attempt))
        return found

"""Whose fault it is that something failed inside a step: one call's, or a device's. Does not know: calls, forwards."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from agentcho.errors import AgentchoError, CallFailed, EngineFailed


class Blame:
    """Asked after each failure. A device has failed when a trivial operation on it fails too."""

    def __init__(self, touch: Callable[[], None]) -> None:
        self._touch = touch

    def of(self, error: BaseException) -> AgentchoError:
        """What a call fails with that raised this by itself. `EngineFailed`: it was a device. What the failed work held
        is let go, so that memory that was short is there for the next. Ctrl-C is nobody's fault, and comes out."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        traceback.clear_frames(error.__traceback__)
        try:
            self.probe()
        except Exception:
            raise EngineFailed.of(error) from error
        if isinstance(error, AgentchoError):
            return error
        return CallFailed.of(error)

    def probe(self) -> None:
        """Something trivial on each device: see `Runner.probe`. Raises what that raises."""
        self._touch()

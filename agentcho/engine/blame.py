"""Whose fault it is that something failed inside a step: one call's, or a device's. Does not know: calls, forwards."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import torch

from agentcho.errors import AgentchoError, CallFailed, EngineFailed


class Blame:
    """Asked after each failure. A device has failed when a trivial operation on it fails too."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = devices

    def of(self, error: BaseException) -> AgentchoError:
        """What a call fails with that raised this by itself. `EngineFailed`: it was a device. What the failed work held
        is let go, so that memory that was short is there for the next. Ctrl-C is nobody's fault, and comes out."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        traceback.clear_frames(error.__traceback__)
        try:
            self.probe()
        except Exception:
            raise EngineFailed(error) from error
        if isinstance(error, AgentchoError):
            return error
        return CallFailed(error)

    def probe(self) -> None:
        """Something trivial on each device. Raises what that raises."""
        for device in self._devices:
            if device.type == "cuda":
                torch.cuda.empty_cache()
            assert torch.ones(2, device=device).sum().item() == 2

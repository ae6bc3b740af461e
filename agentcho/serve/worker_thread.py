"""Runs slow work that does not use the model in a thread, one piece at a time: several at once would take the CPU from
the event loop and the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

T = TypeVar("T")
_ONE = RunVar[CapacityLimiter]("_ONE")


async def beside(work: Callable[[], T]) -> T:
    """Return what `work` returns, or raise what it raises, from a thread. A cancelled caller waits until the work is
    done, because abandoned work would go on alongside the next piece."""
    if (one := _ONE.get(None)) is None:
        one = CapacityLimiter(1)
        _ONE.set(one)
    return await anyio.to_thread.run_sync(work, limiter=one)

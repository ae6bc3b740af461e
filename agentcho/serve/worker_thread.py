"""Work that takes long and computes nothing with the model, done beside the event loop, one piece at a time: several at
once would take the processor from the loop, and from the engine.

Does not know: what the work is.
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
    """What `work` returns, or raises, from a thread. Who is cancelled waits until it is done: what nobody waits for any
    more would go on all the same, beside the next."""
    if (one := _ONE.get(None)) is None:
        one = CapacityLimiter(1)
        _ONE.set(one)
    return await anyio.to_thread.run_sync(work, limiter=one)

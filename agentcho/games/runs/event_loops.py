"""The event loops that play games in this process, so that the command line can find out whether they react."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_playing: set[asyncio.AbstractEventLoop] = set()


@contextmanager
def playing_loop() -> Iterator[None]:
    """A context in which the running event loop of asyncio is listed. Under another library nothing is listed."""
    listed = set[asyncio.AbstractEventLoop]()
    with suppress(RuntimeError):
        listed.add(asyncio.get_running_loop())
    _playing.update(listed)
    try:
        yield
    finally:
        _playing.difference_update(listed)


def playing_loops() -> list[asyncio.AbstractEventLoop]:
    """Return the listed loops."""
    return list(_playing)

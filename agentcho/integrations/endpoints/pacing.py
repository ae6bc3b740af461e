"""When the next request to a server may be sent, whoever sends it: so many at a time, and so much a minute.

Does not know: what is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

MINUTE = 60.0


class MinuteWindow:
    """How much was begun in the last minute, where at most `most` (above 0) may be; None: there is no bound. What alone
    is more than the bound waits until nothing else was begun. A bound below one a minute makes the minute longer."""

    def __init__(self, most: float | None) -> None:
        self._most = most
        self._seconds = MINUTE if most is None else MINUTE * max(1.0, 1 / most)
        self._begun = deque[StartedRequest]()

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` more may begin, if nothing else begins; 0: now."""
        while self._begun and self._begun[0].at + self._seconds <= now:
            self._begun.popleft()
        if self._most is None or not self._begun:
            return 0.0
        over = sum(each.amount for each in self._begun) + amount - max(self._most, 1.0)
        for each in self._begun:
            if over <= 0:
                return 0.0
            over -= each.amount
            if over <= 0 or each is self._begun[-1]:
                return each.at + self._seconds - now
        return 0.0

    def begin(self, amount: float, now: float) -> StartedRequest:
        """Count `amount` from now on, until it is found to be another."""
        begun = StartedRequest(amount, now)
        if self._most is not None:
            self._begun.append(begun)
        return begun


class StartedRequest:
    """What was begun at a time, in seconds."""

    def __init__(self, amount: float, at: float) -> None:
        self.amount, self.at = amount, at


class RequestPacer:
    """The line in front of a server, first come, first served. Who is cancelled leaves it."""

    def __init__(self, concurrency: int, requests: float | None, tokens: float | None) -> None:
        self._places, self._line = anyio.Semaphore(concurrency), anyio.Lock()
        self._requests = MinuteWindow(requests)
        self._tokens = MinuteWindow(tokens)
        self._closed_until = 0.0

    @asynccontextmanager
    async def turn(self, tokens: float) -> AsyncIterator[StartedRequest]:
        """A place, held while the context lasts, from when a request of so many tokens may be sent. What it gives is
        that number, to be corrected when the true one is known."""
        async with self._line:
            await self._places.acquire()
            try:
                begun = await self._begin(tokens)
            except BaseException:
                self._places.release()
                raise
        try:
            yield begun
        finally:
            self._places.release()

    def close_for(self, seconds: float) -> None:
        """Let nobody begin for so long."""
        self._closed_until = max(self._closed_until, anyio.current_time() + seconds)

    async def _begin(self, tokens: float) -> StartedRequest:
        while (wait := self._wait(tokens, anyio.current_time())) > 0:
            await anyio.sleep(wait)
        now = anyio.current_time()
        self._requests.begin(1, now)
        return self._tokens.begin(tokens, now)

    def _wait(self, tokens: float, now: float) -> float:
        return max(self._requests.wait(1, now), self._tokens.wait(tokens, now), self._closed_until - now)

"""Limits requests to a server across all callers: requests in flight, and requests and tokens per minute."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

MINUTE = 60.0


class MinuteWindow:
    """The amount started within the last minute, limited to `most` (above 0), or unlimited if None. An amount above the
    limit waits until the window is empty. A limit below one per minute makes the window longer."""

    def __init__(self, most: float | None) -> None:
        self._most = most
        self._seconds = MINUTE if most is None else MINUTE * max(1.0, 1 / most)
        self._begun = deque[StartedRequest]()

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` more may start, if nothing else starts; 0 means now."""
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
        """Count `amount` from now on. The caller may correct it later."""
        begun = StartedRequest(amount, now)
        if self._most is not None:
            self._begun.append(begun)
        return begun


class StartedRequest:
    """An amount that was started at a time, in seconds."""

    def __init__(self, amount: float, at: float) -> None:
        self.amount, self.at = amount, at


class RequestPacer:
    """A first-come, first-served queue in front of a server. Cancelled callers leave it."""

    def __init__(self, concurrency: int, requests: float | None, tokens: float | None) -> None:
        self._places, self._line = anyio.Semaphore(concurrency), anyio.Lock()
        self._requests = MinuteWindow(requests)
        self._tokens = MinuteWindow(tokens)
        self._closed_until = 0.0

    @asynccontextmanager
    async def turn(self, tokens: float) -> AsyncIterator[StartedRequest]:
        """Wait until a request of this many tokens may be sent, and hold a place for it while the context lasts. Yields
        the counted amount, to be corrected once the true number is known."""
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
        """Let no request start for this many seconds."""
        self._closed_until = max(self._closed_until, anyio.current_time() + seconds)

    async def _begin(self, tokens: float) -> StartedRequest:
        while (wait := self._wait(tokens, anyio.current_time())) > 0:
            await anyio.sleep(wait)
        now = anyio.current_time()
        self._requests.begin(1, now)
        return self._tokens.begin(tokens, now)

    def _wait(self, tokens: float, now: float) -> float:
        return max(self._requests.wait(1, now), self._tokens.wait(tokens, now), self._closed_until - now)

"""Admits requests within limits on concurrency and requests per minute. Nothing waits here: a request is admitted, or
refused with the time to retry after.

Independent of HTTP and of what is requested.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import NamedTuple

import anyio

from agentcho.serve.api_errors import ApiError
from agentcho.serve.config import ServeLimits

KEPT = 0.75
"""The share of the old mean that stays in the mean duration of a tenant's requests when another one has ended."""
LONGEST_TURN = 60
"""Maximum wait in seconds that is announced if too many requests are running. OpenAI's clients ignore longer ones."""
LONGEST = 120
"""Maximum wait in seconds that is announced. Clients give up when they are told to wait longer."""
SHORTLY = 1
DRAINING = 5
"""Seconds after which to retry if the server is shutting down. Another server may then be in its place."""


class KeyLimits(NamedTuple):
    """Limits of one key: concurrent requests, and requests started within a minute. None: only its tenant's limits
    apply."""

    concurrent: int | None = None
    per_minute: int | None = None


class RateLimit:
    """A number of requests per minute, which may all come at once: a token bucket that is refilled evenly."""

    def __init__(self, per_minute: int, now: float) -> None:
        self._most = per_minute
        self._left = float(per_minute)
        self._seen = now

    def wait(self, now: float) -> float:
        """Seconds until a request is available; 0 means now."""
        self._left = min(self._most, self._left + (now - self._seen) * self._most / 60)
        self._seen = now
        return max(0.0, (1 - self._left) * 60 / self._most)

    def take(self) -> None:
        """Use up one request."""
        self._left -= 1


class Admission:
    """Counts running requests (`running`) and the bytes of bodies that are being read (`buffered`). `draining`: no more
    requests are accepted because the server is ending; `drained` is set when the last one has ended after that. `clock`
    returns seconds."""

    def __init__(self, limits: ServeLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self.draining, self.drained = False, anyio.Event()
        self.running = self.buffered = 0
        self._at_once = Counter[tuple[str, ...]]()
        self._rates: dict[tuple[str, ...], RateLimit] = {}
        self._took: dict[str, float] = {}

    def drain(self) -> None:
        """Accept no more requests."""
        self.draining = True
        self._note()

    def _note(self) -> None:
        if self.draining and not self.running:
            self.drained.set()

    @contextmanager
    def admitted(self, tenant: str, key: str, bounds: KeyLimits, timed: bool = True) -> Iterator[None]:
        """Count a request as running while the context lasts. `timed`: its duration tells about that of others.
        `ApiError` 503: the server has no room; 429: the limits of its tenant or its key are used up."""
        whose = (tenant,), (tenant, key)
        self._check_room(whose, bounds, self._turn(tenant))
        for rate in self._checked_rates(whose, bounds):
            rate.take()
        self.running += 1
        self._at_once.update(whose)
        began = self._clock()
        try:
            yield
        finally:
            took = self._clock() - began
            if timed:
                self._took[tenant] = KEPT * self._took.get(tenant, took) + (1 - KEPT) * took
            self.running -= 1
            self._at_once.subtract(whose)
            self._note()

    @contextmanager
    def buffering(self) -> Iterator[Callable[[int], None]]:
        """Count a body that is being read while the context lasts. Yields a function to call with the number of bytes
        of each piece. `ApiError` 503: all bodies together would exceed the limit."""
        held = 0

        def hold(count: int) -> None:
            nonlocal held
            if self.buffered + count > self._limits.buffered_bytes:
                raise ApiError(
                    503,
                    "the server is reading too many request bodies at the moment; try again later",
                    code="overloaded",
                    retry_after=SHORTLY,
                )
            held, self.buffered = held + count, self.buffered + count

        try:
            yield hold
        finally:
            self.buffered -= held

    def _turn(self, tenant: str) -> int:
        """Seconds after which one of the running requests has probably ended: the mean duration of the tenant's own
        requests, because that of all would tell about other tenants."""
        return min(LONGEST_TURN, max(SHORTLY, ceil(self._took.get(tenant, 0.0))))

    def _check_room(self, whose: tuple[tuple[str, ...], ...], bounds: KeyLimits, turn: int) -> None:
        if self.draining:
            raise ApiError(503, "the server is shutting down", code="shutting_down", retry_after=DRAINING)
        if self.running >= self._limits.requests:
            raise ApiError(
                503,
                "the server has no room for more requests at the moment; try again later",
                code="overloaded",
                retry_after=turn,
            )
        for who, most in zip(whose, (self._limits.tenant_requests, bounds.concurrent), strict=True):
            if most is not None and self._at_once[who] >= most:
                said = f"{most} requests of yours are under way, and no more are taken at once"
                raise ApiError(429, said, code="rate_limit_exceeded", retry_after=turn)

    def _checked_rates(self, whose: tuple[tuple[str, ...], ...], bounds: KeyLimits) -> list[RateLimit]:
        now, rates = self._clock(), list[RateLimit]()
        for who, most in zip(whose, (self._limits.tenant_per_minute, bounds.per_minute), strict=True):
            if most is None:
                continue
            rates.append(self._rates.setdefault(who, RateLimit(most, now)))
            if wait := rates[-1].wait(now):
                after = min(LONGEST, max(1, ceil(wait)))
                said = f"{most} requests a minute are taken of you, and these are used up"
                raise ApiError(429, said, code="rate_limit_exceeded", retry_after=after)
        return rates

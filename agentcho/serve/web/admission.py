"""Who may begin a request now: so many at once, so many a minute. Nobody waits here: there is room, or a refusal that
says when to come again.

Does not know: HTTP, keys, what is asked for.
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

LONGEST = 120
"""Seconds: clients come back no more when they are told to wait for longer."""
SHORTLY = 1


class KeyLimits(NamedTuple):
    """Bounds of one key: requests at once, and begun in a minute. None: those of its tenant alone."""

    concurrent: int | None = None
    per_minute: int | None = None


class RateLimit:
    """So many a minute, all of them at once if they like: a bucket that is filled evenly."""

    def __init__(self, per_minute: int, now: float) -> None:
        self._most = per_minute
        self._left = float(per_minute)
        self._seen = now

    def wait(self, now: float) -> float:
        """Seconds until there is one more; 0: there is one."""
        self._left = min(self._most, self._left + (now - self._seen) * self._most / 60)
        self._seen = now
        return max(0.0, (1 - self._left) * 60 / self._most)

    def take(self) -> None:
        """Use one up."""
        self._left -= 1


class Admission:
    """Counts the requests that are under way (`running`), and the bytes of the bodies that are being read
    (`buffered`). `draining`: no more are taken, for the server ends; `drained` is set when the last has ended then.
    `clock` gives seconds."""

    def __init__(self, limits: ServeLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self.draining, self.drained = False, anyio.Event()
        self.running = self.buffered = 0
        self._at_once = Counter[tuple[str, ...]]()
        self._rates: dict[tuple[str, ...], RateLimit] = {}

    def drain(self) -> None:
        """Take no more requests."""
        self.draining = True
        self._note()

    def _note(self) -> None:
        if self.draining and not self.running:
            self.drained.set()

    @contextmanager
    def admitted(self, tenant: str, key: str, bounds: KeyLimits) -> Iterator[None]:
        """A request under way, until the context ends. `ApiError` 503: the server has no room, 429: its tenant or its
        key has used up theirs."""
        whose = (tenant,), (tenant, key)
        self._check_room(whose, bounds)
        for rate in self._checked_rates(whose, bounds):
            rate.take()
        self.running += 1
        self._at_once.update(whose)
        try:
            yield
        finally:
            self.running -= 1
            self._at_once.subtract(whose)
            self._note()

    @contextmanager
    def buffering(self) -> Iterator[Callable[[int], None]]:
        """A body that is being read, until the context ends. What it gives is called with each number of bytes that
        came; `ApiError` 503: with these there would be too many, those of other requests included."""
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

    def _check_room(self, whose: tuple[tuple[str, ...], ...], bounds: KeyLimits) -> None:
        if self.draining:
            raise ApiError(503, "the server is shutting down", code="shutting_down", retry_after=5)
        if self.running >= self._limits.requests:
            raise ApiError(
                503,
                "the server has no room for more requests at the moment; try again later",
                code="overloaded",
                retry_after=SHORTLY,
            )
        for who, most in zip(whose, (self._limits.tenant_requests, bounds.concurrent), strict=True):
            if most is not None and self._at_once[who] >= most:
                said = f"{most} requests of yours are under way, and no more are taken at once"
                raise ApiError(429, said, code="rate_limit_exceeded", retry_after=SHORTLY)

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

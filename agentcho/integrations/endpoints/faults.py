"""Failures of requests: whether a request may be sent again, and what is reported, without keys and without words of
the prompt.

Independent of HTTP clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import NamedTuple

from agentcho.errors import EndpointFailed

AGAIN = frozenset({408, 409, 429})
"""Client error statuses after which the same request may succeed."""
NEVER = frozenset({"insufficient_quota", "billing_hard_limit_reached", "context_length_exceeded"})
"""Error codes that no retry can fix, whatever the status."""
LONGEST_WAIT = 120.0
"""The longest pause, in seconds, that a server may ask for."""
LONGEST, READ = 200, 4000
"""Characters of a server's error message that are reported (`LONGEST`) and that are read for that (`READ`)."""
SHARED = 6
"""Minimum length of a run of characters shared with the prompt that is removed from a server's error."""
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
REMEDIES = {
    400: "the request does not suit this server or its model; describe its abilities with server and can",
    401: "the key was rejected; check where it comes from (key_env, key_file)",
    403: "the key has no permission for this",
    404: "there is no such address or model; check base_url and the model's name",
    413: "the prompt is too long for this server",
    422: "the server does not know a field of the request; describe its abilities with server and can",
    429: (
        "the server accepts no more requests at the moment; lower concurrency, requests_per_minute or tokens_per_minute"
    ),
}


class AttemptFailed(Exception):
    """One attempt at a request failed. `again`: the same request may succeed later. `wait`: seconds that the server
    asks for."""

    def __init__(
        self, what: str, status: int | None = None, again: bool = False, wait: float | None = None, told: str = ""
    ) -> None:
        super().__init__(what)
        self.what = what
        self.status = status
        self.again = again
        self.wait = wait
        self.told = told

    def error(self, where: str) -> EndpointFailed:
        """The error that the game sees."""
        remedy = REMEDIES.get(self.status or 0, "")
        details = "; ".join(filter(None, (self.told, remedy)))
        return EndpointFailed(f"{where} {self.what}{f': {details}' if details else ''}", self.status, self.again)


class Refusal(NamedTuple):
    """A server's reason for refusing a request, read from the different forms that servers use. `field`: the field of
    the request that it is about."""

    code: str
    message: str
    field: str = ""

    @classmethod
    def of(cls, body: object) -> Refusal:
        """Parse the body of an error response."""
        inner = body.get("error", body) if isinstance(body, Mapping) else body
        if not isinstance(inner, Mapping):
            return cls("", inner if isinstance(inner, str) else "")
        message = next((inner[key] for key in ("message", "detail") if isinstance(inner.get(key), str)), "")
        code = next((str(inner[key]) for key in ("code", "type") if isinstance(inner.get(key), str | int)), "")
        field = inner.get("param")
        return cls(
            code if re.fullmatch(r"[\w.-]{1,64}", code) else "", message, field if isinstance(field, str) else ""
        )

    def about(self, fields: Iterable[str]) -> Refusal:
        """Return the reason, without its field if that is none of those that were sent."""
        return self if self.field in fields else self._replace(field="")

    def told(self, prompt: Iterable[str]) -> str:
        """Return the reason on one line for an error message, without anything quoted and without text of the
        prompt."""
        plain = "".join(char if char.isprintable() else " " for char in self.message[:READ])
        words = " ".join(QUOTED.sub("…", plain).split())[:LONGEST]
        named = (f"[{self.code}]" if self.code else "", f"{self.field}:" if self.field else "")
        return " ".join(filter(None, (*named, _apart(words, list(prompt)))))


def _apart(words: str, texts: list[str]) -> str:
    """Return `words` with runs of at least `SHARED` characters that occur in one of the texts replaced."""
    shared = set[int]()
    for at in range(len(words) - SHARED + 1):
        if any(words[at : at + SHARED] in text for text in texts):
            shared.update(range(at, at + SHARED))
    return re.sub("\0+", "…", "".join("\0" if at in shared else char for at, char in enumerate(words)))


def is_passing(status: int, refusal: Refusal) -> bool:
    """Whether a request that was refused like this may succeed later."""
    return (status in AGAIN or status >= 500) and refusal.code not in NEVER


def refused(status: int, refusal: Refusal, wait: float | None, prompt: Iterable[str]) -> AttemptFailed:
    """The failure for a response with an error status."""
    again = is_passing(status, refusal)
    if 300 <= status < 400:
        return AttemptFailed(
            (f"redirects to another address (HTTP {status}), to which no key is sent; give that address as base_url"),
            status,
        )
    told = "" if status in (401, 403) else refusal.told(prompt)
    return AttemptFailed(what=f"answers HTTP {status}", status=status, again=again, wait=wait, told=told)


def asked_wait(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds of a Retry-After header, which is a number or a date. None if it is missing or unreadable."""
    said = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", said):
        return float(said)
    try:
        date = parsedate_to_datetime(said)
    except (TypeError, ValueError):
        return None
    zoned = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return max(0.0, (zoned - (now or datetime.now(UTC))).total_seconds())


class Backoff(NamedTuple):
    """How long to wait before a request is repeated: a random part of a bound that doubles with each attempt (full
    jitter), on top of the pause that the server asks for."""

    first: float = 0.5
    longest: float = 20.0

    def seconds(self, attempt: int, asked: float | None, random: Random) -> float:
        """The wait after an attempt, numbered from 0."""
        bound = self.first if asked is not None else min(self.longest, self.first * 2 ** min(attempt, 30))
        return (asked or 0.0) + random.uniform(0.0, bound)

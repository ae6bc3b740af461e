"""What goes wrong with a request, whether it may be sent again, and what is told of it: no keys and no words.

Does not know: HTTP clients, prompts but to keep them out of errors.
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
"""Statuses of the client's side after which the same request may succeed."""
NEVER = frozenset({"insufficient_quota", "billing_hard_limit_reached", "context_length_exceeded"})
"""Codes that no waiting mends, whatever the status."""
LONGEST_WAIT = 120.0
"""The most seconds that a server may ask to be left alone."""
LONGEST, READ = 200, 4000
"""Characters that are told of what a server says of an error, and that are looked at for that."""
SHARED = 6
"""So many characters together that a server's error has in common with the prompt are not told."""
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
REMEDIES = {
    400: "the request does not suit this server or its model",
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
    """One attempt at a request failed. `again`: the same may succeed; `wait` are seconds that the server asks for."""

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
        """What a game sees of it."""
        remedy = REMEDIES.get(self.status or 0, "")
        details = "; ".join(filter(None, (self.told, remedy)))
        return EndpointFailed(f"{where} {self.what}{f': {details}' if details else ''}", self.status, self.again)


class Refusal(NamedTuple):
    """What a server says of a request that it refuses, in the forms that servers have for it."""

    code: str
    message: str

    @classmethod
    def of(cls, body: object) -> Refusal:
        """The refusal in the body of an error."""
        inner = body.get("error", body) if isinstance(body, Mapping) else body
        if not isinstance(inner, Mapping):
            return cls("", inner if isinstance(inner, str) else "")
        message = next((inner[key] for key in ("message", "detail") if isinstance(inner.get(key), str)), "")
        code = next((str(inner[key]) for key in ("code", "type") if isinstance(inner.get(key), str | int)), "")
        return cls(code if re.fullmatch(r"[\w.-]{1,64}", code) else "", message)

    def told(self, prompt: Iterable[str]) -> str:
        """It in the words of an error, on one line, without what stands in quotes or in the prompt."""
        plain = "".join(char if char.isprintable() else " " for char in self.message[:READ])
        words = " ".join(QUOTED.sub("…", plain).split())[:LONGEST]
        return " ".join(filter(None, (f"[{self.code}]" if self.code else "", _apart(words, list(prompt)))))


def _apart(words: str, texts: list[str]) -> str:
    """`words` without the stretches of `SHARED` characters or more that are in one of the texts."""
    shared = set[int]()
    for at in range(len(words) - SHARED + 1):
        if any(words[at : at + SHARED] in text for text in texts):
            shared.update(range(at, at + SHARED))
    return re.sub("\0+", "…", "".join("\0" if at in shared else char for at, char in enumerate(words)))


def is_passing(status: int, refusal: Refusal) -> bool:
    """Whether a request that is refused so may succeed later."""
    return (status in AGAIN or status >= 500) and refusal.code not in NEVER


def refused(status: int, refusal: Refusal, wait: float | None, prompt: Iterable[str]) -> AttemptFailed:
    """The failure of a request that was answered with an error's status."""
    again = is_passing(status, refusal)
    if 300 <= status < 400:
        return AttemptFailed(
            (f"redirects to another address (HTTP {status}), to which no key is sent; give that address as base_url"),
            status,
        )
    told = "" if status in (401, 403) else refusal.told(prompt)
    return AttemptFailed(what=f"answers HTTP {status}", status=status, again=again, wait=wait, told=told)


def asked_wait(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """The seconds in a Retry-After header, a number or a date; None: there is none that can be read."""
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
    """How long to wait before a request is sent again: a random part of a time that doubles with each attempt (full
    jitter), on top of what the server asks for."""

    first: float = 0.5
    longest: float = 20.0

    def seconds(self, attempt: int, asked: float | None, random: Random) -> float:
        """The wait after the attempt of this number, from 0."""
        bound = self.first if asked is not None else min(self.longest, self.first * 2 ** min(attempt, 30))
        return (asked or 0.0) + random.uniform(0.0, bound)

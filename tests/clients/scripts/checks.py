"""Shared by all scripts of this folder: runs checks by name and prints one JSON object with their results.

A script runs under the Python of its client's environment, which does not have agentcho.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

PROMPT = "What is 3 x 4?"
TASK = "Agree on a price."
BRIEFS = {
    "ann": "You are Ann. You may pay 30 at most, and nobody knows that.",
    "ben": "You are Ben. You sell from 20 on, and nobody knows that.",
    "cal": "You are Cal. You want a fee of 2, and nobody knows that.",
}
TURNS = 9
"""Number of turns in a talk of three agents, each with a brief that the others do not know."""
WAIT = 20.0
"""Seconds within which the row of a cancelled request must be free."""


class Target(NamedTuple):
    """Where to send requests: the server's address without a path, its model, and two keys. `key` may read metrics;
    `slow_key` allows one request per minute. A request with the text `broken` fails while it is answered."""

    root: str
    model: str
    key: str
    slow_key: str
    broken: str

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def of(self, society: str, agent: str) -> str:
        """The base URL of an agent of a society."""
        return f"{self.root}/s/{society}/{agent}/v1"

    def tokens(self) -> dict[str, int]:
        """Prompt tokens that the server has read, and how many of them were reused."""
        return {kind: self._count(f'agentcho_tokens_total{{kind="{kind}"}}') for kind in ("prompt", "exact", "reused")}

    @property
    def too_long(self) -> str:
        """A text longer than any context."""
        return "snow is white. " * 20_000

    def running(self) -> int:
        """The number of decode rows that run on the server now."""
        return self._count("agentcho_running_rows{")

    def _count(self, beginning: str) -> int:
        """The sum of the metrics that start with `beginning`."""
        asked = urllib.request.Request(f"{self.root}/metrics", headers={"authorization": f"Bearer {self.key}"})
        with urllib.request.urlopen(asked) as answer:
            lines = answer.read().decode().splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(beginning))

    def reaches(self, rows: int) -> int:
        """Waits until `rows` rows run, or for `WAIT` seconds; returns the number that run."""
        ends = time.monotonic() + WAIT
        while self.running() != rows and time.monotonic() < ends:
            pass
        return self.running()

    async def reached(self, rows: int) -> int:
        """Like `reaches`, without blocking the event loop."""
        return await asyncio.to_thread(self.reaches, rows)


Check = Callable[[Target], Any]


def reused(target: Target, talk: Callable[[], Any]) -> dict[str, Any]:
    """The result of a talk, with the share of its prompt tokens that were reused."""
    before = target.tokens()
    return _with_share(target, before, talk())


async def reused_async(target: Target, talk: Awaitable[Any]) -> dict[str, Any]:
    """Like `reused`, for an awaitable."""
    before = target.tokens()
    return _with_share(target, before, await talk)


def _with_share(target: Target, before: dict[str, int], said: Any) -> dict[str, Any]:
    took = {kind: count - before[kind] for kind, count in target.tokens().items()}
    return {"said": said, "reused": (took["exact"] + took["reused"]) / took["prompt"]}


def usage(prompt: int | None, completion: int | None, total: int | None, cached: int | None = 0) -> dict[str, Any]:
    """Token counts as a client reports them, under names common to all clients."""
    return {"prompt": prompt, "completion": completion, "total": total, "cached": cached}


def told(error: BaseException) -> dict[str, Any]:
    """An error as JSON: the names of its class and base classes, its message, code and status."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    code = getattr(error, "code", None)
    return {"raised": kinds, "message": str(error)[:2000], "code": code, "status": getattr(error, "status_code", None)}


def main(*checks: Check) -> None:
    """Runs the checks named on standard input, in order, and prints what each returned or raised."""
    asked = json.load(sys.stdin)
    target, by_name = Target(**asked["target"]), {check.__name__: check for check in checks}
    print("\n" + json.dumps(asyncio.run(_all(target, [by_name[name] for name in asked["checks"]]))))


async def _all(target: Target, checks: list[Check]) -> dict[str, Any]:
    return {check.__name__: await _found(check, target) for check in checks}


async def _found(check: Check, target: Target) -> Any:
    try:
        made = check(target)
        return await made if inspect.isawaitable(made) else made
    except Exception as error:
        return told(error)

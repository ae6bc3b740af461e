"""Runs code of a client repeatedly, in the client's own environment: one line of JSON in, one line out.

In: {"code": …}. Out: {"seconds": …, "answers": […]}, with the total duration of all calls of `asyncio.run`, and for
each request the duration, the words and the usage of its answer; or {"error": …}. Must not import agentcho: it needs
only the standard library and httpx, or its successor.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import json
import sys
from time import perf_counter
from typing import Any

answers: list[dict[str, Any]] = []
taken: list[float] = []


def timed_run(run: Any) -> Any:
    """`asyncio.run`, recording how long it took."""

    def timed(*given: Any, **options: Any) -> Any:
        began = perf_counter()
        result = run(*given, **options)
        taken.append(perf_counter() - began)
        return result

    return timed


def timed_send(send: Any) -> Any:
    """`httpx.AsyncClient.send`, recording the answer of each chat."""

    async def timed(self: Any, request: Any, **options: Any) -> Any:
        began = perf_counter()
        response = await send(self, request, **options)
        body = await response.aread()
        if request.method == "POST":
            answers.append({"seconds": perf_counter() - began} | of_answer(response.status_code, body))
        return response

    return timed


def of_answer(status: int, body: bytes) -> dict[str, Any]:
    """The words of a chat's answer and its usage."""
    if status != 200:
        raise RuntimeError(f"HTTP {status}: {body[:200]!r}")
    answer = json.loads(body)
    return {"text": answer["choices"][0]["message"]["content"], "usage": answer.get("usage") or {}}


def ran(code: str) -> dict[str, Any]:
    """Run this code once; return the result."""
    answers.clear()
    taken.clear()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, "client", "exec"), {"__name__": "__main__"})
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"seconds": sum(taken), "answers": list(answers)}


def main() -> None:
    """Run until there is no more input."""
    asyncio.run = timed_run(asyncio.run)
    for name in ("httpx", "httpx2"):
        with contextlib.suppress(ModuleNotFoundError):
            library = importlib.import_module(name)
            library.AsyncClient.send = timed_send(library.AsyncClient.send)
    for line in sys.stdin:
        print(json.dumps(ran(json.loads(line)["code"])), flush=True)


if __name__ == "__main__":
    main()

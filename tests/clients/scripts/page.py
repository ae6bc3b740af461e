"""Runs a block of code from the page on clients; prints its output and the requests that it made.

This works for any client that sends requests by httpx or its successor.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from typing import Any

sent: list[dict[str, Any]] = []


def record(name: str) -> None:
    """Starts recording the requests sent by this library, with their answers."""
    try:
        library = importlib.import_module(name)
    except ModuleNotFoundError:
        return
    send, send_async = library.Client.send, library.AsyncClient.send

    def kept(self: Any, request: Any, **options: Any) -> Any:
        response = send(self, request, **options)
        response.read()
        keep(request, response)
        return response

    async def kept_async(self: Any, request: Any, **options: Any) -> Any:
        response = await send_async(self, request, **options)
        await response.aread()
        keep(request, response)
        return response

    library.Client.send, library.AsyncClient.send = kept, kept_async


def keep(request: Any, response: Any) -> None:
    """Records a request and its response."""
    if request.method == "POST":
        asked, answer = json.loads(request.content), response.content.decode()
        made = json.loads(answer) if answer.startswith("{") else answer
        sent.append({"path": request.url.path, "asked": asked, "status": response.status_code, "answer": made})


def main() -> None:
    """Runs the code on standard input."""
    for library in ("httpx", "httpx2"):
        record(library)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(sys.stdin.read(), "page", "exec"), {"__name__": "__main__"})
    print("\n" + json.dumps({"said": said.getvalue(), "sent": sent}))


main()

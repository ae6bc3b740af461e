"""`agentcho serve` in its own process as a user starts it, except that a request can make its own answer fail."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from agentcho.errors import CallFailed
from agentcho.serve.request import Answers, Caller, ChatRequest, Hear
from agentcho.serve.sharing.served import ServedModel
from agentcho.serve.web.keys import add_key

from .environment import ROOT

BROKEN = "Say something, and fail at it."


class Server(NamedTuple):
    """A running server: its address without a path, the folder of its records, and two keys. One may read metrics; the
    other allows one request per minute."""

    root: str
    runs: Path
    key: str
    slow_key: str


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server of the understudy that runs until the context ends."""
    keys, runs = folder / "keys.toml", folder / "runs"
    whole, slow = add_key(keys, tenant="one", metrics=True), add_key(keys, tenant="two", requests_per_minute=1)
    options = ["--model", "understudy", "--port", "0", "--keys", str(keys), "--record", str(runs)]
    command = [sys.executable, "-m", "tests.clients.served", "serve", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = next(filter(None, (re.search(r"http://[\w.]+:\d+", line) for line in process.stdout)), None)
            assert found, "the server ended before it said where it is"
            yield Server(found[0], runs, whole, slow)
        finally:
            process.terminate()


def fail_where_asked() -> None:
    """Makes a request with the text `BROKEN` fail like an engine call, after its whole answer but before the end."""
    answer = ServedModel.answer

    async def failing(self: ServedModel, caller: Caller, request: ChatRequest, hear: Hear) -> Answers:
        made = await answer(self, caller, request, hear)
        if request.messages[-1].text == BROKEN:
            raise CallFailed("told to fail")
        return made

    ServedModel.answer = failing  # type: ignore[method-assign]


if __name__ == "__main__":
    from agentcho.cli import main

    fail_where_asked()
    main()

"""Test servers in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from threading import Thread


@contextmanager
def answering(server: BaseServer) -> Iterator[None]:
    """Answers requests in a thread during the `with` block, then closes the server."""
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""Serves the page of a run in progress, only on this machine and only to clients that know the full address.

The address has an unguessable token. A page of another site that resolves its own name to this machine (DNS rebinding)
is refused, because its requests do not have this machine's name. Content is read from the record, so the page of a
killed run still works. Independent of the page's content.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import NamedTuple

import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agentcho.errors import ConfigError, RecordError
from agentcho.records.record import SavedRun
from agentcho.viewer.figures import PageFigures
from agentcho.viewer.page import live_page, parts, policy
from agentcho.viewer.page_content import PageContent, PageSelection, folder_of_runs, page_content, records_in, target
from agentcho.viewer.under_way import UnderWay

HOST = "127.0.0.1"
NAMES = frozenset({HOST, "localhost"})
AGAIN = 4.0
"""A record is not read again before this many times the duration of the last read."""

Find = Callable[[Path], PageFigures | None]
"""The results over all runs of a folder, if it is a comparison or a sweep."""


def no_figures(folder: Path) -> PageFigures | None:
    """Finds no results in any folder."""


class PageState(NamedTuple):
    """An update for a page: the version of the files, and the JSON of one game."""

    version: str
    body: bytes


State = Callable[[str, int], PageState | None]
"""The content of a game, or None if the page's version is current."""


class LiveRecords:
    """The shown records, read again when they have changed. Raises `RecordNotFound` if there are none."""

    def __init__(self, named: str, out: Path, eyes: str | None = None, found: Find = no_figures) -> None:
        self._began = [run.path for run in target(named, out)]
        self._folder = folder_of_runs(named)
        self._find = found
        self._eyes = eyes
        self._lock = Lock()
        self._read: tuple[str, PageContent] | None = None
        self._next = 0.0
        self._under_way: dict[Path, UnderWay] = {}
        self.title = self._shown(self._stamp()).head["title"]

    def state(self, version: str, game: int) -> PageState | None:
        """The content of a game, or None if the page's version is current, or recent enough."""
        with self._lock:
            stamp = self._stamp()
            now = f"{stamp}-{game}"
            if now == version or (version.endswith(f"-{game}") and perf_counter() < self._next):
                return None
            began = perf_counter()
            found = self._shown(stamp)
            talk = found.talks[game].data() if game < len(found.talks) else None
            body = json.dumps({"version": now, "head": found.heads(), "talk": talk})
            self._next = perf_counter() + AGAIN * (perf_counter() - began)
            return PageState(now, body.encode())

    def words(self, version: str, game: int) -> PageState | None:
        """The words of messages of a game in progress, or None if the page has them. Reads only appended lines, so that
        it can be called often."""
        read = self._read
        of = None if read is None or game >= len(read[1].talks) else read[1].talks[game].of
        if of is None:
            return None
        count, said = self._under_way.setdefault(of.run, UnderWay(of.run, self._eyes)).words(of.game, of.attempt)
        now = f"{count}-{game}"
        return None if now == version else PageState(now, json.dumps({"version": now, "words": said}).encode())

    def _shown(self, stamp: str) -> PageContent:
        if self._read is None or self._read[0] != stamp:
            runs = [SavedRun(path) for path in self._paths()]
            found = None if self._folder is None else self._find(self._folder)
            self._read = stamp, page_content(runs, PageSelection(self._eyes), live=True, figures=found)
        return self._read[1]

    def _paths(self) -> list[Path]:
        """The runs that exist so far."""
        return self._began if self._folder is None else records_in(self._folder)

    def _stamp(self) -> str:
        """A digest of the files' metadata, and of whether processes still write them."""
        found = []
        paths = self._paths()
        for path in [*paths, *([] if self._folder is None else [self._folder])]:
            for file in sorted(path.glob("*.json*")):
                known = file.stat()
                found.append((str(file), known.st_size, known.st_mtime_ns))
        found += [(SavedRun(path).status, 0, 0) for path in paths]
        return blake2b(repr(found).encode(), digest_size=8).hexdigest()


class LocalHostOnly:
    """Refuses requests that do not use this machine's own name, which a page of another site cannot send."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}".encode() for name in NAMES}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        hosts = [value for name, value in scope.get("headers", ()) if name == b"host"]
        if scope["type"] == "http" and (len(hosts) != 1 or hosts[0].lower() not in self._hosts):
            await Response("the request names another host", HTTPStatus.MISDIRECTED_REQUEST)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def application(source: LiveRecords, token: str, port: int) -> ASGIApp:
    """Three addresses behind the token: the page, its data, and the words of messages in progress. Nothing else is
    served."""

    async def page(request: Request) -> Response:
        return HTMLResponse(
            live_page({"title": source.title}), headers=HEADERS | {"Content-Security-Policy": _policy()}
        )

    async def data(request: Request) -> Response:
        return await answer(source.state, request)

    async def words(request: Request) -> Response:
        return await answer(source.words, request)

    async def answer(state: State, request: Request) -> Response:
        version = request.query_params.get("version", "")
        game = request.query_params.get("game", "0")
        number = int(game) if game.isdecimal() and len(game) < 10 else 0
        try:
            found = await anyio.to_thread.run_sync(partial(state, version, number))
        except (RecordError, OSError):  # the record is being written, or was deleted
            return Response(status_code=HTTPStatus.SERVICE_UNAVAILABLE, headers=HEADERS)
        if found is None:
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=HEADERS)
        return Response(found.body, media_type="application/json", headers=HEADERS)

    routes = [
        Route(f"/{token}/{name}", endpoint, methods=["GET"])
        for name, endpoint in (("", page), ("data", data), ("words", words))
    ]
    return LocalHostOnly(Starlette(routes=routes), port)


HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def _policy() -> str:
    """The page's policy, extended so that no other page may frame it."""
    return f"{policy(parts(), live=True)}; frame-ancestors 'none'"


def serve(source: LiveRecords, port: int, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `ready` is called with the address. Raises `ConfigError` if the port is in use."""
    token = secrets.token_urlsafe(24)
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise ConfigError(f"cannot listen on {HOST}:{port}: {error.strerror}; give another --port, or 0") from None
    with listening:
        port = listening.getsockname()[1]
        config = uvicorn.Config(
            application(source, token, port),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        ready(f"http://{HOST}:{port}/{token}/")
        uvicorn.Server(config).run(sockets=[listening])

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
from agentcho.viewer.beside import beside as beside_page
from agentcho.viewer.figures import PageFigures
from agentcho.viewer.live_games import LiveContent, LiveGames
from agentcho.viewer.page import live_page, parts, policy
from agentcho.viewer.page_content import NamedRuns, PageContent, PageSelection, page_content
from agentcho.viewer.under_way import UnderWay

HOST = "127.0.0.1"
NAMES = frozenset({HOST, "localhost"})
AGAIN = 4.0
"""Records are not read again before this many times the duration of the last read and of the answers made from it."""

Find = Callable[[Path], PageFigures | None]
"""The results over all runs of a folder, if it is a comparison or a sweep."""


def no_figures(folder: Path) -> PageFigures | None:
    """Finds no results in any folder."""


class PageVersions(NamedTuple):
    """The versions of the head and of a game that a page has; empty for none."""

    head: str = ""
    game: str = ""


class LiveRecords:
    """The shown records, read again when they have changed. Raises `RecordNotFound` if there are none. `beside`: the
    run, or folder of runs, to be compared with the first."""

    def __init__(
        self, named: str, out: Path, eyes: str | None = None, found: Find = no_figures, beside: str | None = None
    ) -> None:
        self._sides = [NamedRuns(each, out) for each in (named, beside) if each is not None]
        self._find = found
        self._eyes = eyes
        self._lock = Lock()
        self._games = LiveGames()
        self._next = 0.0
        self._under_way: dict[Path, UnderWay] = {}
        self._stamp = self._digest()
        page = self._page()
        self.title = page.head["title"]
        self._read = self._games.content(page)

    def data(self, number: int | None, has: PageVersions) -> bytes | None:
        """What a page does not have of the head and of a game, None for the first one; None if it has both, or what it
        has is recent enough."""
        with self._lock:
            began = perf_counter()
            read = self._content(fresh=not has.head)
            if number is None:
                number = next(iter(read.games), None)
            game = None if number is None else read.games.get(number)
            parts = {"head": (read.head, has.head)} | ({} if game is None else {"talk": (game.data, has.game)})
            new = [f'"{name}": {part.text}' for name, (part, version) in parts.items() if part.version != version]
            self._next += (1 + AGAIN) * (perf_counter() - began)
        if not new:
            return None
        about = {"game": number, "versions": {name: part.version for name, (part, _) in parts.items()}}
        return "".join(("{", ", ".join([json.dumps(about)[1:-1], *new]), "}")).encode()

    def words(self, number: int | None, version: str) -> bytes | None:
        """The words of messages of a game in progress, or None if the page has them. Reads only appended lines, so that
        it can be called often."""
        game = None if number is None else self._read.games.get(number)
        of = None if game is None else game.shown.of
        if of is None:
            return None
        count, said = self._under_way.setdefault(of.run, UnderWay(of.run, self._eyes)).words(of.game, of.attempt)
        now = f"{count}-{number}"
        return None if now == version else json.dumps({"version": now, "words": said}).encode()

    def _content(self, fresh: bool) -> LiveContent:
        """The content as last read, or read again: if that is due, or at once for a page that has nothing."""
        if fresh or perf_counter() >= self._next:
            self._next = perf_counter()
            stamp = self._digest()
            if stamp != self._stamp:
                self._read = self._games.content(self._page())
                self._stamp = stamp
        return self._read

    def _page(self) -> PageContent:
        """The content of the page, from the records."""
        chosen = PageSelection(self._eyes)
        first, last = self._sides[0], self._sides[-1]
        if last is not first:
            return beside_page(first.runs(), last.runs(), chosen, (first.name, last.name), live=True)
        figures = None if first.folder is None else self._find(first.folder)
        return page_content(first.runs(), chosen, live=True, figures=figures)

    def _digest(self) -> str:
        """A digest of the files' metadata, and of whether processes still write them."""
        found = []
        paths = [path for side in self._sides for path in side.paths()]
        for path in [*paths, *(side.folder for side in self._sides if side.folder is not None)]:
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
        has = PageVersions(*(request.query_params.get(name, "") for name in ("head", "talk")))
        return await answer(partial(source.data, _game(request), has))

    async def words(request: Request) -> Response:
        return await answer(partial(source.words, _game(request), request.query_params.get("version", "")))

    async def answer(ask: Callable[[], bytes | None]) -> Response:
        try:
            found = await anyio.to_thread.run_sync(ask)
        except (RecordError, OSError):  # the record is being written, or was deleted
            return Response(status_code=HTTPStatus.SERVICE_UNAVAILABLE, headers=HEADERS)
        if found is None:
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=HEADERS)
        return Response(found, media_type="application/json", headers=HEADERS)

    routes = [
        Route(f"/{token}/{name}", endpoint, methods=["GET"])
        for name, endpoint in (("", page), ("data", data), ("words", words))
    ]
    return LocalHostOnly(Starlette(routes=routes), port)


def _game(request: Request) -> int | None:
    """The number of the game that is asked for; None if there is no valid one."""
    game = request.query_params.get("game", "")
    return int(game) if game.isdecimal() and len(game) < 10 else None


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

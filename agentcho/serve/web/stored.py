"""The routes of stored responses: read one, list what it read, delete it.

Independent of models and of how responses are made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agentcho.serve.api import items
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Caller
from agentcho.serve.web.conversations import ResponseStore
from agentcho.serve.web.exchange import JSON

LISTED, MOST_LISTED = 20, 100
"""How many items a list has: by default, and at most."""


class StoredRoutes:
    """The routes. `asker` is the caller of a request that names no model, `admitted` the context in which it is
    answered."""

    def __init__(
        self,
        store: ResponseStore,
        asker: Callable[[Scope], Caller],
        admitted: Callable[[Scope], AbstractContextManager[None]],
    ) -> None:
        self._store, self._asker = store, asker
        self._admitted = admitted

    def routes(self, base: str) -> list[Route]:
        """The routes below a base URL."""
        one = f"{base}/v1/responses/{{id}}"
        return [
            Route(one, StoredRoute(self._admitted, self.response), methods=["GET"]),
            Route(one, StoredRoute(self._admitted, self.delete_response), methods=["DELETE"]),
            Route(f"{one}/input_items", StoredRoute(self._admitted, self.input_items), methods=["GET"]),
        ]

    async def response(self, request: Request) -> Response:
        """A stored response, as it was sent."""
        if request.query_params.get("stream", "false") != "false":
            raise ApiError(400, "stream: a stored response is sent as a whole; leave it out", "stream")
        found = self._store.shown(self._asker(request.scope), request.path_params["id"])
        return Response(found.shown.encode(errors="replace"), media_type=JSON)

    async def delete_response(self, request: Request) -> Response:
        """Delete a stored response. It can no longer be continued."""
        id = request.path_params["id"]
        self._store.delete(self._asker(request.scope), id)
        return JSONResponse({"id": id, "object": "response", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        """The messages before a stored response, those of the responses that it continues included."""
        id = request.path_params["id"]
        found = self._store.shown(self._asker(request.scope), id)
        listed = items.written(found.messages[:-1], id.removeprefix("resp_"))
        return JSONResponse(_page(listed, request))


class StoredRoute:
    """One route. A request counts as running until its answer is sent."""

    def __init__(
        self,
        admitted: Callable[[Scope], AbstractContextManager[None]],
        answer: Callable[[Request], Awaitable[Response]],
    ) -> None:
        self._admitted, self._answer = admitted, answer
        self.route = answer.__name__

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. `ApiError`: there is no room for it, or nothing to answer it with."""
        with self._admitted(scope):
            answer = await self._answer(Request(scope, receive))
            await answer(scope, receive, send)


def _page(listed: Sequence[dict[str, Any]], request: Request) -> dict[str, Any]:
    """The part of a list that a request asks for. `ApiError`: its parameters are wrong."""
    asked = request.query_params
    order, limit, after = asked.get("order", "desc"), asked.get("limit", str(LISTED)), asked.get("after")
    if order not in ("asc", "desc"):
        raise ApiError(400, 'order: give "asc" (oldest first) or "desc"', "order")
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:9]) <= MOST_LISTED):
        raise ApiError(400, f"limit: give a whole number from 1 to {MOST_LISTED}", "limit")
    ordered = list(listed) if order == "asc" else list(listed)[::-1]
    places = {item["id"]: place for place, item in enumerate(ordered)}
    if after is not None and after not in places:
        raise ApiError(
            400, "after: the list has no item with this id; give the last_id of a list in this order", "after"
        )
    start = 0 if after is None else places[after] + 1
    data = ordered[start : start + int(limit)]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"object": "list", "data": data, **ends, "has_more": start + len(data) < len(ordered)}

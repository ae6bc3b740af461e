"""The application: routes, access to them, and errors in a uniform shape. Pure ASGI throughout, so that a disconnect of
the client is noticed behind the middleware, and half of a stream is never ended as if it were complete.

Independent of sockets, and of how requests are read and answers written.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from traceback import walk_tb
from typing import Any, NamedTuple, Protocol, cast, get_args
from urllib.parse import urlsplit
from uuid import uuid4

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentcho.protocol.call import FramePort
from agentcho.serve.api import chat, ids, models, responses
from agentcho.serve.api.answer_shape import Shape
from agentcho.serve.api.body import within, within_letters
from agentcho.serve.api.limits import RequestLimits
from agentcho.serve.api.messages import letters
from agentcho.serve.api_errors import ApiError, api_error
from agentcho.serve.config import ServeLimits
from agentcho.serve.request import AnswerDelta, Answers, Caller, ChatRequest, Hear, ServedMode, Sharing
from agentcho.serve.web import metrics
from agentcho.serve.web.admission import DRAINING, Admission, KeyLimits
from agentcho.serve.web.conversations import PARAM, ResponseStore
from agentcho.serve.web.exchange import GONE, TWO_LENGTHS, Channel, Events, as_json
from agentcho.serve.web.keys import ABSENT, ApiKey, ApiKeys, RequestClaim
from agentcho.serve.web.length import check_length
from agentcho.serve.web.stored import StoredRoutes

LOG = logging.getLogger("agentcho.serve")
"""Logs ids, routes, statuses and error classes; never words of messages, names of societies, or keys."""
REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
OPEN = "/health"
OFFERED = (
    "this server offers POST /v1/chat/completions, POST /v1/responses, GET and DELETE /v1/responses/ID, GET "
    "/v1/responses/ID/input_items, GET /v1/models, GET /health, GET /version and GET /metrics"
)
MISSING = {
    "/v1/completions": "this server completes no plain text, so send it as a message to /v1/chat/completions",
    "/v1/embeddings": "this server computes no embeddings",
}
"""What is said of known endpoints that are not offered."""
UNREADABLE = "\N{REPLACEMENT CHARACTER}"
"""Stands in a path for bytes that are not text."""


class Model(Protocol):
    """A served model: see `ServedModel`."""

    name: str

    @property
    def mode(self) -> ServedMode:
        """See `ServedModel.mode`."""

    @property
    def frames(self) -> FramePort:
        """See `ServedModel.frames`."""

    def serving(self) -> AbstractAsyncContextManager[object]:
        """See `ServedModel.serving`."""

    def without_effect(self, caller: Caller, request: ChatRequest) -> list[str]:
        """See `ServedModel.without_effect`."""

    async def answer(self, caller: Caller, request: ChatRequest, hear: Hear) -> Answers:
        """See `ServedModel.answer`."""

    def society_info(self, caller: Caller) -> dict[str, Any] | None:
        """See `ServedModel.society_info`."""

    def check_idle(self, caller: Caller) -> None:
        """See `ServedModel.check_idle`."""

    def end_society(self, caller: Caller) -> bool:
        """See `ServedModel.end_society`."""

    def end_idle(self) -> None:
        """See `ServedModel.end_idle`."""


class Api(NamedTuple):
    """One of the APIs: how its requests are read and its answers written."""

    parsed: Callable[[bytes, RequestLimits], tuple[models.RequestTarget, ChatRequest, Shape]]
    whole: Callable[[Shape, Answers], dict[str, Any]]
    stream: Callable[[Shape, str | None], Events]


class Site:
    """What all requests share: models by name, keys, limits, metrics. `origins` are those of the web pages whose
    scripts may use the server."""

    def __init__(
        self, served: Iterable[Model], keys: ApiKeys, limits: ServeLimits, origins: Sequence[str] = ()
    ) -> None:
        self.origins = frozenset(origins)
        self.models = {model.name: model for model in served}
        self.keys, self.limits = keys, limits.settled(bool(keys))
        self.admission = Admission(self.limits)
        self.conversations = ResponseStore(
            limits.conversations, limits.conversation_letters, limits.conversation_minutes * 60
        )
        self.metrics, self.created = metrics.Metrics(), int(time.time())
        self.metrics.watch(lambda: self.admission.running)

    def key(self, headers: Headers) -> ApiKey | None:
        """The entry of the key that a request sends, None if the server has no keys. `ApiError` 401: the key is missing
        or unknown."""
        if not self.keys:
            return None
        sent = headers.getlist("authorization")
        scheme, _, given = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
        found = self.keys.find(given.strip())
        if scheme.lower() != "bearer" or found is None:
            raise ApiError(
                401,
                "the API key is missing or unknown; send one header Authorization: Bearer KEY",
                code="invalid_api_key",
            )
        return found

    def caller(self, scope: Scope, target: models.RequestTarget) -> tuple[Model, Caller]:
        """The requested model and the caller, after combining what path, headers and key say."""
        key: ApiKey | None = scope["state"]["key"]
        target = models.settled(self._claimed(scope, target), self.models)
        model, society = self.models[target.model], target.society
        if key is not None and key.agent is not None and society is not None and target.mode not in (None, model.mode):
            raise ApiError(
                403,
                f"societies on this server use @{model.mode}, and the key of a single agent cannot choose "
                "another mode for a society; leave the mode out",
                "model",
                "mode_not_allowed",
            )
        return model, _caller(key, target)

    def asker(self, scope: Scope) -> Caller:
        """The caller of a request that names no model, by its path, headers and key."""
        return _caller(scope["state"]["key"], self._claimed(scope, models.RequestTarget("")))

    def _claimed(self, scope: Scope, target: models.RequestTarget) -> models.RequestTarget:
        """The target after combining it with what path, headers and key say about society and agent."""
        key: ApiKey | None = scope["state"]["key"]
        target = models.agreed(target, *_places(scope))
        if key is None:
            return target
        society, agent = self.keys.allowed(key, RequestClaim(target.society, target.agent))
        if society is None:  # without a society, the agent of a key does not matter
            return target
        return target._replace(society=society, agent=agent)

    def admitted(self, scope: Scope, timed: bool = True) -> AbstractContextManager[None]:
        """The context in which a request is answered, which counts towards the limits of its key and tenant. See
        `Admission.admitted`."""
        key: ApiKey | None = scope["state"]["key"]
        whose = ("", "", KeyLimits()) if key is None else (key.tenant, key.name, key.bounds)
        return self.admission.admitted(*whose, timed=timed)


class Generate:
    """The route of one API."""

    def __init__(self, route: str, site: Site, api: Api) -> None:
        self._site, self._api = site, api
        self.route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        key: ApiKey | None = scope["state"]["key"]
        channel = Channel(receive, send)
        with self._site.admitted(scope):
            with self._site.admission.buffering() as hold:
                body = await channel.body(scope, self._site.limits, hold)
                target, request, shape = self._api.parsed(body, self._site.limits.asked)
                del body
            model, caller = self._site.caller(scope, target)
            request = _sharing(scope, _audience(scope, request))
            _check_priority(key, request)
            request = self._continued(caller, request, shape)
            self._site.metrics.ignored((*shape.ignored, *model.without_effect(caller, request)))
            asked = ModelRequest(self._site, model, caller, request, shape, self._api.whole)
            await self._answer(channel, asked, shape)

    def _continued(self, caller: Caller, request: ChatRequest, shape: Shape) -> ChatRequest:
        """The request, preceded by the messages of the response that it continues, and with the stored items that it
        refers to. `ApiError`: there is no such response or item, or there are too many messages."""
        if shape.previous is None and not any(message.refers for message in request.messages):
            return request
        first, own = request.messages[: shape.leading], request.messages[shape.leading :]
        stored, limits = self._site.conversations, self._site.limits.asked
        before = () if shape.previous is None else stored.get(caller, shape.previous)
        whole, param = (*first, *before, *stored.resolved(caller, own)), "input" if shape.previous is None else PARAM
        within(len(whole), limits.messages, param, "messages")
        within_letters(letters(whole), limits.letters, param)
        return replace(request, messages=whole)

    async def _answer(self, channel: Channel, asked: ModelRequest, shape: Shape) -> None:
        if shape.stream:
            events = self._api.stream(shape, asked.model.frames.framing.tools.opening)
            answers = await channel.attended(lambda: channel.stream(asked.answer, events))
        else:
            answers = await channel.attended(lambda: asked.answer(lambda delta: None))
            await channel.reply_json(200, self._api.whole(shape, answers))
        self._site.metrics.used(answers.usage)


class ModelRequest:
    """One request to a model. `whole` writes its answer as one object."""

    def __init__(
        self,
        site: Site,
        model: Model,
        caller: Caller,
        request: ChatRequest,
        shape: Shape,
        whole: Callable[[Shape, Answers], dict[str, Any]],
    ) -> None:
        self._site, self.model, self._caller, self._request, self._shape = site, model, caller, request, shape
        self._whole = whole

    async def answer(self, hear: Hear) -> Answers:
        """Ask the model. The time to the first delta is measured."""
        began, first = time.perf_counter(), True

        def heard(delta: AnswerDelta) -> None:
            nonlocal first
            if first:
                self._site.metrics.first(time.perf_counter() - began)
                first = False
            hear(delta)

        await check_length(self._request, self.model.frames)
        answers = await self.model.answer(self._caller, self._request, heard)
        if self._shape.store:
            messages = (*self._request.messages[self._shape.leading :], ids.quotation(answers.answers[0]))
            shown = as_json(self._whole(self._shape, answers))
            self._site.conversations.keep(self._caller, self._shape.id, messages, shown)
        return answers


class StaticRoutes:
    """The routes that generate nothing."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def health(self, request: Request) -> Response:
        """Whether the server accepts requests: 503 if it is shutting down, so that load balancers send it no more."""
        if self._site.admission.draining:
            return JSONResponse({"status": "draining"}, 503, {"retry-after": str(DRAINING)})
        return JSONResponse({"status": "ok"})

    async def version(self, request: Request) -> Response:
        """The version of agentcho."""
        return JSONResponse({"name": "agentcho", "version": version("agentcho")})

    async def metrics(self, request: Request) -> Response:
        """The metrics of the whole server."""
        key = _key(request)
        if key is not None and not key.metrics:
            raise ApiError(403, "this key may not read the metrics of the server", code="metrics_not_allowed")
        return Response(self._site.metrics.text(), media_type=metrics.TYPE)

    async def models(self, request: Request) -> Response:
        """The models, and the modes of their societies."""
        return JSONResponse(models.listing(self._site.models, self._site.created))

    async def model(self, request: Request) -> Response:
        """One model."""
        return JSONResponse(models.described(request.path_params["id"], self._site.models, self._site.created))

    async def society(self, request: Request) -> Response:
        """What a member may know about its society."""
        caller = self._member(request)
        found = [info for model in self._site.models.values() if (info := model.society_info(caller)) is not None]
        if not found:
            raise ApiError(404, ABSENT, code="society_not_found")
        return JSONResponse({"id": caller.society, "object": "society", "models": found})

    async def end(self, request: Request) -> Response:
        """End a society and its records, of all models or, if one of them has a request under way, of none."""
        caller, key = self._member(request), _key(request)
        if key is not None and key.agent is not None:
            raise ApiError(
                403,
                "the key of a single agent cannot end a society; use a key for the whole society",
                code="agent_not_allowed",
            )
        for model in self._site.models.values():
            model.check_idle(caller)
        ended = [model.end_society(caller) for model in self._site.models.values()]
        forgotten = self._site.conversations.end(caller.tenant, caller.society or "")
        if not (any(ended) or forgotten):
            raise ApiError(404, ABSENT, code="society_not_found")
        return JSONResponse({"id": caller.society, "object": "society", "deleted": True})

    def _member(self, request: Request) -> Caller:
        key, society = _key(request), request.path_params["society"]
        if key is None:
            return Caller("", society)
        claim = self._site.keys.allowed(key, RequestClaim(society))
        return _caller(key, models.RequestTarget("", society=claim.society, agent=claim.agent))


class RequestMiddleware:
    """Wraps all routes: gives each request an id, authenticates it by its key, puts every error into OpenAI's shape,
    and logs and counts the request when it is over."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app, self._site = app, site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        headers, began, sent = Headers(scope=scope), time.perf_counter(), SentResponse(send)
        given = headers.get("x-request-id", "")
        sent.id = given if REQUEST_ID.fullmatch(given) else f"req_{uuid4().hex}"
        try:
            _check_length(headers)
            scope.setdefault("state", {})["key"] = self._known(scope, headers)
            await self._app(scope, receive, sent.send)
        except Exception as error:
            await self._refuse(error, Channel(receive, sent.send), sent)
        finally:
            route = _route(scope.get("endpoint"))
            seconds = time.perf_counter() - began
            self._site.metrics.ended(route, sent.status, seconds)
            LOG.info("%s %s %d %.3f s", sent.id, route, sent.status, seconds)

    def _known(self, scope: Scope, headers: Headers) -> ApiKey | None:
        """The key of a request. `/health` needs none."""
        if scope["path"] == OPEN:
            return None
        if not self._site.keys:
            _check_near(headers, self._site.origins)
        return self._site.key(headers)

    async def _refuse(self, error: Exception, channel: Channel, sent: SentResponse) -> None:
        told = api_error(error)
        if not isinstance(error, ApiError) and told.status >= 500:
            LOG.error("%s failed: %s at %s", sent.id, type(error).__name__, _place(error))
        if told.status == GONE:
            sent.status = GONE
        elif sent.begun:  # the client sees that the answer is incomplete
            sent.status = told.status
        else:
            await channel.refuse(told)


class SentResponse:
    """The id and status of one response."""

    def __init__(self, send: Send) -> None:
        self._send, self.id, self.status, self.begun = send, "", GONE, False

    async def send(self, message: Message) -> None:
        """Pass a message on, with the request's id."""
        if message["type"] == "http.response.start":
            self.begun, self.status = True, message["status"]
            message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", self.id.encode())]}
        await self._send(message)


APIS = {
    "chat/completions": Api(chat.parsed, chat.whole, chat.ChatStream),
    "responses": Api(responses.parsed, responses.whole, responses.ResponsesStream),
}
"""The APIs by the last part of their paths."""


def application(site: Site) -> Starlette:
    """The server's application."""
    pages, stored = (
        StaticRoutes(site),
        StoredRoutes(site.conversations, site.asker, partial(site.admitted, timed=False)),
    )
    routes: list[BaseRoute] = [
        Route(OPEN, pages.health),
        Route("/version", pages.version),
        Route("/metrics", pages.metrics),
        Route("/s/{society}", pages.society, methods=["GET"]),
        Route("/s/{society}", pages.end, methods=["DELETE"]),
    ]
    for base in ("", "/s/{society}", "/s/{society}/{agent}"):
        routes += [Route(f"{base}/v1/models", pages.models), Route(f"{base}/v1/models/{{id:path}}", pages.model)]
        for path, api in APIS.items():
            routes.append(Route(f"{base}/v1/{path}", Generate(path, site, api), methods=["POST"]))
        routes += stored.routes(base)
    app = Starlette(
        routes=routes,
        middleware=[*_cors(site.origins), Middleware(RequestMiddleware, site=site)],
        exception_handlers={HTTPException: _not_routed},
    )
    app.router.redirect_slashes = False
    return app


def _cors(origins: Collection[str]) -> list[Middleware]:
    """What tells browsers that pages of these origins may send requests and read answers. It is outside of
    authentication, because browsers ask first, and without a key."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=sorted(origins),
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            allow_private_network=True,
            expose_headers=("x-request-id", "retry-after"),
        )
    ]


async def _not_routed(request: Request, error: Exception) -> Response:
    """404 and 405, in the shape of all other errors."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        said, code = "this path takes another method", "method_not_allowed"
    else:
        missing = (why for path, why in MISSING.items() if request.url.path.endswith(path))
        said, code = next(missing, "there is nothing at this path"), "unknown_url"
    told = ApiError(error.status_code, f"{said}; {OFFERED}", code=code)
    return JSONResponse(told.to_json(), error.status_code, error.headers)


def _route(endpoint: object) -> str:
    """The name under which a route is counted. All unknown paths have one name, because clients can make up any
    number."""
    return str(getattr(endpoint, "route", None) or getattr(endpoint, "__name__", "unknown"))


def _place(error: Exception) -> str:
    """Where an error was raised: file and line, without its text."""
    frames = [f"{Path(frame.f_code.co_filename).name}:{line}" for frame, line in walk_tb(error.__traceback__)]
    return frames[-1] if frames else "no line"


def _caller(key: ApiKey | None, target: models.RequestTarget) -> Caller:
    caller = Caller(society=target.society, agent=target.agent, mode=target.mode)
    if key is None:
        return caller
    return caller._replace(tenant=key.tenant, key=key.name, bound=key.agent is not None)


def _key(request: Request) -> ApiKey | None:
    found: ApiKey | None = request.scope["state"]["key"]
    return found


def _places(scope: Scope) -> Sequence[models.NamedTarget]:
    """The society and agent that path and headers name."""
    path = scope.get("path_params", {})
    if UNREADABLE in "".join(map(str, path.values())):
        raise ApiError(400, "the path: it is not UTF-8 text")
    found = [models.NamedTarget("the path", path.get("society"), path.get("agent"))]
    if (society := _header(scope, "x-agentcho-society")) is not None:
        found.append(models.NamedTarget("header x-agentcho-society", society))
    if (agent := _header(scope, "x-agentcho-agent")) is not None:
        found.append(models.NamedTarget("header x-agentcho-agent", None, agent))
    return found


def _header(scope: Scope, name: str) -> str | None:
    """The value of a header, decoded as UTF-8, because names may have other than Latin letters. `ApiError`: there are
    two, one of which may come from the client and the other from a proxy in front."""
    found = [value for key, value in scope["headers"] if key == name.encode()]
    if len(found) > 1:
        raise ApiError(400, f"header {name}: it is given twice; send it once")
    try:
        return str(found[0], "utf-8") if found else None
    except UnicodeDecodeError:
        raise ApiError(400, f"header {name}: it is not UTF-8 text") from None


def _audience(scope: Scope, request: ChatRequest) -> ChatRequest:
    """The request with the audience that a header names."""
    if (given := _header(scope, "x-agentcho-audience")) is None:
        return request
    place = models.NamedTarget("header x-agentcho-audience")
    named = models.audience(given, place)
    if request.audience is not None and named != request.audience:
        raise ApiError(400, f"{place.where}: it names a different audience than the body; give only one of them")
    return replace(request, audience=named)


def _sharing(scope: Scope, request: ChatRequest) -> ChatRequest:
    """The request with what headers say about who may read its messages."""
    user_messages, history = (_whose(scope, f"x-agentcho-{name}") for name in ("user-messages", "history"))
    if user_messages is not None:
        request = replace(request, user_messages=user_messages)
    return request if history is None else replace(request, history=history)


def _whose(scope: Scope, header: str) -> Sharing | None:
    given = _header(scope, header)
    if given is not None and given not in get_args(Sharing):
        raise ApiError(400, f'header {header}: give "shared" or "private"')
    return cast("Sharing | None", given)


def _check_priority(key: ApiKey | None, request: ChatRequest) -> None:
    if key is not None and not key.priority and request.priority > 0:
        raise ApiError(
            403, "priority: this key may not request priority; leave it out", "priority", "priority_not_allowed"
        )


def _check_length(headers: Headers) -> None:
    """Refuse a body with two lengths. A proxy in front may go by the other one and take for one request what would be
    two here, so the connection ends too."""
    if "content-length" in headers and "transfer-encoding" in headers:
        raise ApiError(400, "the request has a content-length and a chunked body; use one of them", code=TWO_LENGTHS)


def _check_near(headers: Headers, origins: Collection[str]) -> None:
    """Without keys, serve only this machine, and no browser page of another site but those of these `origins`: neither
    the site's own script, nor a host name of its own that resolves to this machine."""
    if not _is_near(f"//{headers.get('host', '')}"):
        raise ApiError(
            403,
            "without --keys, this server answers only requests from its own machine, addressed to localhost or a "
            "loopback address",
        )
    origin = headers.get("origin")
    if origin is not None and origin not in origins and not _is_near(origin):
        raise ApiError(
            403,
            "without --keys, this server answers no web page of another site; if you trust the page, start the server "
            "with --allow-origin and the page's origin",
        )


def _is_near(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False

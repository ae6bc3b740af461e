"""Society headers for a user's own vLLM server: start it with `--middleware` and `SocietyHeaders`.

A chat with `x-agentcho-society` is divided into messages as the connector will divide it, so that a chat that the
connector would refuse gets a 400 with the reason. The part that several agents may read is first sent to vLLM as a
prompt of its own, so that all of them read the same encodings; then the chat follows with its society, agent and
readers. Must not import vLLM. Does not authenticate: any client may name any agent.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import Any, NamedTuple

from agentcho.errors import AgentchoError, RequestError
from agentcho.integrations.vllm.alone.prompt_spans import MessageMarkers, markers_of
from agentcho.integrations.vllm.alone.request_params import KEY, SharedPrompt, parsed, request_params

LOG = logging.getLogger("vllm.agentcho")
Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
CHATS = "/v1/chat/completions"
OTHERS = ("/v1/completions", "/v1/responses", "/v1/messages", "/v1/chat/completions/batch", "/inference/v1/generate")
"""Other paths that answer prompts."""
PREFIX = "x-agentcho-"
TAKEN = ("society", "agent", "audience", "user-messages", "history")
MEASURED = 64
KNOWN = 4096
"""How many prompts that were sent by themselves are remembered, so that they are not sent again."""
RENDERED = ("model", "messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")
"""Fields of a chat that determine its token ids; the tokenize endpoint takes them under the same names."""
AROUND = ("prompt_logprobs", "echo")
"""Options that bypass the connector."""


class Reply(NamedTuple):
    """The response of the server behind the middleware."""

    status: int
    body: bytes


class SocietyHeaders:
    """An ASGI middleware. `app`: the server behind it."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._framed: asyncio.Task[MessageMarkers] | None = None
        self._sent = dict[bytes, None]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        asked = _asked(scope)
        path = str(scope.get("path", "")).rstrip("/")
        if not asked or scope.get("method") != "POST" or path not in (CHATS, *OTHERS):
            await self._app(scope, receive, send)
            return
        try:
            if path != CHATS:
                raise RequestError(f"only {CHATS} accepts society headers; send kv_transfer_params instead")
            sent = await _read(receive)
            body = await self._body(scope, asked, sent)
        except AgentchoError as error:
            await _refuse(send, str(error))
            return
        await self._app(_with_length(scope, body), _replayed(body, receive), send)

    async def _body(self, scope: Scope, asked: Mapping[str, str], sent: bytes) -> bytes:
        """Return a chat with the contents of its headers, after its shared parts were sent by themselves."""
        try:
            chat = json.loads(sent)
            messages = [{"role": message["role"], "content": message.get("content")} for message in chat["messages"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return sent  # the server reports what is wrong with it
        if (wrong := next((name for name in AROUND if chat.get(name)), None)) is not None:
            raise RequestError(f"{wrong} cannot be used in a society; leave it out")
        given = chat.get("kv_transfer_params") or {}
        if not isinstance(given, dict):
            return sent
        if KEY in given:
            raise RequestError("the society is named both in headers and in kv_transfer_params; name it once")
        told = _told(asked, messages)
        prompt = parsed(told)
        assert isinstance(prompt, SharedPrompt)
        reply = await self._ask(scope, "/tokenize", {name: chat[name] for name in RENDERED if name in chat})
        if reply.status != 200:
            return sent  # likewise for a chat that it cannot tokenise
        markers = await self._messages(scope)
        ids = json.loads(reply.body)["tokens"]
        divided = markers.divided(ids, prompt.messages)
        token = markers.framing.content.encode("a")[-1]
        await self._send(scope, chat, [token] * MEASURED, {KEY: {"measure": True}})
        for chosen in _parts(prompt):
            part = told[KEY] | {"messages": [told[KEY]["messages"][index] for index in chosen]}
            await self._send(scope, chat, divided.part(ids, chosen), {KEY: part})
        return json.dumps(chat | {"kv_transfer_params": given | told}).encode()

    async def _send(self, scope: Scope, chat: Mapping[str, Any], ids: list[int], told: dict[str, Any]) -> None:
        """Send a prompt by itself, unless it was sent before."""
        body = {name: chat[name] for name in ("model", "cache_salt") if name in chat}
        body |= {"prompt": ids, "max_tokens": 1, "temperature": 0, "kv_transfer_params": told}
        key = blake2b(json.dumps(body).encode(), digest_size=16).digest()
        if key in self._sent:
            return
        reply = await self._ask(scope, "/v1/completions", body)
        if reply.status == 200:
            self._sent[key] = None
        else:
            LOG.warning("messages could not be sent by themselves (%d): %s", reply.status, reply.body[:200])
        if len(self._sent) > KNOWN:
            del self._sent[next(iter(self._sent))]

    async def _messages(self, scope: Scope) -> MessageMarkers:
        if self._framed is None or (self._framed.done() and self._framed.exception() is not None):
            model = str(scope["app"].state.vllm_config.model_config.tokenizer)
            self._framed = asyncio.ensure_future(asyncio.to_thread(markers_of, model))
        return await asyncio.shield(self._framed)

    async def _ask(self, scope: Scope, path: str, told: Mapping[str, Any]) -> Reply:
        """Send a request to the server behind the middleware, with the client's authorization."""
        body = json.dumps(told).encode()
        kept = [(name, value) for name, value in scope["headers"] if name in (b"authorization", b"host")]
        headers = [*kept, (b"content-type", b"application/json")]
        inner = {**scope, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers}
        status, parts = 500, list[bytes]()

        async def send(event: Event) -> None:
            nonlocal status
            if event["type"] == "http.response.start":
                status = event["status"]
            parts.append(event.get("body", b""))

        async def receive() -> Event:
            await asyncio.Event().wait()
            raise AssertionError

        await self._app(_with_length(inner, body), _replayed(body, receive), send)
        return Reply(status, b"".join(parts))


def _asked(scope: Scope) -> dict[str, str]:
    """The society headers of a request, without their prefix."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope.get("headers", ())}
    return {name.removeprefix(PREFIX): value.strip() for name, value in headers.items() if name.startswith(PREFIX)}


def _told(asked: Mapping[str, str], messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Convert the society headers of a chat to `kv_transfer_params`. `RequestError`: they are malformed."""
    if (unknown := next((name for name in asked if name not in TAKEN), None)) is not None:
        raise RequestError(
            f"{PREFIX}{unknown} is not a society header; after {PREFIX}, the names are {', '.join(TAKEN)}"
        )
    for name in ("user-messages", "history"):
        if asked.get(name, "private") not in ("private", "shared"):
            raise RequestError(f"{PREFIX}{name} must be private or shared")
    if "society" not in asked:
        raise RequestError(f"the header {PREFIX}society, which names the society, is missing; send it")
    audience = [name.strip() for name in asked["audience"].split(",")] if "audience" in asked else None
    readers: dict[int, Any] = {}
    for index, message in enumerate(messages):
        if message["role"] == "user" and asked.get("user-messages") == "private":
            readers[index] = []
        if message["role"] == "assistant" and asked.get("history") == "shared":
            readers[index] = "society" if audience is None else audience
    agent = asked.get("agent") or _nameless(messages)
    return request_params(asked["society"], agent, messages, audience=audience, readers=readers)


def _nameless(messages: Sequence[Mapping[str, Any]]) -> str:
    """The name of an agent without a name: a digest of its system messages."""
    said = [message["content"] for message in messages if message["role"] in ("system", "developer")]
    return "nameless-" + blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()


def _parts(prompt: SharedPrompt) -> Iterator[list[int]]:
    """The parts of a chat that are sent by themselves, as indexes of messages: the system messages at its beginning,
    which come before everything that is shared; and the messages that several agents may read."""
    messages = prompt.messages or []
    begins = takewhile(lambda index: messages[index].role in ("system", "developer"), range(len(messages)))
    shared = (n for n, each in enumerate(messages) if each.role in ("user", "assistant") and each.readers != [])
    for chosen in (list(begins), list(shared)):
        if chosen:
            yield chosen


async def _read(receive: Receive) -> bytes:
    """The body of a request."""
    parts = list[bytes]()
    while True:
        event = await receive()
        parts.append(event.get("body", b""))
        if event["type"] != "http.request" or not event.get("more_body", False):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` for the server behind the middleware: this body, and then further events."""
    first: list[Event] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Event:
        return first.pop() if first else await receive()

    return replayed


def _with_length(scope: Scope, body: bytes) -> Scope:
    headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"content-length"]
    return {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}


async def _refuse(send: Send, why: str) -> None:
    told = {"error": {"message": why, "type": "BadRequestError", "param": None, "code": 400}}
    body = json.dumps(told).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})

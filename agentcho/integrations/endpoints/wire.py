"""Sends one request over HTTP with the `openai` package, and yields the answer in pieces of checked form, with limits
on bytes and time.

Independent of how prompts are built and of retries.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from json import JSONDecodeError
from typing import Annotated, Any, Literal, NamedTuple

import anyio
import httpx2
import openai
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from agentcho.errors import amount
from agentcho.integrations.endpoints.address import OPENAI, Address, ServerKey
from agentcho.integrations.endpoints.faults import AttemptFailed, Refusal, asked_wait, is_passing, refused
from agentcho.integrations.endpoints.usage import Report

LARGEST = 1 << 20
"""Maximum bytes of one stream event, and of an error body."""
CLOSING = 5.0
"""Seconds that closing a connection may take."""
LINGERING = 2.0
"""Seconds that a server may take to close the stream after an answer has ended."""
CONNECTING = 15.0
"""Seconds within which a server must accept a connection."""


Progress = Literal["more", "ended", "all"]
"""State of an answer: it continues; it has ended, but usage may follow; nothing that follows matters."""


class Delta(BaseModel):
    """The content of a piece of an answer: text, thought that is not part of it, or a refusal."""

    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class Choice(BaseModel):
    """A piece of one answer, with the finish reason at its end. `stop_reason` (vLLM) and `matched_stop` (SGLang) are
    the stop string or the id of the stop token."""

    index: int = 0
    delta: Delta = Delta()
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    matched_stop: str | int | None = None


class Chunk(BaseModel):
    """One event of a stream."""

    choices: Annotated[list[Choice], BeforeValidator(lambda given: given or [])] = Field(default_factory=list)
    usage: Report = None


class Bound(NamedTuple):
    """Limits of an answer: seconds in all, and bytes of its texts together."""

    seconds: float
    bytes: int


class Wire:
    """The connections to one server. Errors of an attempt are raised as `AttemptFailed`."""

    def __init__(self, address: Address, key: ServerKey, connections: int) -> None:
        self._http = httpx2.AsyncClient(
            follow_redirects=False,
            verify=address.secure,  # loading certificates takes 0.1 s, and http needs none
            trust_env=address.secure and not address.here,
            event_hooks={"response": [_bounded]},
            limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
        )
        self._client = openai.AsyncOpenAI(
            base_url=address.url,
            api_key=key.reveal(),
            max_retries=0,
            http_client=self._http,
            default_headers={"Accept-Encoding": "identity"},
        )
        if address.host != OPENAI:  # they name an account at OpenAI
            self._client.organization = self._client.project = None

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def hear(self, body: dict[str, Any], bound: Bound, hear: Callable[[Chunk], Progress]) -> None:
        """Send a request, and pass each event of its answer to `hear` until there are no more or `hear` returns "all".
        The connection is then closed, or kept for another request. Raises `AttemptFailed`, and whatever `hear`
        raises."""
        progress: Progress = "more"
        with anyio.move_on_after(bound.seconds) as scope:
            async with self._stream(body) as stream:
                size = 0
                while (chunk := await self._next(stream, body, ended=progress == "ended")) is not None:
                    size += sum(_size(each.delta) for each in chunk.choices)
                    if size > bound.bytes:
                        raise AttemptFailed(f"exceeded its token limit: more than {bound.bytes} bytes of text")
                    if (progress := hear(chunk)) == "all":
                        return
                    if progress == "ended":
                        scope.deadline = min(scope.deadline, anyio.current_time() + LINGERING)
        if scope.cancelled_caught and progress != "ended":
            raise AttemptFailed(f"did not finish its answer within {amount(bound.seconds, 'seconds')}", again=True)

    @asynccontextmanager
    async def _stream(self, body: dict[str, Any]) -> AsyncIterator[AsyncIterator[object]]:
        with _told(body):
            stream = await self._client.post(
                "/chat/completions",
                cast_to=object,
                body=body,
                stream=True,
                stream_cls=openai.AsyncStream[object],
                options={"timeout": httpx2.Timeout(None, connect=CONNECTING)},
            )
        try:
            yield aiter(stream)
        finally:
            with anyio.move_on_after(CLOSING, shield=True):
                await stream.close()

    async def _next(self, stream: AsyncIterator[object], body: dict[str, Any], ended: bool) -> Chunk | None:
        """The next event, None if the server sends no more. If the answer has `ended`, failures are no more events."""
        try:
            with _told(body):
                found = await anext(stream, None)
            return None if found is None else Chunk.model_validate(found)
        except AttemptFailed:
            if not ended:
                raise
        except ValidationError:
            if not ended:
                raise AttemptFailed("sent something that is not part of a chat completion") from None
            return Chunk()  # the usage may still come
        return None


class _TooLarge(Exception):
    """More bytes without an event boundary than are read."""


class _Bounded(httpx2.AsyncByteStream):
    """The byte stream of a response, limited to `LARGEST` bytes per event, or in all if `whole`."""

    def __init__(self, stream: httpx2.AsyncByteStream, whole: bool) -> None:
        self._stream = stream
        self._whole = whole
        self._size = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            end = -1 if self._whole else max(piece.rfind(b"\n\n"), piece.rfind(b"\n\r\n"), piece.rfind(b"\r\r"))
            self._size = self._size + len(piece) if end < 0 else len(piece) - end
            if self._size > LARGEST:
                raise _TooLarge
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _bounded(response: httpx2.Response) -> None:
    """Limit what is read of a response. Compressed responses are refused, because their decompressed size is
    unlimited."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise AttemptFailed("compresses its answers although the request forbids it")
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream, response.status_code != 200)


@contextmanager
def _told(body: dict[str, Any]) -> Iterator[None]:
    """Convert errors of the client to `AttemptFailed`, without keys and without words of the prompt."""
    try:
        yield
    except AttemptFailed:
        raise
    except Exception as error:
        raise _failed(error, [message["content"] for message in body["messages"]], body) from None


def _unreachable(error: BaseException) -> AttemptFailed:
    """The failure for a connection that could not be made, or broke, by what caused it."""
    causes = list[BaseException]()
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(isinstance(each, ssl.SSLCertVerificationError) for each in causes):
        return AttemptFailed(
            "has a certificate that is not trusted; set SSL_CERT_FILE to a file with the authority that issued it"
        )
    if any(isinstance(each, socket.gaierror) for each in causes):
        return AttemptFailed("cannot be found: its name has no address; check base_url, and the network", again=True)
    if any(isinstance(each, httpx2.ProxyError) for each in causes):
        return AttemptFailed("cannot be reached through the proxy; check HTTPS_PROXY and NO_PROXY", again=True)
    return AttemptFailed("does not answer or broke the connection; check that it is running", again=True)


def _failed(error: Exception, prompt: list[str], fields: Iterable[str] = ()) -> AttemptFailed:
    """The failure for an error of the client. `fields`: the fields of the request, which may be named."""
    match error:
        case openai.APIStatusError():
            refusal, wait = Refusal.of(error.body), asked_wait(error.response.headers)
            return refused(error.status_code, refusal.about(fields), wait, prompt)
        case openai.APIConnectionError():
            return _unreachable(error)
        case openai.APIError():
            refusal = Refusal.of(error.body).about(fields)
            status = int(refusal.code) if re.fullmatch(r"[45]\d\d", refusal.code) else 500
            return AttemptFailed(
                what="broke off its answer with an error",
                status=None,
                again=is_passing(status, refusal),
                wait=None,
                told=refusal.told(prompt),
            )
        case _TooLarge():
            return AttemptFailed(f"sent more than {LARGEST} bytes in one event")
        case JSONDecodeError() | UnicodeDecodeError():
            return AttemptFailed("sent something that is not JSON", again=True)
        case httpx2.HTTPError() | OSError():
            return AttemptFailed("broke the connection", again=True)
        case _:
            return AttemptFailed(f"cannot be reached ({type(error).__name__})")


def _size(delta: Delta) -> int:
    texts = (delta.content, delta.refusal, delta.reasoning, delta.reasoning_content)
    return sum(len(text.encode("utf-8", "replace")) for text in texts if text)

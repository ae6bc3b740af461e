"""A chat server as an outsider sees it: bounded requests, the time of each first token, the token counts it reports.

Uses the client of the package `openai` without its retries, which would be timed as one answer.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Thread
from time import monotonic, perf_counter, sleep
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import httpx2
import openai

from agentcho.errors import AgentchoError, ConfigError

BUSY = frozenset({429, 503})
TOO_LONG = frozenset({400, 413, 422})
LONGEST = 60.0
"""Seconds without a byte after which an answer is given up; or a tenth of the whole time bound, if that is longer."""
SHORT = 200
LOOK = 0.1
"""Seconds between two checks of an answer in progress."""
LEAST = 1.0
"""The minimum of seconds granted to an answer, however little time is left."""
LIMIT = 86400.0
"""The maximum of seconds for a probe."""
MOST_BYTES = 16 << 20
"""An answer of a few tokens that is longer than this is given up."""
MOST_TOKENS = 1 << 40
"""Larger token counts are not believed."""
T = TypeVar("T")


class ServerRefused(AgentchoError):
    """The server refused a request or did not answer. `status` is the HTTP status (None: there was no answer), `wait`
    the seconds to wait before asking again."""

    def __init__(self, what: str, status: int | None = None, wait: float = 1.0) -> None:
        super().__init__(what)
        self.status, self.wait = status, wait


class ServerSlow(ServerRefused):
    """An answer took too long, which says nothing about what the server is. `took`: seconds until it was given up;
    `bound`: those of the whole probe."""

    def __init__(self, url: str, took: float, bound: float, otherwise: str = "") -> None:
        told = f"{url} is too slow for --seconds {bound:g}: an answer took longer than {took:.3g} s"
        super().__init__(f"{told}; allow more time, such as --seconds {min(LIMIT, 10 * bound):.0f}{otherwise}")


class _Late(Exception):
    """The time for an answer is over."""


class Identity(NamedTuple):
    """Who asks: the index of the key, and the `cache_salt`, if any."""

    key: int = 0
    salt: str | None = None


class Heard(NamedTuple):
    """The answer to a request. `seconds` is the time to the first token; `prompt` and `cached` are token counts of the
    server (None: not reported)."""

    seconds: float
    text: str
    prompt: int | None
    cached: int | None


class Bounds(NamedTuple):
    """The bounds on all requests to a server."""

    requests: int
    seconds: float


class Asking(Protocol):
    """What a probe needs from a server."""

    url: str
    model: str
    requests: int
    prompt_tokens: int

    @property
    def elapsed(self) -> float:
        """Seconds since the first request."""

    @property
    def left(self) -> float:
        """Seconds until the time bound."""

    def allows(self, requests: int, share: float = 1.0) -> bool:
        """Whether this many more requests are within this share of the bounds."""

    def rest(self, seconds: float) -> None:
        """Pause for this long, or as long as the bounds allow."""

    def ask(self, messages: Sequence[Mapping[str, str]], who: Identity, most: int = 1) -> Heard:
        """Ask greedily for at most `most` tokens. `ServerRefused`."""


class Endpoint:
    """A server at `url`, asked with these keys (None: without one). `model` None: the only one that it lists."""

    def __init__(self, url: str, keys: Sequence[str | None], bounds: Bounds, model: str | None = None) -> None:
        self.url = url
        self._bounds = bounds
        self._keys = keys
        self.requests = 0
        self.prompt_tokens = 0
        self._began = monotonic()
        self._response: Any = None
        self._clients = [_client(url, key, self._begun) for key in keys]
        self.model = model or self._only_model()

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            client.close()

    @property
    def elapsed(self) -> float:
        """Seconds since the first request."""
        return monotonic() - self._began

    def allows(self, requests: int, share: float = 1.0) -> bool:
        """Whether this many more requests are within this share of the bounds."""
        within = self.requests + requests <= self._bounds.requests * share
        return within and self.elapsed < self._bounds.seconds * share

    def rest(self, seconds: float) -> None:
        """Pause for this long, or as long as the bounds allow."""
        sleep(max(0.0, min(seconds, self.left)))

    def ask(self, messages: Sequence[Mapping[str, str]], who: Identity, most: int = 1) -> Heard:
        """Ask greedily for at most `most` tokens as a stream, and read it to its end. `ServerRefused`."""
        salt = {} if who.salt is None else {"extra_body": {"cache_salt": who.salt}}
        self.requests += 1
        began = self.elapsed

        def asked() -> Heard:
            sent = perf_counter()
            stream = self._clients[who.key].chat.completions.create(
                model=self.model,
                messages=list(messages),
                max_tokens=most,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
                timeout=self._timeout,
                **salt,
            )
            return _heard(sent, self._until_the_end(stream))

        try:
            heard = self._in_time(asked)
        except Exception as error:
            raise self._refused(error, self.elapsed - began) from None
        self.prompt_tokens += heard.prompt or 0
        return heard

    @property
    def left(self) -> float:
        return self._bounds.seconds - self.elapsed

    @property
    def _timeout(self) -> float:
        """Seconds without a byte after which a request sent now is given up."""
        return max(LEAST, min(patience(self._bounds.seconds), self.left))

    def _begun(self, response: Any) -> None:
        """Hook: an answer begins."""
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ServerRefused("the server compresses its answers although it was asked not to")
        self._response = response

    def _in_time(self, work: Callable[[], T]) -> T:
        """The result of `work`, run in a thread that is abandoned if it takes too long or the answer is too long: a
        server that sends a byte now and then could keep a client reading forever. `ServerRefused`."""
        future, self._response = Future[T](), None

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        Thread(target=run, daemon=True, name="probe").start()
        until = monotonic() + max(LEAST, self.left) + LEAST
        while not wait([future], LOOK).done:
            if monotonic() > until:
                raise _Late
            if self._response is not None and self._response.num_bytes_downloaded > MOST_BYTES:
                raise ServerRefused(f"an answer of the server is longer than {MOST_BYTES} bytes")
        return future.result()

    def _until_the_end(self, stream: Any) -> Iterator[Any]:
        """The chunks of a stream until its end or the time bound, however slowly they come."""
        with stream:
            for chunk in stream:
                if self.left < 0:
                    raise _Late
                yield chunk

    def _only_model(self) -> str:
        client = self._clients[0]
        try:
            found = self._in_time(lambda: [each.id for each in client.models.list(timeout=self._timeout).data])
        except Exception as error:
            told = self._refused(error, self.elapsed)
            if isinstance(told, ServerSlow):
                raise ServerSlow(self.url, self.elapsed, self._bounds.seconds, ", or --model") from None
            if isinstance(error, openai.APIConnectionError):
                raise told from None
            raise ServerRefused(f"{told}; the server lists no models: give --model", told.status) from None
        plain = [name for name in found if not set(name) & set("@#")]
        if len(plain) != 1:
            raise ConfigError(f"{self.url} lists {len(plain)} models; choose one with --model")
        if self._without_keys(plain[0]) != plain[0]:  # the name would be in every report
            raise ServerRefused(f"{self.url} lists a model whose name is too long or contains a key; give --model")
        return str(plain[0])

    def _refused(self, error: Exception, took: float) -> ServerRefused:
        """Convert an error to one without keys, even if the server repeats a key that it refuses. `took`: seconds since
        the request."""
        match error:
            case ServerRefused():
                return error
            case openai.APIConnectionError(__cause__=ServerRefused() as cause):
                return cause
            case openai.APIConnectionError(__cause__=httpx2.ConnectError() | httpx2.ConnectTimeout()):
                return ServerRefused(f"no server answers at {self.url}; check that it is running")
            case _Late() | openai.APITimeoutError() | httpx2.TimeoutException():
                return ServerSlow(self.url, took, self._bounds.seconds)
            case openai.APIConnectionError() | httpx2.TransportError():
                return ServerRefused(f"{self.url} closed the connection ({type(error).__name__})")
            case openai.APIStatusError(status_code=401 | 403 as status):
                return ServerRefused(f"{self.url} rejects the key (HTTP {status})", status)
            case openai.APIStatusError():
                told = f"{self.url} answers HTTP {error.status_code}: {self._without_keys(str(error))}"
                return ServerRefused(told, error.status_code, _wait(error))
            case _:
                return ServerRefused(f"{self.url} does not answer like a chat server ({type(error).__name__})")

    def _without_keys(self, words: str) -> str:
        for key in self._keys:
            words = words.replace(key, "…") if key else words
        return " ".join(words.split())[:SHORT]


def checked_url(url: str, allowed: bool) -> str:
    """The base URL of a server's API, with `/v1` if no path is given. `ConfigError`: it is not a URL, it has a
    password, or it is on another machine and the user has not confirmed permission to test it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"this is not the URL of a server: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError("give the URL of a server, such as http://127.0.0.1:8000/v1")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError("give a URL without user, password, query and fragment; pass keys with --key")
    if not allowed and not is_loopback(host):
        raise ConfigError(
            f"{host} is not this machine. Probing somebody else's server needs its owner's permission; "
            "if you have it, add --i-may-test-this"
        )
    path = parts.path.rstrip("/") or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name or address; other names are not resolved."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host.lower() == "localhost"


def _client(url: str, key: str | None, begun: Callable[[Any], None]) -> Any:
    """A client that follows no redirects, which could lead to a server that may not be tested. Received bytes are
    counted, so answers may not be compressed."""
    loopback = is_loopback(urlsplit(url).hostname or "")
    http = openai.DefaultHttpxClient(
        follow_redirects=False,
        trust_env=not loopback,
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [begun]},
    )
    return openai.OpenAI(base_url=url, api_key=key or "none", max_retries=0, http_client=http)


def patience(seconds: float) -> float:
    """Seconds without a byte after which an answer is given up, by the seconds for the whole probe."""
    return max(LONGEST, seconds / 10)


def _heard(began: float, chunks: Iterator[Any]) -> Heard:
    first = None
    text = ""
    usage = None
    for chunk in chunks:
        for choice in chunk.choices or ():
            said = choice.delta.model_dump(exclude={"role"}, exclude_none=True) if choice.delta else {}
            if first is None and (any(said.values()) or choice.finish_reason):
                first = perf_counter() - began
            text += said.get("content") or ""
        usage = chunk.usage or usage
    if first is None:
        raise ServerRefused("a stream of the server ended without a token")
    return Heard(first, text, _count(usage, "prompt_tokens"), _cached(usage))


def _cached(usage: Any) -> int | None:
    """All prompt tokens that a server reports as reused; our server counts those of reused messages separately."""
    details = getattr(usage, "prompt_tokens_details", None)
    found = [_count(details, "cached_tokens"), _count(details, "message_reused_tokens")]
    known = [count for count in found if count is not None]
    return sum(known) if known else None


def _count(of: Any, name: str) -> int | None:
    found = getattr(of, name, None)
    return found if isinstance(found, int) and 0 <= found <= MOST_TOKENS else None


def _wait(error: openai.APIStatusError) -> float:
    try:
        return min(120.0, max(0.0, float(error.response.headers["retry-after"])))
    except (KeyError, ValueError):
        return 1.0

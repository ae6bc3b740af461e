"""A streaming client of a chat server that times the first token."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from time import perf_counter
from typing import Any, NamedTuple

from agentcho.integrations.endpoints.address import ServerKey
from agentcho.lab.bench.played import ArmUnavailable

PATIENCE = 600.0
"""Seconds without a byte after which a request is given up."""
CHAT = "/chat/completions"


class Endpoint(NamedTuple):
    """The address of a chat server. `base` is the path before `/chat/completions`, such as "/v1"; `key`, if any, is
    sent with each request; `secure`: use TLS."""

    port: int
    base: str = "/v1"
    host: str = "127.0.0.1"
    secure: bool = False
    key: ServerKey | None = None

    def line(self) -> HTTPConnection:
        """A new connection, not yet open."""
        kind = HTTPSConnection if self.secure else HTTPConnection
        return kind(self.host, self.port, timeout=PATIENCE)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        key = {} if self.key is None else {"Authorization": f"Bearer {self.key.reveal()}"}
        return {"Content-Type": "application/json", **key}


class Heard(NamedTuple):
    """The response to one request. `began`, `first` and `ended` are in seconds of `perf_counter`: when it was sent, its
    first token, and its end. `usage` is as the server reports it; if it reports none, the number of pieces received."""

    began: float
    first: float
    ended: float
    text: str
    usage: Mapping[str, Any]

    def counted(self, *path: str) -> float | None:
        """A count in the usage by its path; None if the server does not report it."""
        found: Any = self.usage
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return None if found is None else float(found)


def ask(endpoint: Endpoint, body: Mapping[str, Any]) -> Heard:
    """Send a streaming chat request and read it to the end. `ArmUnavailable`: the server refuses it, or fails."""
    line = endpoint.line()
    sent = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}})
    began = perf_counter()
    try:
        line.request("POST", endpoint.base + CHAT, sent, endpoint.headers)
        response = line.getresponse()
        if response.status != 200:
            raise ArmUnavailable(f"HTTP {response.status}: {_reason(response.read())}")
        return _heard(began, _events(response))
    except (OSError, HTTPException) as error:
        raise ArmUnavailable(f"the server closed the connection ({type(error).__name__})") from error
    finally:
        line.close()


def first_model(endpoint: Endpoint) -> str:
    """The name of the first model that a server lists. `ArmUnavailable`: it lists none."""
    try:
        return str(json.loads(_page(endpoint, f"{endpoint.base}/models"))["data"][0]["id"])
    except (ValueError, LookupError, TypeError) as error:
        raise ArmUnavailable(f"the server lists no models ({type(error).__name__})") from error


def fed_tokens(port: int) -> float | None:
    """The number of tokens fed to the models of our server so far; None if it does not report it."""
    found = re.findall(rb"^agentcho_fed_tokens\S* (\S+)$", _page(Endpoint(port), "/metrics"), re.MULTILINE)
    return sum(map(float, found)) if found else None


def _page(endpoint: Endpoint, path: str) -> bytes:
    line = endpoint.line()
    try:
        line.request("GET", path, headers=endpoint.headers)
        return line.getresponse().read()
    except (OSError, HTTPException) as error:
        raise ArmUnavailable(f"the server does not answer ({type(error).__name__})") from error
    finally:
        line.close()


def _heard(began: float, events: Iterator[dict[str, Any]]) -> Heard:
    first = None
    text = ""
    usage = dict[str, Any]()
    pieces = 0
    for event in events:
        if "error" in event:
            raise ArmUnavailable(f"the stream reported an error: {_reason(json.dumps(event).encode())}")
        for choice in event.get("choices", ()):
            said = choice.get("delta", {}).get("content") or ""
            if first is None and (said or choice.get("finish_reason")):
                first = perf_counter()
            text, pieces = text + said, pieces + bool(said)
        usage = event.get("usage") or usage
    if first is None:
        raise ArmUnavailable("the stream ended without a token")
    return Heard(
        began=began, first=first, ended=perf_counter(), text=text, usage=usage or {"completion_tokens": pieces}
    )


def _events(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the data of each server-sent event as it arrives."""
    while line := response.readline():
        if line.startswith(b"data:") and (data := line[5:].strip()) != b"[DONE]":
            yield json.loads(data)


def _reason(body: bytes) -> str:
    """The error message of a server's response, on one line."""
    try:
        said = json.loads(body)
    except ValueError:
        said = body.decode(errors="replace")
    error = said.get("error", said.get("detail", said)) if isinstance(said, dict) else said
    message = error.get("message", error) if isinstance(error, dict) else error
    return " ".join(str(message).split())[:200]

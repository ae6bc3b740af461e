"""The format of the answer to one request, apart from its content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from agentcho.serve.request import TokenLogprob, TokenUsage

LEAST = -9999.0
"""Stands for the logarithm of 0, which JSON cannot represent."""
Calling = Literal["none", "auto", "forced"]
"""Whether an answer may be a function call: never; if the model decides so; or it must be a call or JSON as a whole."""


class Shape(NamedTuple):
    """How an answer is written.

    - `id`, `created` (seconds since 1970) and `model` (as the client wrote it) are in every object.
    - `ids` are those of the answers.
    - `stream`: as events while it is generated; `usage`: the events end with the token counts.
    - `logprobs`, `tokens`: with log-probabilities, and with token ids. `as_ids`: tokens of log-probabilities are
      written as `token_id:7` instead of their text.
    - `ignored`: the sorted names of parameters that were given and had no effect, to be counted.
    - `echo`: parameters that the answer repeats.
    - `previous`: the response that this one continues. `store`: it may be continued. `leading`: how many messages of
      the request come before those of the previous response; they are not stored.
    """

    id: str
    created: int
    model: str
    ids: tuple[str, ...]
    stream: bool = False
    usage: bool = False
    logprobs: bool = False
    tokens: bool = False
    calling: Calling = "none"
    ignored: tuple[str, ...] = ()
    echo: Mapping[str, Any] = {}
    previous: str | None = None
    store: bool = False
    leading: int = 0
    as_ids: bool = False


class Counts(NamedTuple):
    """The token counts of a request, such that clients may add and subtract them: `cached` plus `reused` never exceeds
    `prompt`."""

    prompt: int
    completion: int
    cached: int
    reused: int
    unmatched: Mapping[str, int] = {}

    @property
    def details(self) -> dict[str, int]:
        """The details of the prompt tokens, each count separate, because clients add them up."""
        told = {"cached_tokens": self.cached, "message_reused_tokens": self.reused}
        return told | {f"unmatched_{why}_tokens": tokens for why, tokens in self.unmatched.items()}


def counts(usage: TokenUsage) -> Counts:
    """Make consistent counts from whatever was counted."""
    cached = min(usage.exact, usage.prompt)
    reused = min(usage.reused, usage.prompt - cached)
    return Counts(
        prompt=usage.prompt, completion=usage.completion, cached=cached, reused=reused, unmatched=dict(usage.missed)
    )


def logprob(likely: TokenLogprob, as_ids: bool = False) -> dict[str, Any]:
    """One token with its log-probability, and the likeliest alternatives."""
    return _alone(likely, as_ids) | {"top_logprobs": [_alone(each, as_ids) for each in likely.others]}


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """One event of a stream, in ASCII: clients split events at every line-ending character, and JSON leaves some of
    them unescaped otherwise."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, allow_nan=False, separators=(',', ':'))}\n\n".encode()


def _alone(likely: TokenLogprob, as_ids: bool) -> dict[str, Any]:
    value = max(likely.logprob, LEAST) if likely.logprob == likely.logprob else LEAST
    return {"token": f"token_id:{likely.token}" if as_ids else likely.text, "logprob": value, "bytes": list(likely.raw)}

"""What the answer to one request must look like, beside what is said in it. Does not know: what was asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from agentcho.serve.request import TokenLogprob, TokenUsage

LEAST = -9999.0
"""What stands for the logarithm of 0, which JSON cannot write."""
Calling = Literal["none", "auto", "forced"]
"""Whether an answer is a call of a function: never; where the model says so; or all of it must be one, or JSON."""


class Shape(NamedTuple):
    """How an answer is written.

    - `id`, `created` (seconds since 1970) and `model` (as the client wrote it) are told in every object.
    - `ids` are those of the answers.
    - `stream`: in events as it is said; `usage`: these end with the token counts.
    - `logprobs`, `tokens`: with logarithms, and with token ids. `as_ids`: the logarithms' tokens are told as
      `token_id:7`, and not by their text.
    - `ignored`: the names of parameters that were given and changed nothing, sorted, to be counted.
    - `echo`: parameters that the answer repeats.
    - `previous`: the response that this one goes on with. `store`: it may be gone on with. `leading`: so many messages
      of the request stand before those that come from there, and are not kept.
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
    """The token counts of a request as clients may add and subtract them: `cached` and `reused` together are never more
    than `prompt`."""

    prompt: int
    completion: int
    cached: int
    reused: int
    unmatched: Mapping[str, int] = {}

    @property
    def details(self) -> dict[str, int]:
        """What is told of the prompt, each count a number of its own: clients add them up."""
        told = {"cached_tokens": self.cached, "message_reused_tokens": self.reused}
        return told | {f"unmatched_{why}_tokens": tokens for why, tokens in self.unmatched.items()}


def counts(usage: TokenUsage) -> Counts:
    """Counts that fit together, whatever was counted."""
    cached = min(usage.exact, usage.prompt)
    reused = min(usage.reused, usage.prompt - cached)
    return Counts(
        prompt=usage.prompt, completion=usage.completion, cached=cached, reused=reused, unmatched=dict(usage.missed)
    )


def logprob(likely: TokenLogprob, as_ids: bool = False) -> dict[str, Any]:
    """One token with its logarithm, and the likeliest others beside it."""
    return _alone(likely, as_ids) | {"top_logprobs": [_alone(each, as_ids) for each in likely.others]}


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """One event of a stream. In ASCII: clients split events at every character that ends a line, and JSON leaves some
    of them as they are otherwise."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, allow_nan=False, separators=(',', ':'))}\n\n".encode()


def _alone(likely: TokenLogprob, as_ids: bool) -> dict[str, Any]:
    value = max(likely.logprob, LEAST) if likely.logprob == likely.logprob else LEAST
    return {"token": f"token_id:{likely.token}" if as_ids else likely.text, "logprob": value, "bytes": list(likely.raw)}

"""What a model behind an API is asked, and what it answers: texts, and no token ids or encodings.

Does not know: HTTP, agents, audiences, which server it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeGuard

from agentcho.message import Role
from agentcho.protocol.call import EnginePort, Sampling, Stopped

Server = Literal["openai", "agentcho", "vllm", "sglang", "transformers", "llama.cpp"]
"""Kinds of servers, by what they can be asked beyond the common part of OpenAI's chat API."""
Capability = Literal["choices", "schema", "seed", "logprobs", "header", "names", "salt"]
"""What a server may be able to do: constrain an answer to choices or to a JSON schema, take a seed, give probabilities,
go on with the beginning of an answer, show its model who speaks, keep prefix caches apart by a salt."""


ENDPOINT = {"kind": "endpoint"}
"""What the fingerprint of every endpoint has, and no other: a record says by it which models have no encodings."""


class PromptMessage(NamedTuple):
    """One message of a prompt. `name` is who speaks, None for the scenario; `own`: who is asked said it."""

    role: Role
    name: str | None
    text: str
    own: bool = False


class TokensSpent(NamedTuple):
    """What an answer took: tokens of the prompt, those of it that were cached, and of the answer, as the server reports
    them (None: it does not); requests that were sent, failed ones included; cost in the currency of the given prices
    (None: there are none, or the server reports no tokens)."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    requests: int = 1
    cost: float | None = None


@dataclass(frozen=True)
class TextCall:
    """One answer to be generated.

    - `messages` are the prompt, in order; the answer is the assistant's, and begins with `header`, which is no part of
      its text.
    - `sampling` as for a `Decode`, choices and JSON schema included.
    - `salt`: the server may reuse what it has of this prompt for calls of the same salt alone (see
      `provenance.prefix_cache_salts`).
    - `on_text` is called on the event loop with each piece of the text as it comes, where the answer needs no check
      before anybody may see it; otherwise with the whole text, once it has passed.
    """

    messages: tuple[PromptMessage, ...]
    header: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    salt: str | None = None
    on_text: Callable[[str], None] | None = None


class TextReply(NamedTuple):
    """A finished answer: its text without the header and without a stop string, what ended it, what it took, seconds
    from the asking to the first piece and to the end, waiting for room and for retries included. `thought`: what the
    model thought before, where the server sends that apart from the text."""

    text: str
    stopped: Stopped
    spent: TokensSpent
    first: float
    seconds: float
    thought: str = ""


class TextPort(Protocol):
    """A model behind an API. Asynchronous, and shared by all games of a run, which bounds what is sent at once.

    `vendor` says who sees what is sent. `context` is its number of positions, None where nobody says so. `ask` raises
    errors of `AgentchoError`, `transient` where another attempt may succeed; a cancelled call closes its connection.
    """

    @property
    def name(self) -> str: ...
    @property
    def vendor(self) -> str: ...
    @property
    def context(self) -> int | None: ...
    @property
    def fingerprint(self) -> Mapping[str, str]:
        """What a record says of it: model, server, address. No key."""

    async def ask(self, call: TextCall) -> TextReply: ...
    async def aclose(self) -> None: ...


def is_engine(model: EnginePort | TextPort) -> TypeGuard[EnginePort]:
    """Whether a model of a run is loaded here; otherwise it is behind an API."""
    return not hasattr(model, "ask")

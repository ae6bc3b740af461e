"""Requests and answers, independent of the API that they came by.

Plain values without HTTP and JSON: the `api` modules read requests into these and write answers from them. Independent
of keys, sockets and encodings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agentcho.protocol.call import SamplingOptions
from agentcho.protocol.tools import ToolCall as ToolCall
from agentcho.protocol.tools import ToolDefinition as ToolDefinition
from agentcho.protocol.variables import Variables

ChatRole = Literal["system", "user", "assistant", "tool"]
ServedMode = Literal["baseline", "audit", "enforce"]
"""How a society reads: "baseline" is exact, the other two are choreographed."""
LogprobsRule = Literal["exact", "raw", "refuse"]
"""How a request for log-probabilities is handled. "exact": it runs in the deterministic profile. "raw": it runs like
any other, so the values depend on what else is computed at the same time. "refuse": it is refused."""


Sharing = Literal["shared", "private"]
"""Whether messages are for the whole society, or only for the agent that sends them."""

MOST_CALLED_NAME = 1024
"""Maximum number of characters of the name of a called function. Models also call functions that were not offered, by
names of their own."""
SHORT = 1 << 14
"""Number of characters that are tokenised quickly enough to do so on the event loop."""
EACH = 64
"""Number of characters that take about as long to tokenise as a message or a call takes to render."""


class Tools(NamedTuple):
    """The functions of a request. `choice`: "none", "auto", "required", or "named" if `named` is the function that must
    be called."""

    tools: tuple[ToolDefinition, ...]
    choice: Literal["none", "auto", "required", "named"] = "auto"
    named: str | None = None


class QuotedMessage(NamedTuple):
    """A message as a client sends it. `id` is the id that it claims to have from an earlier answer, `name` its claimed
    speaker. `calls` are the function calls in it (assistant), `call_id` the call that it answers (tool). `refers`: it
    stands for a stored item of the responses API that has this id."""

    role: ChatRole
    text: str
    name: str | None = None
    id: str | None = None
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    refers: bool = False


@dataclass(frozen=True)
class ChatRequest:
    """A request.

    - `options` are those of `Sampling` that the client gave, without `max_tokens` and `seed`.
    - `max_tokens` (None: as many as there is room for) is cut to the room that the context leaves.
    - `seed` None: one is drawn, so that equal requests may get different answers.
    - `choices` is the number of requested answers ("n").
    - `logprobs`: each token comes with its log-probability and those of this many likeliest tokens (None: none at all).
    - `audience` are the names of the agents that may read the messages that this request brings, and its answers; its
      own agent is always among them (None: everyone in the society).
    - `user_messages`: who may read the user messages that it brings (None: as the server is configured). `history`: who
      may read the answers that it quotes and that no model in this society has said.
    - `apart`: names of functions whose calls cannot be constrained to their schema, so that they are not called where a
      call is required.
    - `priority`: a higher one is served first. `cache_salt`: requests share encodings only if their salts are equal.
    - `ids` are the ids for its answers, one for each of `choices` (if empty, they are drawn). They are known before the
      first token because the first event of a /v1/responses stream already names its message.
    - `variables`: what the chat template is given besides the messages. `asked`: those that the client names itself.
      `hard`: the client's field for reasoning effort (None: it gave none), from which the others come.
    - `parallel`: an answer may have several function calls; otherwise those after the first are left out.
    - `constrained` is the client's field that constrains the answer, `most` that of `max_tokens`.
    """

    messages: tuple[QuotedMessage, ...]
    options: SamplingOptions = field(default_factory=SamplingOptions)
    max_tokens: int | None = None
    seed: int | None = None
    choices: int = 1
    logprobs: int | None = None
    tools: Tools | None = None
    audience: tuple[str, ...] | None = None
    priority: int = 0
    cache_salt: str = ""
    ids: tuple[str, ...] = ()
    constrained: str | None = None
    most: str = "max_tokens"
    user_messages: Sharing | None = None
    history: Sharing = "private"
    apart: frozenset[str] = frozenset()
    variables: Variables = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    hard: str | None = None
    parallel: bool = True

    @property
    def least(self) -> int:
        """The minimum number of tokens of an answer."""
        return self.options.get("min_tokens", 0)

    @property
    def held(self) -> tuple[ToolDefinition, ...]:
        """The functions that may be called where a call is required."""
        return () if self.tools is None else tuple(each for each in self.tools.tools if each.name not in self.apart)

    @property
    def texts(self) -> Iterator[str]:
        """All texts for the model: messages, names and arguments of function calls, and functions."""
        for message in self.messages:
            yield message.text
            yield from (text for call in message.calls for text in (call.name, call.arguments))
        for tool in () if self.tools is None or self.tools.choice == "none" else self.tools.tools:
            yield tool.description
            yield json.dumps(tool.parameters)

    @property
    def letters(self) -> int:
        """The number of characters of all texts."""
        return sum(map(len, self.texts))

    @property
    def is_long(self) -> bool:
        """Whether rendering and tokenising the messages takes so long that it has to be done in a thread."""
        count = len(self.messages) + sum(len(message.calls) for message in self.messages)
        return self.letters + EACH * count > SHORT


class Caller(NamedTuple):
    """Who sends a request: the tenant of the key, and the society and agent named by key, path, header or model alias.

    `agent` None: the agent is identified by the hash of its system messages, if there are any. `mode` None: that of the
    society, or the server's default. `key` identifies the key without revealing it. `bound`: it is the key of a single
    agent.
    """

    tenant: str = ""
    society: str | None = None
    agent: str | None = None
    mode: ServedMode | None = None
    key: str = ""
    bound: bool = False


class TokenLogprob(NamedTuple):
    """A generated token: its id, its bytes, the natural logarithm of its probability, and the same for the likeliest
    `others`, which have no others themselves. The bytes of all tokens together are the text in UTF-8."""

    token: int
    raw: bytes
    logprob: float
    others: tuple[TokenLogprob, ...] = ()

    @property
    def text(self) -> str:
        """Its text, with U+FFFD for incomplete characters."""
        return self.raw.decode(errors="replace")


class TokenUsage(NamedTuple):
    """Token counts of a request, framing included.

    `prompt` counts all tokens that were read. Of these, `exact` were reused exactly as they would have been encoded
    anew, apart from rounding: messages at the beginning of the prompt, each encoded over just those before it. `reused`
    are all others that were not encoded for this request, reused through encodings of messages. Tokens that concurrent
    requests have in common are new to one of them. `completion` tokens were generated, `pondered` of them for thoughts.
    `missed`: tokens of messages that the society did not have yet, by reason (see `message_index.Miss`); with
    concurrent requests more than were encoded.
    """

    prompt: int = 0
    completion: int = 0
    exact: int = 0
    reused: int = 0
    missed: tuple[tuple[str, int], ...] = ()
    pondered: int = 0


class Answer(NamedTuple):
    """One answer. `id` is the id by which a later request may quote it. `text` is everything that was said; if that
    contains function calls, `calls` has them, and `before` the text before the first. `ended`: "stop", "stop_string",
    "stop_token" or "max_tokens"; `reason`: the client's stop string, or id of a stop token, that ended it. `tokens` are
    the token ids of the text. `thought` is the model's thought before the answer, `pondered` its number of tokens."""

    id: str
    text: str
    ended: str
    tokens: tuple[int, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    before: str = ""
    likely: tuple[TokenLogprob, ...] = ()
    reason: int | str | None = None
    thought: str = ""
    pondered: int = 0

    @property
    def sampled(self) -> int:
        """The number of tokens generated for it."""
        return len(self.tokens) + self.pondered


class AnswerDelta(NamedTuple):
    """What a step added to answer number `choice`: visible text and, if requested, the log-probabilities of its tokens;
    or `thought`, text of the model's thought before the answer. `ended`: nothing is added, the answer is complete, and
    this is all of it. A request for a single answer has no such delta."""

    choice: int
    text: str
    likely: tuple[TokenLogprob, ...] = ()
    thought: str = ""
    ended: Answer | None = None


class Answers(NamedTuple):
    """All answers of a request, in order, and their total usage."""

    answers: tuple[Answer, ...]
    usage: TokenUsage


Hear = Callable[[AnswerDelta], None]
"""Receives deltas as they are generated, on the event loop. An exception from it ends the request."""

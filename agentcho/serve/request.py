"""What a client asks for and what it gets, whichever API it came by.

Plain values without HTTP and JSON: the edge reads requests into these, and writes answers from them. Does not
know: keys, sockets, encodings.
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
"""How a society reads: "baseline" is exact, the two others are choreographed."""
LogprobsRule = Literal["exact", "raw", "refuse"]
"""What becomes of a request for log-probabilities. "exact": it runs in the deterministic profile; "raw": it runs like
any other, and they depend on what else is computed at the same time; "refuse": it is refused."""


Sharing = Literal["shared", "private"]
"""Whether messages are for a society, or for the agent alone that brings them."""

SHORT = 1 << 14
"""So many letters are tokenised in a moment."""


class Tools(NamedTuple):
    """The functions of a request. `choice`: "none", "auto", "required", or the name of the one that must be called, as
    `named`."""

    tools: tuple[ToolDefinition, ...]
    choice: Literal["none", "auto", "required", "named"] = "auto"
    named: str | None = None


class QuotedMessage(NamedTuple):
    """A message as a client sends it. `id` is the one that it claims to have from an earlier answer; `name` is whose it
    claims to be. `calls` are the calls of functions in it (assistant), `call_id` the call that it answers (tool)."""

    role: ChatRole
    text: str
    name: str | None = None
    id: str | None = None
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None


@dataclass(frozen=True)
class ChatRequest:
    """What is asked for.

    - `options` are those of `Sampling` that the client gave, without `max_tokens` and `seed`.
    - `max_tokens` (None: as many as there is room for) is cut to the room that the context leaves.
    - `seed` None: one is drawn, so that equal requests may get other words.
    - `choices` is how many answers are asked for ("n").
    - `logprobs`: with each token come so many of the likeliest, after itself (None: no logarithms at all).
    - `audience` are the names of the agents that may read the messages that this request brings, and its answers, its
      own agent always among them (None: everyone in the society).
    - `user_messages`: whose the user messages are that it brings (None: as the server has it). `history`: whose the
      answers are that it quotes, and that no model said in this society.
    - `apart`: names of functions that no call can be held to, so that none of them is called where a call must be made.
    - `priority`: a higher one is served first. `cache_salt`: requests share encodings only where theirs is the same.
    - `ids` are the ids that its answers get, one for each of `choices` (none given: they are drawn). They are known
      before the first token because the first event of a stream of /v1/responses already names its message.
    - `variables`: what the chat template is given beside the messages. `asked`: which of them the client itself names;
      `hard`: its field that says how much the model is to think (None: it has none), from which the others come.
    - `constrained` is the client's field that holds the answer to something, `most` that of `max_tokens`.
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

    @property
    def least(self) -> int:
        """How many tokens an answer has at least."""
        return self.options.get("min_tokens", 0)

    @property
    def held(self) -> tuple[ToolDefinition, ...]:
        """The functions of which one may be called where a call must be made."""
        return () if self.tools is None else tuple(each for each in self.tools.tools if each.name not in self.apart)

    @property
    def texts(self) -> Iterator[str]:
        """All texts that a model is to read: messages, the arguments of calls of functions, and the functions."""
        for message in self.messages:
            yield message.text
            yield from (call.arguments for call in message.calls)
        for tool in () if self.tools is None or self.tools.choice == "none" else self.tools.tools:
            yield tool.description
            yield json.dumps(tool.parameters)

    @property
    def is_long(self) -> bool:
        """Whether it takes more than a moment to tokenise them: it is to be done beside the event loop."""
        return sum(map(len, self.texts)) > SHORT


class Caller(NamedTuple):
    """Who asks: the tenant of the key, and the society and agent that key, path, header or model alias name.

    `agent` None: it is known by the hash of its system messages, if it has any. `mode` None: as the society was
    opened, or the server's own. `key` names the key without giving it away.
    """

    tenant: str = ""
    society: str | None = None
    agent: str | None = None
    mode: ServedMode | None = None
    key: str = ""


class TokenLogprob(NamedTuple):
    """A token that was said: its id, its bytes, the natural logarithm of its probability, and the same of the likeliest
    `others`, without others of their own. The bytes of all tokens, joined, are the text's UTF-8."""

    token: int
    raw: bytes
    logprob: float
    others: tuple[TokenLogprob, ...] = ()

    @property
    def text(self) -> str:
        """Its text; U+FFFD stands for a part of a character."""
        return self.raw.decode(errors="replace")


class AnswerDelta(NamedTuple):
    """What a step added to answer number `choice`: visible text, and the logarithms of its tokens where they were asked
    for; or `thought`, text of what the model thinks before."""

    choice: int
    text: str
    likely: tuple[TokenLogprob, ...] = ()
    thought: str = ""


class TokenUsage(NamedTuple):
    """Tokens of a request, framing included. `prompt` are all that were read. Of these `exact` were reused as they
    would have been encoded anew, but for rounding: what the prompt begins with, each message encoded over just those
    before it; `reused` through encodings of messages, all others that were not encoded for this request. What requests
    that come together have in common is new to one of them. `completion` were generated, `pondered` of them for
    thoughts. `missed`: tokens of messages
    that the society did not have yet, by why (see `index.Miss`); more than were encoded, where requests come together.
    """

    prompt: int = 0
    completion: int = 0
    exact: int = 0
    reused: int = 0
    missed: tuple[tuple[str, int], ...] = ()
    pondered: int = 0


class Answer(NamedTuple):
    """One answer. `id` is the one by which a later request may quote it. `text` is all that was said; where that is
    calls of functions, `calls` has them, and `before` the text before the first. `ended`: "stop", "stop_string",
    "stop_token" or "max_tokens"; `reason`: the string or the id of a token that the client named and that ended it.
    `tokens` are the ids of what was said. `thought` is what the model thought before, in `pondered` tokens."""

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
        """How many tokens were generated for it."""
        return len(self.tokens) + self.pondered


class Answers(NamedTuple):
    """All answers of a request, in order, and what they cost together."""

    answers: tuple[Answer, ...]
    usage: TokenUsage


Hear = Callable[[AnswerDelta], None]
"""Hears what is said, as it is said, on the event loop. What it raises ends the request."""

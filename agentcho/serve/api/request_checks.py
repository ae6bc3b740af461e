"""Combines the parts of a request of either API, and checks them against each other.

Independent of the form of an API's messages and answers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from agentcho.protocol.variables import Effort
from agentcho.serve.api import functions, ids, messages, request_fields
from agentcho.serve.api.answer_shape import Calling
from agentcho.serve.api.body import within, within_letters
from agentcho.serve.api.limits import RequestLimits
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import ChatRequest, QuotedMessage, Tools


class RequestParts(NamedTuple):
    """The parts that each API expresses in its own way. `format` is the schema that the answer must match, and `param`
    its field. `spoken` is the field of the messages, `most` that of the maximum number of tokens, `hard` that of the
    `effort`."""

    quoted: list[QuotedMessage]
    spoken: str
    tools: Tools | None
    format: dict[str, Any] | None
    param: str
    max_tokens: int | None
    most: str
    logprobs: int | None = None
    choices: int = 1
    effort: Effort | None = None
    hard: str = "reasoning_effort"


def request(given: request_fields.Parameters, asked: RequestParts, limits: RequestLimits) -> ChatRequest:
    """Make the request. `ApiError`: a limit is exceeded, or parameters contradict each other."""
    within(len(asked.quoted), limits.messages, asked.spoken, "messages")
    within_letters(messages.letters(asked.quoted), limits.letters, asked.spoken)
    if asked.choices > limits.choices:
        raise ApiError(400, f"n: this server gives at most {limits.choices} answers; ask for fewer", "n")
    if asked.logprobs is not None and asked.logprobs > limits.logprobs:
        raise ApiError(400, f"top_logprobs: this server gives at most {limits.logprobs}; ask for fewer", "top_logprobs")
    if asked.max_tokens is not None and asked.max_tokens > limits.tokens:
        raise ApiError(400, f"{asked.most}: this server allows at most {limits.tokens}; lower it", asked.most)
    constraint = _constraint(given, asked, limits)
    return ChatRequest(
        tuple(asked.quoted),
        request_fields.options(
            given, constraint, limits, limits.tokens if asked.max_tokens is None else asked.max_tokens
        ),
        asked.max_tokens,
        given.seed,
        asked.choices,
        asked.logprobs,
        asked.tools,
        given.audience(),
        -given.priority,
        given.cache_salt or "",
        tuple(ids.drawn() for _ in range(asked.choices)),
        user_messages=given.agentcho.user_messages,
        history=given.agentcho.history or "private",
        apart=functions.apart(asked.tools),
        constrained=constraint.param if constraint is not None else "tools" if asked.tools is not None else None,
        most=asked.most,
        variables=request_fields.variables(given, asked.effort),
        asked=frozenset(given.templated or ()),
        hard=None if asked.effort is None else asked.hard,
        parallel=given.parallel_tool_calls,
    )


def calling(request: ChatRequest) -> Calling:
    """Whether the answer may or must be a function call, considering that everything else may be held to a format."""
    tools = request.tools
    if tools is None or tools.choice == "none":
        return "none"
    held = "json_schema" in request.options or "choices" in request.options
    return "auto" if tools.choice == "auto" and not held else "forced"


def _constraint(
    given: request_fields.Parameters, asked: RequestParts, limits: RequestLimits
) -> request_fields.AnswerConstraint | None:
    """The constraint on the text of the answer. It does not apply where the answer must be a call; where it may be one,
    the answer is a call or such a text. `ApiError`: there are two."""
    found = request_fields.constraint(given, asked.format, asked.param)
    must_call = asked.tools is not None and asked.tools.choice not in ("none", "auto")
    if must_call and found is not None and found.json_schema is not None:
        request_fields.schema(found.json_schema, found.param, limits)  # the answer repeats it, though it has no effect
    return None if must_call else found

"""/v1/chat/completions: parses the body, and writes answers as objects and events.

Independent of sockets, callers, and how answers are generated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from agentcho.protocol.variables import Effort
from agentcho.serve.api import functions, ids, request_fields
from agentcho.serve.api import request_checks as asking
from agentcho.serve.api.answer_shape import Shape, counts, event, logprob
from agentcho.serve.api.body import Body, OnlyValue, Several, read, wrong
from agentcho.serve.api.limits import RequestLimits
from agentcho.serve.api.messages import ChatMessageBody
from agentcho.serve.api.models import RequestTarget
from agentcho.serve.api.request_checks import RequestParts
from agentcho.serve.api.request_fields import IGNORED, ONLY, Positive, TopLogprobs
from agentcho.serve.api.tool_call_buffer import ToolCallBuffer
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Answer, AnswerDelta, Answers, ChatRequest, TokenLogprob, TokenUsage

DONE = b"data: [DONE]\n\n"
CHUNK = "chat.completion.chunk"
SCHEMA_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ChatStreamOptions(Body):
    """What a stream contains besides the answers."""

    within = "stream_options."
    ignored = frozenset({"include_obfuscation"})
    only: ClassVar[Mapping[str, OnlyValue]] = {
        "continuous_usage_stats": OnlyValue(False, "tokens are counted when the answer has ended")
    }

    include_usage: bool = False


def _schema_name(given: str) -> str:
    """Check the name of a schema."""
    if not SCHEMA_NAME.fullmatch(given):
        raise PydanticCustomError("name", "it is not 1 to 64 letters (a to z, A to Z), digits, _ and -; change it")
    return given


class NamedSchema(Body):
    """A JSON schema with the client's name for it."""

    name: Annotated[str, AfterValidator(_schema_name)]
    description: str | None = None
    strict: bool | None = None
    schema_: dict[str, Any] = Field(alias="schema")


class ChatFormat(Body):
    """The format of the answer: any text, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None

    @model_validator(mode="after")
    def _whole(self) -> ChatFormat:
        """Raise if the schema of this type is missing."""
        if self.type == "json_schema" and self.json_schema is None:
            raise wrong(
                "json_schema", "it is missing, and type json_schema needs it; give an object with a name and a schema"
            )
        return self

    @property
    def wanted(self) -> dict[str, Any] | None:
        """The schema that the answer must match, if any."""
        if self.type == "json_schema" and self.json_schema is not None:
            return self.json_schema.schema_
        return {"type": "object"} if self.type == "json_object" else None


class ChatBody(request_fields.Parameters):
    """A request body."""

    ignored = IGNORED | {"verbosity"}
    only: ClassVar[Mapping[str, OnlyValue]] = {**ONLY, "modalities": OnlyValue(["text"], "answers are text")}

    messages: Annotated[Several[ChatMessageBody], Field(min_length=1)]
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    n: Positive = 1
    logprobs: bool = False
    top_logprobs: TopLogprobs | None = None
    response_format: ChatFormat = ChatFormat(type="text")
    stream_options: ChatStreamOptions = ChatStreamOptions()
    tools: Several[functions.ChatTool] = ()
    reasoning_effort: Effort | None = None

    def most(self) -> int | None:
        """The maximum number of answer tokens, under either of its two names. `ApiError`: they differ."""
        by_both = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(by_both) > 1:
            raise ApiError(400, "max_tokens: it differs from max_completion_tokens; give one of them", "max_tokens")
        return by_both.pop() if by_both else None

    def likeliest(self) -> int | None:
        """The number of likeliest tokens reported with each token. `ApiError`: some are requested without
        log-probabilities."""
        if self.logprobs:
            return self.top_logprobs or 0
        if self.top_logprobs:
            raise ApiError(400, "top_logprobs: it needs logprobs; set logprobs to true", "top_logprobs")
        return None


def parsed(body: bytes, limits: RequestLimits) -> tuple[RequestTarget, ChatRequest, Shape]:
    """The target of a body, its request, and how the answer is written. `ApiError`: it cannot be processed."""
    ignored = set[str]()
    given = read(body, ChatBody, ignored, limits)
    target = given.target()
    tools = functions.tools([each.function for each in given.tools], given.tool_choice, limits, ".function")
    asked = RequestParts(
        [each.quoted for each in given.messages],
        "messages",
        tools,
        given.response_format.wanted,
        "response_format",
        given.most(),
        "max_completion_tokens" if given.max_tokens is None else "max_tokens",
        given.likeliest(),
        given.n,
        given.reasoning_effort,
    )
    request = asking.request(given, asked, limits)
    shape = Shape(
        f"chatcmpl-{ids.drawn()}",
        int(time.time()),
        given.model,
        request.ids,
        given.stream,
        given.stream_options.include_usage,
        given.logprobs,
        given.return_token_ids,
        asking.calling(request),
        tuple(sorted(ignored)),
        as_ids=given.return_tokens_as_token_ids,
    )
    return target, request, shape


def whole(shape: Shape, answers: Answers) -> dict[str, Any]:
    """The answer as one object."""
    choices = [_choice(shape, index, answer) for index, answer in enumerate(answers.answers)]
    return _head(shape, "chat.completion") | {"choices": choices, "usage": _usage(answers.usage)}


class ChatStream:
    """The events of one answer while it is generated. A function call begins with `opening` (None: nothing that the
    model writes by itself is a call). Text that may be a call is sent when the answer has ended."""

    def __init__(self, shape: Shape, opening: str | None = None) -> None:
        how = {"none": None, "auto": opening, "forced": ""}[shape.calling]
        self._shape = shape
        self._held = [ToolCallBuffer(how) for _ in shape.ids]
        self._likely: list[list[TokenLogprob]] = [[] for _ in shape.ids]
        self._heard = [0 for _ in shape.ids]
        self._ended = set[int]()

    def begin(self) -> list[bytes]:
        """The events before the first token."""
        first = {"role": "assistant", "content": "", "refusal": None}
        return [self._chunk(index, first) for index in range(len(self._held))]

    def delta(self, delta: AnswerDelta) -> list[bytes]:
        """The events for what a step added to an answer, or to the thought before it, or for the end of an answer."""
        if delta.ended is not None:
            self._ended.add(delta.choice)
            return list(self._ending(delta.choice, delta.ended))
        if delta.thought:
            return [self._chunk(delta.choice, _thought(delta.thought))]
        shown, waiting = self._held[delta.choice].add(delta.text), self._likely[delta.choice]
        waiting += delta.likely
        self._heard[delta.choice] += len(delta.likely)
        if not shown and (not waiting or not self._held[delta.choice].empty):
            return []
        return [self._chunk(delta.choice, {"content": shown})]

    def end(self, answers: Answers) -> list[bytes]:
        """The last events, after all answers have ended."""
        left = ((index, answer) for index, answer in enumerate(answers.answers) if index not in self._ended)
        sent = [part for index, answer in left for part in self._ending(index, answer)]
        if self._shape.usage:
            sent.append(event(_head(self._shape, CHUNK) | {"choices": [], "usage": _usage(answers.usage)}))
        return [*sent, DONE]

    def fault(self, error: ApiError) -> bytes:
        """The last event if the request has failed."""
        return event(error.to_json())

    def _ending(self, index: int, answer: Answer) -> Iterator[bytes]:
        self._likely[index] += answer.likely[self._heard[index] :]
        if rest := self._held[index].rest(answer):
            yield self._chunk(index, {"content": rest})
        for number, call in enumerate(_calls(answer)):
            function = call["function"]
            opened = {"index": number, **call, "function": {**function, "arguments": ""}}
            yield self._chunk(index, {"tool_calls": [opened]})
            added = {"index": number, "function": {"arguments": function["arguments"]}}
            yield self._chunk(index, {"tool_calls": [added]})
        more: dict[str, Any] = {"stop_reason": answer.reason}
        more |= {"token_ids": list(answer.tokens)} if self._shape.tokens else {}
        yield self._chunk(index, {"id": answer.id}, _reason(answer), more)

    def _chunk(self, index: int, delta: dict[str, Any], reason: str | None = None, more: Any = None) -> bytes:
        likely, self._likely[index] = self._likely[index], []
        logprobs = _logprobs(self._shape, likely) if self._shape.logprobs and likely else None
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason} | (more or {})
        usage = {"usage": None} if self._shape.usage else {}
        return event(_head(self._shape, CHUNK) | {"choices": [choice]} | usage)


def _head(shape: Shape, kind: str) -> dict[str, Any]:
    return {"id": shape.id, "object": kind, "created": shape.created, "model": shape.model}


def _choice(shape: Shape, index: int, answer: Answer) -> dict[str, Any]:
    calls = _calls(answer)
    said = answer.before or None if calls else answer.text
    message = {"role": "assistant", "content": said, "refusal": None, "id": answer.id}
    message |= _thought(answer.thought) if answer.thought else {}
    choice = {
        "index": index,
        "message": message | ({"tool_calls": calls} if calls else {}),
        "logprobs": _logprobs(shape, answer.likely) if shape.logprobs else None,
        "finish_reason": _reason(answer),
        "stop_reason": answer.reason,
    }
    return choice | ({"token_ids": list(answer.tokens)} if shape.tokens else {})


def _thought(text: str) -> dict[str, str]:
    """The model's thought before its answer, under both names that servers use for it."""
    return {"reasoning_content": text, "reasoning": text}


def _calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {
            "id": ids.call(answer.id, number),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(answer.calls)
    ]


def _reason(answer: Answer) -> str:
    if answer.ended == "max_tokens":
        return "length"
    return "tool_calls" if answer.calls else "stop"


def _logprobs(shape: Shape, likely: Iterable[TokenLogprob]) -> dict[str, Any]:
    return {"content": [logprob(each, shape.as_ids) for each in likely], "refusal": None}


def _usage(usage: TokenUsage) -> dict[str, Any]:
    found = counts(usage)
    return {
        "prompt_tokens": found.prompt,
        "completion_tokens": found.completion,
        "total_tokens": found.prompt + found.completion,
        "prompt_tokens_details": found.details,
        "completion_tokens_details": {"reasoning_tokens": usage.pondered},
    }

"""/v1/responses: parses the body, and writes answers as objects and events.

Independent of sockets, callers, and how answers are generated.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from agentcho.protocol.variables import Effort
from agentcho.serve.api import functions, ids, request_fields
from agentcho.serve.api import request_checks as asking
from agentcho.serve.api.answer_shape import Shape, counts, event, logprob
from agentcho.serve.api.body import Body, OnlyValue, Several, read, wrong
from agentcho.serve.api.items import Input, quoted
from agentcho.serve.api.limits import RequestLimits
from agentcho.serve.api.models import RequestTarget
from agentcho.serve.api.request_checks import RequestParts
from agentcho.serve.api.request_fields import IGNORED, ONLY, Positive, TopLogprobs
from agentcho.serve.api.tool_call_buffer import ToolCallBuffer
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import (
    Answer,
    AnswerDelta,
    Answers,
    ChatRequest,
    QuotedMessage,
    TokenLogprob,
    TokenUsage,
    ToolCall,
)

Previous = Annotated[str, Field(min_length=1, max_length=128)]
MetadataKey = Annotated[str, Field(max_length=64)]
Label = Annotated[str, Field(max_length=512)]
OFF = (
    "previous_response_id: this server stores no conversations (--limit conversations=0); send all messages (clients "
    "that continue by id send all messages if store is false)"
)
NO_ITEMS = (
    "input: this server stores no items (--limit conversations=0); send the items themselves, not references to them "
    "(clients send the items if store is false)"
)
ADDED, DONE = "response.output_item.added", "response.output_item.done"
LOGPROBS = "message.output_text.logprobs"
REPEATED = ("max_tool_calls", "prompt_cache_key", "safety_identifier", "service_tier", "user")
"""Parameters that have no effect, and are only repeated in the response."""
Includable = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]


class ResponsesFormat(Body):
    """The format of the answer: any text, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"]
    name: str = "answer"
    description: str | None = None
    strict: bool | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")

    @model_validator(mode="after")
    def _whole(self) -> ResponsesFormat:
        """Raise if the schema of this type is missing."""
        if self.type == "json_schema" and self.schema_ is None:
            raise wrong("schema", "it is missing, and type json_schema needs it; give a JSON schema")
        return self

    @property
    def wanted(self) -> dict[str, Any] | None:
        """The schema that the answer must match, if any."""
        return {"text": None, "json_object": {"type": "object"}, "json_schema": self.schema_}[self.type]

    def to_json(self) -> dict[str, Any]:
        """The format as a client may send it."""
        schema = {"name": self.name, "description": self.description, "strict": self.strict, "schema": self.schema_}
        return {"type": self.type} | (schema if self.type == "json_schema" else {})


class TextOptions(Body):
    """Options for the text of the answer."""

    within = "text."
    ignored = frozenset({"verbosity"})

    format: ResponsesFormat = ResponsesFormat(type="text")


class Reasoning(Body):
    """How the model thinks before it answers. Thoughts are returned in full, not as summaries."""

    within = "reasoning."
    ignored = frozenset({"context", "generate_summary", "mode", "summary"})

    effort: Effort | None = None


class ResponsesStreamOptions(Body):
    """What a stream contains besides the answer: always its usage."""

    within = "stream_options."
    ignored = frozenset({"include_obfuscation", "include_usage"})


class ResponsesBody(request_fields.Parameters):
    """A request body."""

    ignored = IGNORED - {"metadata", "store", *REPEATED}
    only: ClassVar[Mapping[str, OnlyValue]] = {
        **ONLY,
        "background": OnlyValue(False, "an answer is told as it is said"),
        "truncation": OnlyValue("disabled", "nothing is ever cut from a prompt"),
    }

    input: Annotated[Input, Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Positive | None = None
    max_tool_calls: Positive | None = None
    metadata: Annotated[dict[MetadataKey, Label], Field(max_length=16)] = Field(default_factory=dict)
    prompt_cache_key: Label | None = None
    safety_identifier: Label | None = None
    service_tier: Label | None = None
    user: Label | None = None
    include: Several[Includable] = ()
    text: TextOptions = TextOptions()
    top_logprobs: TopLogprobs | None = None
    stream_options: ResponsesStreamOptions = ResponsesStreamOptions()
    tools: Several[functions.ResponsesTool] = ()
    previous_response_id: Previous | None = None
    store: bool = True
    reasoning: Reasoning = Reasoning()

    def likeliest(self) -> int | None:
        """The number of likeliest tokens reported with each token. None: no log-probabilities at all."""
        return self.top_logprobs or 0 if self.top_logprobs or LOGPROBS in self.include else None

    def without_effect(self) -> set[str]:
        """The names of fields that are accepted and have no effect on the answer."""
        found = {name for name in REPEATED if getattr(self, name) is not None}
        found |= {"metadata"} if self.metadata else set()
        found |= {"tools.strict"} if any(tool.strict is not None for tool in self.tools) else set()
        return found | ({"include"} if set(self.include) - {LOGPROBS} else set())


def parsed(body: bytes, limits: RequestLimits) -> tuple[RequestTarget, ChatRequest, Shape]:
    """The target of a body, its request, and how the answer is written. `ApiError`: it cannot be processed."""
    ignored = set[str]()
    given = read(body, ResponsesBody, ignored, limits)
    target, keeps = given.target(), limits.conversations > 0
    if given.previous_response_id is not None and not keeps:
        raise ApiError(400, OFF, "previous_response_id")
    if not keeps and any(item.type == "item_reference" for item in given.input):
        raise ApiError(400, NO_ITEMS, "input")
    told = [QuotedMessage("system", given.instructions)] if given.instructions is not None else []
    asked = RequestParts(
        told + quoted(given.input),
        "input",
        functions.tools(given.tools, given.tool_choice, limits),
        given.text.format.wanted,
        "text.format",
        given.max_output_tokens,
        "max_output_tokens",
        given.likeliest(),
        effort=given.reasoning.effort,
        hard="reasoning.effort",
    )
    request = asking.request(given, asked, limits)
    shape = Shape(
        f"resp_{ids.drawn()}",
        int(time.time()),
        given.model,
        request.ids,
        given.stream,
        logprobs=asked.logprobs is not None,
        tokens=given.return_token_ids,
        calling=asking.calling(request),
        ignored=tuple(sorted(ignored | given.without_effect())),
        echo=_echo(given, functions.chosen(given.tool_choice), given.store and keeps),
        previous=given.previous_response_id,
        store=given.store and keeps,
        leading=len(told),
        as_ids=given.return_tokens_as_token_ids,
    )
    return target, request, shape


def whole(shape: Shape, answers: Answers) -> dict[str, Any]:
    """The answer as one object."""
    answer = answers.answers[0]
    ended: dict[str, Any] = {"status": _status(answer)}
    if not _cut(answer):
        ended["completed_at"] = int(time.time())
    if _cut(answer):
        ended["incomplete_details"] = {"reason": "max_output_tokens"}
    if shape.tokens:
        ended["token_ids"] = list(answer.tokens)
    output = [_call_item(answer.id, number, call) for number, call in enumerate(answer.calls)]
    if _has_message(answer):
        said = answer.before if answer.calls else answer.text
        output.insert(0, _message(answer.id, _status(answer), [_part(said, _logprobs(shape, answer.likely))]))
    if answer.thought:
        output.insert(0, _thought(answer.id, answer.thought))
    return _head(shape) | ended | {"output": output, "usage": _usage(answers.usage)}


class ResponsesStream:
    """The events of one answer while it is generated. A function call begins with `opening` (None: nothing that the
    model writes by itself is a call). Text that may be a call is sent when the answer has ended."""

    def __init__(self, shape: Shape, opening: str | None = None) -> None:
        how = {"none": None, "auto": opening, "forced": ""}[shape.calling]
        self._shape, self._held, self._answer = shape, ToolCallBuffer(how), shape.ids[0]
        self._said, self._likely, self._waiting = list[str](), list[TokenLogprob](), list[TokenLogprob]()
        self._open, self._number, self._heard = False, 0, 0
        self._thought, self._blank = list[str](), ""
        self._place = 0

    def begin(self) -> list[bytes]:
        """The events before the first token."""
        response = _head(self._shape) | {"status": "in_progress"}
        return [self._event(f"response.{kind}", response=response) for kind in ("created", "in_progress")]

    def delta(self, delta: AnswerDelta) -> list[bytes]:
        """The events for what a step added to the answer, or to the thought before it."""
        if delta.thought:
            return list(self._think(delta.thought))
        shown = self._held.add(delta.text)
        self._waiting += delta.likely
        self._heard += len(delta.likely)
        if not shown and (not self._waiting or not self._held.empty):
            return []
        return list(self._text(shown))

    def end(self, answers: Answers) -> list[bytes]:
        """The last events, after the answer has ended."""
        answer, response = answers.answers[0], whole(self._shape, answers)
        sent, rest = self._end_of_thought(), self._held.rest(answer)
        self._waiting += answer.likely[self._heard :]
        if self._open or _has_message(answer):
            sent += self._text(rest)
            sent += self._closing(answer)
        first = self._place + int(self._open)
        for number, call in enumerate(answer.calls):
            sent += self._call(first + number, _call_item(self._answer, number, call))
        return [*sent, self._event(f"response.{response['status']}", response=response)]

    def fault(self, error: ApiError) -> bytes:
        """The last events if the request has failed. The error is sent twice: in the fields of the API, and in the form
        that clients look for in any stream."""
        told = {"code": _code(error), "message": error.message}
        response = _head(self._shape) | {"status": "failed", "error": told}
        fields = {"code": error.code, "message": error.message, "param": error.param}
        failed = self._event("response.failed", response=response)
        return failed + self._event("error", **fields, **error.to_json())

    def _think(self, text: str) -> Iterator[bytes]:
        """Events for more of a thought, preceded by those that open its item if they are the first. Whitespace around
        a thought is left out, as in the whole answer."""
        text = self._blank + text if self._thought else text.lstrip()
        shown = text.rstrip()
        self._blank = text[len(shown) :]
        if not shown:
            return
        if not self._thought:
            yield self._event(ADDED, output_index=0, item=_thought(self._answer, "", "in_progress"))
            yield self._in_thought("response.content_part.added", part=_thought_part(""))
        self._thought.append(shown)
        yield self._in_thought("response.reasoning_text.delta", delta=shown)

    def _end_of_thought(self) -> list[bytes]:
        """Events for the end of the thought, if one is open."""
        if not self._thought or self._place:
            return []
        self._place, text = 1, "".join(self._thought)
        return [
            self._in_thought("response.reasoning_text.done", text=text),
            self._in_thought("response.content_part.done", part=_thought_part(text)),
            self._event(DONE, output_index=0, item=_thought(self._answer, text)),
        ]

    def _text(self, shown: str) -> Iterator[bytes]:
        """Events for more of the text, preceded by the events that open its message if it is the first."""
        yield from self._end_of_thought()
        if not self._open:
            self._open = True
            yield self._event(ADDED, output_index=self._place, item=_message(self._answer, "in_progress", []))
            yield self._in_part("response.content_part.added", part=_part("", []))
        likely, self._waiting = self._waiting, []
        if shown or likely:
            self._said.append(shown)
            self._likely += likely
            logprobs = _logprobs(self._shape, likely)
            yield self._in_part("response.output_text.delta", delta=shown, logprobs=logprobs)

    def _closing(self, answer: Answer) -> Iterator[bytes]:
        """Events for the end of the message."""
        text, logprobs = "".join(self._said), _logprobs(self._shape, self._likely)
        part = _part(text, logprobs)
        yield self._in_part("response.output_text.done", text=text, logprobs=logprobs)
        yield self._in_part("response.content_part.done", part=part)
        yield self._event(DONE, output_index=self._place, item=_message(self._answer, _status(answer), [part]))

    def _call(self, index: int, item: dict[str, Any]) -> Iterator[bytes]:
        """Events for a complete call."""
        place = {"item_id": item["id"], "output_index": index}
        arguments, begun = item["arguments"], {"arguments": "", "status": "in_progress"}
        yield self._event(ADDED, output_index=index, item=item | begun)
        yield self._event("response.function_call_arguments.delta", **place, delta=arguments)
        yield self._event("response.function_call_arguments.done", **place, name=item["name"], arguments=arguments)
        yield self._event(DONE, output_index=index, item=item)

    def _in_thought(self, type: str, **fields: Any) -> bytes:
        return self._event(type, item_id=_thought_id(self._answer), output_index=0, content_index=0, **fields)

    def _in_part(self, type: str, **fields: Any) -> bytes:
        place = {"item_id": ids.item(self._answer), "output_index": self._place, "content_index": 0}
        return self._event(type, **place, **fields)

    def _event(self, type: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return event({"type": type, "sequence_number": number, **fields}, type)


def _head(shape: Shape) -> dict[str, Any]:
    """A response without output."""
    return {
        "id": shape.id,
        "object": "response",
        "created_at": shape.created,
        "completed_at": None,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": shape.model,
        "output": [],
        "truncation": "disabled",
        "usage": None,
        **shape.echo,
    }


def _echo(given: ResponsesBody, chosen: functions.ToolChoice, store: bool) -> dict[str, Any]:
    """The parameters that an answer repeats."""
    return {
        "previous_response_id": given.previous_response_id,
        "store": store,
        "instructions": given.instructions,
        "max_output_tokens": given.max_output_tokens,
        "metadata": given.metadata,
        "parallel_tool_calls": given.parallel_tool_calls,
        "reasoning": {"effort": given.reasoning.effort, "summary": None},
        "temperature": 1.0 if given.temperature is None else given.temperature,
        "text": {"format": given.text.format.to_json()},
        "tool_choice": chosen.to_json(),
        "tools": [each.to_json() for each in given.tools],
        "top_logprobs": given.top_logprobs or 0,
        "top_p": 1.0 if given.top_p is None else given.top_p,
        **{name: getattr(given, name) for name in REPEATED},
    }


def _message(answer: str, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": ids.item(answer), "type": "message", "status": status, "role": "assistant", "content": content}


def _thought(answer: str, text: str, status: str = "completed") -> dict[str, Any]:
    """The item of the model's thought before its answer."""
    content = [_thought_part(text)] if text else []
    item = {"id": _thought_id(answer), "type": "reasoning", "status": status}
    return item | {"summary": [], "content": content, "encrypted_content": None}


def _thought_part(text: str) -> dict[str, Any]:
    return {"type": "reasoning_text", "text": text}


def _thought_id(answer: str) -> str:
    return f"rs_{answer.removeprefix('msg_')}"


def _part(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _call_item(answer: str, number: int, call: ToolCall) -> dict[str, Any]:
    own = {"id": ids.item(answer, number), "type": "function_call", "status": "completed"}
    return own | {"call_id": ids.call(answer, number), "name": call.name, "arguments": call.arguments}


def _logprobs(shape: Shape, likely: Iterable[TokenLogprob]) -> list[dict[str, Any]]:
    return [logprob(each, shape.as_ids) for each in likely] if shape.logprobs else []


def _has_message(answer: Answer) -> bool:
    return bool(answer.before) or not answer.calls


def _cut(answer: Answer) -> bool:
    return answer.ended == "max_tokens"


def _status(answer: Answer) -> str:
    return "incomplete" if _cut(answer) else "completed"


def _code(error: ApiError) -> str:
    """The API's error code that comes closest to an error."""
    if error.status == 429:
        return "rate_limit_exceeded"
    return "server_error" if error.status >= 500 else "invalid_prompt"


def _usage(usage: TokenUsage) -> dict[str, Any]:
    found = counts(usage)
    return {
        "input_tokens": found.prompt,
        "input_tokens_details": {**found.details, "cache_write_tokens": 0},
        "output_tokens": found.completion,
        "output_tokens_details": {"reasoning_tokens": usage.pondered},
        "total_tokens": found.prompt + found.completion,
    }

"""The parameters that /v1/chat/completions and /v1/responses have in common, and those that neither accepts.

Independent of messages, functions and answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, cast

from pydantic import BeforeValidator, Field

from agentcho.errors import RequestError
from agentcho.protocol import value_checks
from agentcho.protocol.call import HOTTEST, BadWord, Penalty, Sampling, SamplingOptions, Seed, Stop, Temperature
from agentcho.protocol.variables import Effort, checked, of_effort
from agentcho.serve.api import models
from agentcho.serve.api.body import Body, OnlyValue, Several, single, within
from agentcho.serve.api.limits import RequestLimits
from agentcho.serve.api.schema_faults import schema_fault
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Sharing

IGNORED = frozenset(
    {
        "access_programs",
        "ec_transfer_params",
        "guided_decoding_backend",
        "guided_whitespace_pattern",
        "include_reasoning",
        "kv_transfer_params",
        "length_penalty",
        "max_tool_calls",
        "media_io_kwargs",
        "metadata",
        "mm_processor_kwargs",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "request_id",
        "return_mm_kwargs",
        "return_token_offsets",
        "routed_experts_prompt_start",
        "safety_identifier",
        "service_tier",
        "session_id",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "store",
        "stream_interval",
        "truncation_side",
        "user",
        "vllm_xargs",
    }
)
"""Parameters that have no effect here, and are counted."""
SAMPLES = "each answer is sampled independently"
ONLY: Mapping[str, OnlyValue] = {
    "best_of": OnlyValue(1, SAMPLES),
    "use_beam_search": OnlyValue(False, SAMPLES),
    "watermarking": OnlyValue(False, "answers carry no watermark"),
    "detokenize": OnlyValue(True, "answers are text; return_token_ids adds the token ids"),
    "echo": OnlyValue(False, "an answer does not repeat its prompt"),
    "add_generation_prompt": OnlyValue(True, "an answer is an assistant message"),
    "continue_final_message": OnlyValue(False, "an answer is a new message and never continues another one"),
    "add_special_tokens": OnlyValue(False, "the chat template places the special tokens"),
    "return_prompt_text": OnlyValue(False, "the client already has the messages of its prompt"),
    "enable_response_messages": OnlyValue(False, "the client already has the messages of its prompt"),
}
NO_STATE = "this server stores no conversations; send all messages, or give previous_response_id"
NO_PATTERNS = "this server supports only choices and JSON schemas"
REFUSED: Mapping[str, str] = {
    "audio": "this server generates no audio",
    "prediction": "this server does not support predicted outputs",
    "moderation": "this server has no moderation",
    "web_search_options": "this server has no web search",
    "previous_response_id": "it belongs to /v1/responses; send all messages",
    "previous_input_messages": "give previous_response_id instead",
    "conversation": NO_STATE,
    "context_management": NO_STATE,
    "prompt": "this server stores no prompts; send the messages",
    "functions": "it belongs to an older API; give tools",
    "function_call": "it belongs to an older API; give tool_choice",
    "guided_regex": NO_PATTERNS,
    "guided_grammar": NO_PATTERNS,
    "chat_template": "the model's own template is used, so that no message can pass for another",
    "documents": "put the documents into the messages",
    "truncate_prompt_tokens": "prompts are never truncated; send a shorter one",
    "prompt_logprobs": "only generated tokens have log-probabilities",
    "logprob_token_ids": "log-probabilities are reported for the likeliest tokens; give top_logprobs",
    "thinking_token_budget": "a thought has no limit of its own; give max_tokens",
    "repetition_detection": "this server does not detect repetitions; give a penalty",
}
"""Parameters that are not accepted, and why."""


def _decimal(given: object) -> object:
    """Convert a token id that is the name of a JSON member."""
    return int(given) if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) < 12 else given


Positive = Annotated[int, Field(ge=1)]
TopLogprobs = Annotated[int, Field(ge=0)]
Salt = Annotated[str, Field(min_length=1, max_length=256)]
Schema = dict[str, Any]
Stops = Annotated[Several[Stop], BeforeValidator(single)]
MACHINE = 1 << 31
TokenId = Annotated[int, BeforeValidator(_decimal), Field(ge=0, lt=MACHINE)]
SAMPLED = (
    "temperature",
    "top_p",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "min_tokens",
    "ignore_eos",
    "bad_words",
    "allowed_token_ids",
)
"""Parameters that are options of `Sampling` unchanged."""
BIASED = 100.0
"""Biases are clamped to this magnitude, as in vLLM."""


class AgentchoFields(Body):
    """What a request says to agentcho: its society and its agent, who else may read it, and who may read its user
    messages and answers that no model said here."""

    within = "agentcho."

    society: str | None = None
    agent: str | None = None
    audience: Any = None
    user_messages: Sharing | None = None
    history: Sharing | None = None


class StructuredOutputs(Body):
    """vLLM's constraints on an answer: one of several texts, or JSON."""

    within = "structured_outputs."
    ignored = frozenset(
        {"disable_fallback", "disable_any_whitespace", "disable_additional_properties", "whitespace_pattern"}
    )
    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(("regex", "grammar", "structural_tag"), NO_PATTERNS)

    choice: Several[str] = ()
    schema_: Schema | None = Field(default=None, alias="json")
    json_object: bool = False


class Parameters(Body):
    """A request of either API, without its messages."""

    ignored = IGNORED
    only: ClassVar[Mapping[str, OnlyValue]] = ONLY
    refused = REFUSED

    model: str = Field(min_length=1, max_length=1024)
    stream: bool = False
    temperature: Temperature | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=MACHINE)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=HOTTEST)] | None = None
    logit_bias: Annotated[dict[TokenId, float], Field(max_length=1 << 12)] | None = None
    seed: Seed | None = None
    stop: Stops = ()
    stop_token_ids: Annotated[Several[TokenId], Field(max_length=1 << 10)] = ()
    include_stop_str_in_output: bool = False
    min_tokens: Annotated[int, Field(ge=0, lt=MACHINE)] = 0
    ignore_eos: bool = False
    bad_words: Annotated[Several[BadWord], Field(max_length=1 << 10)] = ()
    allowed_token_ids: Annotated[Several[TokenId], Field(min_length=1, max_length=1 << 17)] = ()
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    agentcho: AgentchoFields = AgentchoFields()
    cache_salt: Salt | None = None
    priority: Annotated[int, Field(gt=-MACHINE, lt=MACHINE)] = 0
    structured_outputs: StructuredOutputs | None = None
    guided_choice: Several[str] = ()
    guided_json: Schema | None = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    templated: Schema | None = Field(default=None, alias="chat_template_kwargs")

    def target(self) -> models.RequestTarget:
        """The model, and the society and agent that its name or the body gives. `ApiError`: they differ."""
        place = models.NamedTarget("agentcho", self.agentcho.society, self.agentcho.agent, "agentcho")
        return models.agreed(models.read(self.model), place)

    def audience(self) -> tuple[str, ...] | None:
        """Who may read what this request brings. None: everyone in the society."""
        return models.audience(
            self.agentcho.audience, models.NamedTarget("agentcho.audience", param="agentcho.audience")
        )


def variables(given: Parameters, effort: Effort | None) -> dict[str, Any]:
    """What the chat template is given besides the messages. `ApiError`: it must not be given that."""
    try:
        return of_effort(effort, checked(given.templated or {}))
    except ValueError as error:
        raise ApiError(400, f"chat_template_kwargs: {error}", "chat_template_kwargs") from None


class AnswerConstraint(NamedTuple):
    """A constraint on an answer: one of several texts, or JSON of a schema. `param` is the field that sets it."""

    param: str
    choices: Sequence[str] | None = None
    json_schema: Schema | None = None


def constraint(given: Parameters, schema: Schema | None, param: str) -> AnswerConstraint | None:
    """The constraint of a request. `schema` is that of the API's own field, named `param`. `ApiError`: there are
    two."""
    more = given.structured_outputs or StructuredOutputs()
    found = [
        AnswerConstraint(name, choices, wanted)
        for name, choices, wanted in (
            (param, None, schema),
            ("structured_outputs.choice", _given(more, "choice"), None),
            ("structured_outputs.json", None, more.schema_),
            ("structured_outputs.json_object", None, {"type": "object"} if more.json_object else None),
            ("guided_choice", _given(given, "guided_choice"), None),
            ("guided_json", None, given.guided_json),
        )
        if choices is not None or wanted is not None
    ]
    if len(found) > 1:
        raise ApiError(
            400, f"{found[1].param}: {found[0].param} also constrains the answer; give only one of them", found[1].param
        )
    return found[0] if found else None


def _given(body: Body, name: str) -> Any:
    """A list of a body, None if it was not given. An empty list that was given is an error, so the two must be told
    apart."""
    return getattr(body, name) if name in body.model_fields_set else None


def options(
    given: Parameters, constrained: AnswerConstraint | None, limits: RequestLimits, most: int
) -> SamplingOptions:
    """The sampling options of an answer of at most `most` tokens. `ApiError`: values are out of range or
    incompatible."""
    within(len(given.stop), limits.stops, "stop")
    if given.min_tokens > most:
        raise ApiError(400, f"min_tokens: an answer has at most {most} tokens here; lower it", "min_tokens")
    sampled = {name: getattr(given, name) for name in SAMPLED}
    chosen: dict[str, Any] = {
        name: value for name, value in sampled.items() if value != Parameters.model_fields[name].default
    }
    if given.logit_bias is not None:
        chosen["logit_bias"] = {id: max(-BIASED, min(BIASED, bias)) for id, bias in given.logit_bias.items()}
    if given.top_k is not None:
        chosen["top_k"] = max(given.top_k, 0)
    if constrained is not None:
        chosen |= _constrained(constrained, limits)
    try:
        Sampling(**chosen, max_tokens=most)
    except RequestError as error:
        param = constrained.param if constrained is not None else "stop"
        told = str(error).removeprefix("sampling: ").partition("; see Sampling")[0]  # clients do not have this class
        raise ApiError(400, f"{param}: {told}", param) from None
    return cast(SamplingOptions, chosen)


def schema(given: Schema, param: str, limits: RequestLimits) -> Schema:
    """Check that a JSON schema can be compiled. `ApiError`: it cannot be, or it is too long or too deep."""
    within(size(given), limits.schema_bytes, param, "bytes")
    within(depth(given), limits.schema_depth, param, "levels")
    try:
        read = value_checks.checked_schema(given, param)
    except RequestError as error:
        raise ApiError(400, str(error).replace(f"{param} ", f"{param}: it ", 1), param) from None
    return read


def depth(given: object) -> int:
    """The nesting depth of mappings and lists, including this one."""
    inside = given.values() if isinstance(given, dict) else given if isinstance(given, list) else None
    return 0 if inside is None else 1 + max(map(depth, inside), default=0)


def size(given: Schema) -> int:
    """The length of a schema as JSON, in bytes."""
    return len(json.dumps(given, ensure_ascii=False).encode())


def _usable(given: Schema, param: str) -> Schema:
    """Check that a grammar can be made from a schema. `ApiError`: it cannot."""
    if (found := schema_fault(given)) is not None:
        raise ApiError(400, f"{param}: it cannot be used, {found}", param)
    return given


def _constrained(constrained: AnswerConstraint, limits: RequestLimits) -> dict[str, Any]:
    if constrained.json_schema is not None:
        return {"json_schema": _usable(schema(constrained.json_schema, constrained.param, limits), constrained.param)}
    choices = constrained.choices or ()
    within(len(choices), limits.listed, constrained.param)
    within(sum(map(len, choices)), limits.schema_bytes, constrained.param, "letters")
    return {"choices": list(choices)}

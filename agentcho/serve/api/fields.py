"""The parameters that /v1/chat/completions and /v1/responses have in common, and what is not taken by either.

Does not know: messages, functions, answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, cast

from pydantic import BeforeValidator, Field

from agentcho.calls import values
from agentcho.calls.call import HOTTEST, Penalty, Sampling, SamplingOptions, Seed, Stop, Temperature
from agentcho.errors import RequestError
from agentcho.serve.api import models
from agentcho.serve.api.body import Body, Several, single, within
from agentcho.serve.api.limits import Limits
from agentcho.serve.faults import ApiError
from agentcho.serve.request import Sharing

IGNORED = frozenset(
    {
        "access_programs",
        "chat_template_kwargs",
        "guided_decoding_backend",
        "guided_whitespace_pattern",
        "include_reasoning",
        "kv_transfer_params",
        "max_tool_calls",
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "request_id",
        "safety_identifier",
        "service_tier",
        "spaces_between_special_tokens",
        "store",
        "user",
    }
)
"""What changes nothing here, and is counted."""
ONLY: Mapping[str, object] = {
    "length_penalty": 1,
    "min_tokens": 0,
    "best_of": 1,
    "echo": False,
    "ignore_eos": False,
    "use_beam_search": False,
    "skip_special_tokens": True,
    "detokenize": True,
    "add_special_tokens": False,
    "return_tokens_as_token_ids": False,
    "include_stop_str_in_output": False,
    "add_generation_prompt": True,
    "continue_final_message": False,
}
"""The one value of a parameter that is taken, because it changes nothing."""
NO_STATE = "this server keeps no conversations; send all messages, or take turns by previous_response_id"
REFUSED: Mapping[str, str] = {
    "audio": "this server says no audio",
    "prediction": "this server takes no predicted output",
    "moderation": "this server moderates nothing",
    "web_search_options": "this server searches nothing",
    "previous_response_id": "it is of /v1/responses; send all messages",
    "conversation": NO_STATE,
    "context_management": NO_STATE,
    "prompt": "this server keeps no prompts; send the messages",
    "functions": "it is of an older API; give tools",
    "function_call": "it is of an older API; give tool_choice",
    "guided_regex": "this server takes choices and JSON schemas alone",
    "guided_grammar": "this server takes choices and JSON schemas alone",
}
"""Why a parameter is not taken."""


def _decimal(given: object) -> object:
    """A token id as JSON writes it for a name."""
    return int(given) if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) < 12 else given


Positive = Annotated[int, Field(ge=1)]
TopLogprobs = Annotated[int, Field(ge=0)]
Salt = Annotated[str, Field(min_length=1, max_length=256)]
Schema = dict[str, Any]
Stops = Annotated[Several[Stop], BeforeValidator(single)]
MACHINE = 1 << 31
TokenId = Annotated[int, BeforeValidator(_decimal), Field(ge=0, lt=MACHINE)]
SAMPLED = ("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty")
"""Parameters that are options of `Sampling` as they are."""
BIASED = 100.0
"""A bias is cut to so much, as vLLM does."""


class Extras(Body):
    """What a request says to agentcho: the society and the agent that it is of, and who may read it besides; whose user
    messages are, and answers that no model said here."""

    within = "agentcho."

    society: str | None = None
    agent: str | None = None
    audience: Any = None
    user_messages: Sharing | None = None
    history: Sharing | None = None


class Structured(Body):
    """vLLM's constraints of an answer: one of some texts, or JSON."""

    within = "structured_outputs."
    ignored = frozenset({"disable_fallback", "disable_any_whitespace", "disable_additional_properties"})

    choice: Several[str] = ()
    schema_: Schema | None = Field(default=None, alias="json")
    json_object: bool = False


class Parameters(Body):
    """A request of either API, without its messages."""

    ignored = IGNORED
    only: ClassVar[Mapping[str, object]] = ONLY
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
    tool_choice: Any = None
    agentcho: Extras = Extras()
    cache_salt: Salt | None = None
    priority: Annotated[int, Field(gt=-MACHINE, lt=MACHINE)] = 0
    structured_outputs: Structured | None = None
    guided_choice: Several[str] = ()
    guided_json: Schema | None = None
    return_token_ids: bool = False

    def target(self) -> models.Target:
        """The model, and the society and the agent that its name or the body name. `ApiError`: they differ."""
        place = models.Place("agentcho", self.agentcho.society, self.agentcho.agent, "agentcho")
        return models.agreed(models.read(self.model), place)

    def audience(self) -> tuple[str, ...] | None:
        """Who may read what this request brings; None: everyone in the society."""
        return models.audience(self.agentcho.audience, models.Place("agentcho.audience", param="agentcho.audience"))


class Constraint(NamedTuple):
    """What an answer must be: one of some texts, or JSON of a schema. `param` is the field that says so."""

    param: str
    choices: Sequence[str] | None = None
    json_schema: Schema | None = None


def constraint(given: Parameters, schema: Schema | None, param: str) -> Constraint | None:
    """The one constraint of a request, whose own `schema` field is `param`. `ApiError`: there are two."""
    more = given.structured_outputs or Structured()
    found = [
        Constraint(name, choices, wanted)
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
        raise ApiError(400, f"{found[1].param}: {found[0].param} constrains the answer too; give one", found[1].param)
    return found[0] if found else None


def _given(body: Body, name: str) -> Any:
    """A list of a body; None where it is not there: an empty one is there, and wrong."""
    return getattr(body, name) if name in body.model_fields_set else None


def options(given: Parameters, constrained: Constraint | None, limits: Limits) -> SamplingOptions:
    """How the tokens of an answer are chosen. `ApiError`: a value is out of its bounds, or goes with no other."""
    within(len(given.stop), limits.stops, "stop")
    chosen: dict[str, Any] = {name: value for name in SAMPLED if (value := getattr(given, name)) is not None}
    if given.logit_bias is not None:
        chosen["logit_bias"] = {id: max(-BIASED, min(BIASED, bias)) for id, bias in given.logit_bias.items()}
    if given.top_k is not None:
        chosen["top_k"] = max(given.top_k, 0)
    if given.stop:
        chosen["stop"] = given.stop
    if constrained is not None:
        chosen |= _constrained(constrained, limits)
    try:
        Sampling(**chosen)
    except RequestError as error:
        param = constrained.param if constrained is not None else "stop"
        told = str(error).removeprefix("sampling: ").partition("; see Sampling")[0]  # a class that clients do not have
        raise ApiError(400, f"{param}: {told}", param) from None
    return cast(SamplingOptions, chosen)


def schema(given: Schema, param: str, limits: Limits) -> Schema:
    """A JSON schema that can be compiled. `ApiError`: it cannot be, or it is too long or too deep."""
    within(size(given), limits.schema_bytes, param, "bytes")
    within(depth(given), limits.schema_depth, param, "levels")
    try:
        read = values.schema(given, param)
    except RequestError as error:
        raise ApiError(400, str(error).replace(f"{param} ", f"{param}: it ", 1), param) from None
    return read


def depth(given: object) -> int:
    """How many mappings and lists stand inside each other, this one included."""
    inside = given.values() if isinstance(given, dict) else given if isinstance(given, list) else None
    return 0 if inside is None else 1 + max(map(depth, inside), default=0)


def size(given: Schema) -> int:
    """The length of a schema as JSON, in bytes."""
    return len(json.dumps(given, ensure_ascii=False).encode())


def _usable(given: Schema, param: str) -> Schema:
    """A schema of which a grammar can be made. `ApiError`: none can."""
    from agentcho.runner.grammar import fault

    if (found := fault(given)) is not None:
        remedy = "mend the schema" if found.hopeless else "leave this out, and check the answer yourself"
        raise ApiError(400, f"{param}: it cannot be used, {found}; {remedy}", param)
    return given


def _constrained(constrained: Constraint, limits: Limits) -> dict[str, Any]:
    if constrained.json_schema is not None:
        return {"json_schema": _usable(schema(constrained.json_schema, constrained.param, limits), constrained.param)}
    choices = constrained.choices or ()
    within(len(choices), limits.listed, constrained.param)
    within(sum(map(len, choices)), limits.schema_bytes, constrained.param, "letters")
    return {"choices": list(choices)}

"""Translates a call into a request body: options that the server has fields for, and the rest in words.

Independent of HTTP, keys and responses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentcho.errors import RequestError
from agentcho.integrations.endpoints.servers import Abilities, ServerKind
from agentcho.protocol.call import CUTS, Sampling
from agentcho.protocol.text_calls import PromptMessage, TextCall

WRAPPED = "answer"
"""The only key of the JSON object in which a choice is requested from a server that supports schemas but not
choices."""
WRAPPING = 16
"""Tokens that this object takes in addition to the choice."""
BENDING = ("frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias")
FREE = ("stop_token_ids", "include_stop_str_in_output", "min_tokens", "ignore_eos", "bad_words", "allowed_token_ids")
"""Options that apply to free text only, not to choices or JSON."""
VALUES = frozenset({"const", "enum", "default", "examples"})
"""Keywords of a JSON schema whose values are no schemas."""
STRICT = frozenset(
    {
        *("$ref", "$defs", "definitions", "type", "properties", "required", "additionalProperties", "items", "anyOf"),
        *("enum", "const", "title", "description", "pattern", "format", "multipleOf", "minItems", "maxItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    }
)
"""Keywords that OpenAI's server accepts in strict mode."""
FIRST = "Nobody has said anything yet. You speak first."
NEXT = "Go on: say your next message."


def body(model: str, call: TextCall, abilities: Abilities, complaint: str = "", thinks: bool = False) -> dict[str, Any]:
    """Return the request body for a call. `complaint` says what was wrong with the answer that its last message quotes.
    `thinks`: a thought may precede the answer in its text, so stop strings are left to the client if it can apply them.
    `RequestError`: the server has no field for a sampling option, and the answer could not be checked for it."""
    return {
        "model": model,
        "messages": messages(call, abilities, complaint),
        "stream": True,
        "stream_options": {"include_usage": True},
        **_sampled(call.sampling, abilities, thinks),
        **_constrained(call.sampling, abilities),
        **(abilities.kind.goes_on if _prefilled(call, abilities) else {}),
        **({"cache_salt": call.salt} if call.salt is not None and "salt" in abilities.can else {}),
    }


def messages(call: TextCall, abilities: Abilities, complaint: str = "") -> list[dict[str, str]]:
    """Return the messages of a call's prompt, followed by what the server has no field for. If the server can continue
    a text, the last message is the call's header."""
    found = [_message(each, "names" in abilities.can) for each in call.messages] or [_user(FIRST)]
    form = form_in_words(call.sampling) if complaint or not _constrained(call.sampling, abilities) else ""
    if asked := " ".join(filter(None, (complaint, form, _beginning(call, abilities)))):
        found.append(_user(asked))
    if abilities.kind.nudged and found[-1]["role"] == "assistant":
        found.append(_user(NEXT))
    if _prefilled(call, abilities):
        found.append({"role": "assistant", "content": call.header})
    return found


def form_in_words(sampling: Sampling) -> str:
    """Return which answers a constraint allows, in words for the model. Empty if there is no constraint."""
    if sampling.choices is not None:
        return "Answer with exactly one of these texts and nothing else:\n" + "\n".join(sampling.choices)
    if sampling.json_schema is not None:
        schema = json.dumps(sampling.json_schema, ensure_ascii=False)
        return f"Answer with JSON that matches this JSON schema and nothing else:\n{schema}"
    return ""


def wraps(sampling: Sampling, abilities: Abilities) -> bool:
    """Whether a choice is requested as JSON of a schema because the server has no field for choices."""
    own = "choices" in abilities.can and abilities.kind.choices is not None
    return sampling.choices is not None and not own and "schema" in abilities.can


def stops(sampling: Sampling) -> tuple[str, ...]:
    """The strings that end an answer; none if it is a choice or JSON of a schema."""
    return sampling.stop if sampling.choices is None and sampling.json_schema is None else ()


def cuts(sampling: Sampling) -> tuple[str, ...]:
    """The strings at which the client cuts an answer even if the server did not. None with `min_tokens`, because only
    the server knows from where on a stop string counts."""
    return () if sampling.min_tokens else stops(sampling)


def _prefilled(call: TextCall, abilities: Abilities) -> bool:
    return bool(call.header) and "header" in abilities.can


def _beginning(call: TextCall, abilities: Abilities) -> str:
    if not call.header or _prefilled(call, abilities):
        return ""
    return f"Your message already begins with the text below. Write only what follows it.\n{call.header}"


def _message(quoted: PromptMessage, named: bool) -> dict[str, str]:
    """Translate one message. The called agent's own messages get the role assistant. Those of other speakers get the
    role user, with the name in its field or else in front of the text."""
    if quoted.own:
        return {"role": "assistant", "content": quoted.text}
    if quoted.role == "system":
        return {"role": "system", "content": quoted.text}
    if quoted.name is None:
        return _user(quoted.text)
    return _user(quoted.text) | {"name": quoted.name} if named else _user(f"{quoted.name}: {quoted.text}")


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _sampled(sampling: Sampling, abilities: Abilities, thinks: bool) -> dict[str, Any]:
    kind, most = abilities.kind, sampling.max_tokens + (WRAPPING if wraps(sampling, abilities) else 0)
    found: dict[str, Any] = {kind.limit: most, "temperature": sampling.temperature, "top_p": sampling.top_p}
    if kind.fixed:
        for option in CUTS:
            if getattr(sampling, option) != Sampling.model_fields[option].default:
                raise RequestError(f"{option}: this kind of server does not support it; leave it out", "sampling")
        found = {name: value for name, value in found.items() if name == kind.limit or (kind.samples and value != 1.0)}
    else:
        found |= {option: getattr(sampling, option) for option in CUTS}
        found["top_k"] = sampling.top_k or -1
    found |= _named(sampling, kind)
    if (ends := stops(sampling)[: kind.stops]) and not (thinks and cuts(sampling)):
        found["stop"] = list(ends)
    if "seed" in abilities.can:
        found["seed"] = sampling.seed % kind.seeds
    return found


def _named(sampling: Sampling, kind: ServerKind) -> dict[str, Any]:
    """The fields for penalties, biases and options that use token ids or end a text. Options that end or limit free
    text are ignored for choices and JSON. `RequestError`: the server has no field for one of them."""
    options = BENDING if sampling.choices is not None or sampling.json_schema is not None else (*BENDING, *FREE)
    given = {option: getattr(sampling, option) for option in options}
    given = {option: value for option, value in given.items() if value != Sampling.model_fields[option].default}
    if lacking := next((option for option in given if option not in kind.takes), None):
        raise RequestError(f"{lacking}: this kind of server does not support it; leave it out", "sampling", lacking)
    return {kind.takes[option]: _plain(value) for option, value in given.items()}


def _plain(value: Any) -> Any:
    """The value of an option as JSON represents it."""
    if isinstance(value, dict):
        return {str(name): each for name, each in value.items()}
    return [*value] if isinstance(value, tuple) else value


def enforced(sampling: Sampling, abilities: Abilities) -> bool:
    """Whether the server itself constrains the answer to a choice or a schema."""
    return bool(_constrained(sampling, abilities))


def _constrained(sampling: Sampling, abilities: Abilities) -> dict[str, Any]:
    """The fields that constrain an answer. None if there is no constraint or no field for it."""
    if wraps(sampling, abilities):
        assert sampling.choices is not None
        return _json(_choice_schema(sampling.choices))
    if sampling.choices is not None and abilities.kind.choices is not None and "choices" in abilities.can:
        return abilities.kind.choices(sampling.choices)
    if sampling.json_schema is not None and "schema" in abilities.can:
        return _json(sampling.json_schema)
    return {}


def _choice_schema(choices: tuple[str, ...]) -> dict[str, Any]:
    choice = {"type": "string", "enum": list(choices)}
    return {"type": "object", "properties": {WRAPPED: choice}, "required": [WRAPPED], "additionalProperties": False}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    schema = _typed(schema)
    named = {"name": WRAPPED, "schema": schema, "strict": schema.get("type") == "object" and _is_strict(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _typed(schema: Any) -> Any:
    """The schema with the type of each constant text, which OpenAI's server asks for."""
    if isinstance(schema, list):
        return [_typed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: value if name in VALUES else _typed(value) for name, value in schema.items()}
    return {"type": "string", **found} if isinstance(schema.get("const"), str) else found


def _is_strict(schema: Any) -> bool:
    """Whether OpenAI's server accepts the schema in strict mode: every object requires all of its keys and allows no
    others, every part has a type, and nothing stands beside a reference. Keywords that it refuses, and those that are
    not known to be accepted, count as refused."""
    if not isinstance(schema, dict) or not STRICT.issuperset(schema):
        return False
    if "$ref" in schema:
        return len(schema) == 1
    if not {"type", "anyOf"} & schema.keys():
        return False
    keys, required = schema.get("properties"), schema.get("required")
    if keys is not None or schema.get("type") == "object":
        whole = isinstance(keys, dict) and isinstance(required, list) and set(keys) == set(required)
        if not whole or schema.get("additionalProperties") is not False:
            return False
    if "array" in str(schema.get("type")) and "items" not in schema:
        return False
    named = (schema.get(name) or {} for name in ("properties", "$defs", "definitions"))
    inner = [*(each for group in named for each in group.values()), *schema.get("anyOf", ())]
    return all(map(_is_strict, [*inner, *([schema["items"]] if "items" in schema else [])]))

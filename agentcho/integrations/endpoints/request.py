"""A call as the body of a request: what the server can be asked in fields, and all else in words.

Does not know: HTTP, keys, what comes back.
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
"""The one key of the JSON object in which a server without choices, but with schemas, is asked for a choice."""
WRAPPING = 16
"""Tokens that this object takes beside the choice."""
BENDING = ("frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias")
FREE = ("stop_token_ids", "include_stop_str_in_output", "min_tokens", "ignore_eos", "bad_words", "allowed_token_ids")
"""Options of what is neither a choice nor JSON."""
FIRST = "Nobody has said anything yet. You speak first."
NEXT = "Go on: say your next message."


def body(model: str, call: TextCall, abilities: Abilities, complaint: str = "") -> dict[str, Any]:
    """The body of the request for a call. `complaint` is what was wrong with the answer that its last message quotes.
    `RequestError`: the server has no field for an option of its sampling, which could not be checked in the answer."""
    return {
        "model": model,
        "messages": messages(call, abilities, complaint),
        "stream": True,
        "stream_options": {"include_usage": True},
        **_sampled(call.sampling, abilities),
        **_constrained(call.sampling, abilities),
        **(abilities.kind.goes_on if _prefilled(call, abilities) else {}),
        **({"cache_salt": call.salt} if call.salt is not None and "salt" in abilities.can else {}),
    }


def messages(call: TextCall, abilities: Abilities, complaint: str = "") -> list[dict[str, str]]:
    """The prompt of a call, and after it what the server has no field for. Where the server can go on with a text, the
    last message is the call's header."""
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
    """Which answers a constraint allows, in words for the model; empty: there is no constraint."""
    if sampling.choices is not None:
        return "Answer with exactly one of these texts and nothing else:\n" + "\n".join(sampling.choices)
    if sampling.json_schema is not None:
        schema = json.dumps(sampling.json_schema, ensure_ascii=False)
        return f"Answer with JSON that matches this JSON schema and nothing else:\n{schema}"
    return ""


def wraps(sampling: Sampling, abilities: Abilities) -> bool:
    """Whether a choice is asked for as JSON of a schema, for want of a field of its own."""
    own = "choices" in abilities.can and abilities.kind.choices is not None
    return sampling.choices is not None and not own and "schema" in abilities.can


def stops(sampling: Sampling) -> tuple[str, ...]:
    """The strings that end an answer: none, where it is a choice or JSON of a schema."""
    return sampling.stop if sampling.choices is None and sampling.json_schema is None else ()


def cuts(sampling: Sampling) -> tuple[str, ...]:
    """The strings at which an answer is cut here, whether or not its server did. With `min_tokens` the server alone
    knows whether one counts."""
    return () if sampling.min_tokens else stops(sampling)


def _prefilled(call: TextCall, abilities: Abilities) -> bool:
    return bool(call.header) and "header" in abilities.can


def _beginning(call: TextCall, abilities: Abilities) -> str:
    if not call.header or _prefilled(call, abilities):
        return ""
    return f"Your message already begins with the text below. Write only what follows it.\n{call.header}"


def _message(quoted: PromptMessage, named: bool) -> dict[str, str]:
    """One message. Who is asked said the assistant's; what others said is of users, with their names in the field for
    it, or else before the text."""
    if quoted.own:
        return {"role": "assistant", "content": quoted.text}
    if quoted.role == "system":
        return {"role": "system", "content": quoted.text}
    if quoted.name is None:
        return _user(quoted.text)
    return _user(quoted.text) | {"name": quoted.name} if named else _user(f"{quoted.name}: {quoted.text}")


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _sampled(sampling: Sampling, abilities: Abilities) -> dict[str, Any]:
    kind, most = abilities.kind, sampling.max_tokens + (WRAPPING if wraps(sampling, abilities) else 0)
    found: dict[str, Any] = {kind.limit: most, "temperature": sampling.temperature, "top_p": sampling.top_p}
    if kind.fixed:
        for option in CUTS:
            if getattr(sampling, option) != Sampling.model_fields[option].default:
                raise RequestError(f"{option}: this kind of server does not support it; leave it out", "sampling")
        found = {name: value for name, value in found.items() if name == kind.limit or value != 1.0}
    else:
        found |= {option: getattr(sampling, option) for option in CUTS}
        found["top_k"] = sampling.top_k or -1
    found |= _named(sampling, kind)
    if ends := stops(sampling)[: kind.stops]:
        found["stop"] = list(ends)
    if "seed" in abilities.can:
        found["seed"] = sampling.seed % kind.seeds
    return found


def _named(sampling: Sampling, kind: ServerKind) -> dict[str, Any]:
    """The fields of penalties, biases, and what else goes by a token's id or ends a text. What ends or limits free text
    says nothing of choices and JSON. `RequestError`: there is no field for one of them."""
    options = BENDING if sampling.choices is not None or sampling.json_schema is not None else (*BENDING, *FREE)
    given = {option: getattr(sampling, option) for option in options}
    given = {option: value for option, value in given.items() if value != Sampling.model_fields[option].default}
    if lacking := next((option for option in given if option not in kind.takes), None):
        raise RequestError(f"{lacking}: this kind of server does not support it; leave it out", "sampling", lacking)
    return {kind.takes[option]: _plain(value) for option, value in given.items()}


def _plain(value: Any) -> Any:
    """The value of an option as JSON has it."""
    if isinstance(value, dict):
        return {str(name): each for name, each in value.items()}
    return [*value] if isinstance(value, tuple) else value


def _constrained(sampling: Sampling, abilities: Abilities) -> dict[str, Any]:
    """The fields that constrain an answer as the sampling says; none: there is no constraint, or no field for it."""
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
    named = {"name": WRAPPED, "schema": schema, "strict": _is_strict(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _is_strict(schema: Any) -> bool:
    """Whether OpenAI's server takes the schema as a strict one: each object has all of its keys, and no other."""
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if "properties" in schema or schema.get("type") == "object":
        keys, required = schema.get("properties"), schema.get("required")
        whole = isinstance(keys, dict) and isinstance(required, list) and set(keys) == set(required)
        if not whole or schema.get("additionalProperties") is not False:
            return False
    return all(map(_is_strict, schema.values()))

"""Validates variables of a chat template beside the conversation, such as `enable_thinking` or `reasoning_effort`, and
writes them as options.

`engine/variables` finds the variables that a template reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

Variables = Mapping[str, Any]
NO_VARIABLES: Variables = MappingProxyType({})
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model should think before it answers, with the values of vLLM's APIs."""
MOST = 1 << 14
"""Maximum number of characters of variables as JSON."""
RESERVED = frozenset(
    {
        *("messages", "conversation", "tools", "documents", "chat_template", "tokenize", "self"),
        *("add_generation_prompt", "continue_final_message", "padding", "truncation", "max_length"),
        *("return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"),
        *("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"),
        *("strftime_now", "raise_exception"),
    }
)
"""Variables that the engine, the tokenizer or transformers set."""


def checked(given: object) -> dict[str, Any]:
    """Variables that may be given to a template.

    Args:
        given: A JSON object, as a mapping or as text.

    Returns:
        Their values by name.

    Raises:
        ValueError: It is not a JSON object, it is too long, or it has a reserved name.
    """
    if isinstance(given, str):
        try:
            given = json.loads(given, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise ValueError("it is not JSON; give an object, such as '{\"enable_thinking\": false}'") from None
    if not isinstance(given, Mapping):
        raise ValueError('it is not a JSON object; give one, such as {"enable_thinking": false}')
    if wrong := sorted(map(str, RESERVED & given.keys())):
        raise ValueError(f"{wrong[0]} is set by the engine and cannot be given; leave it out")
    written(given)
    return dict(given)


def written(given: Variables) -> str:
    """Variables as JSON, the same text for the same variables. Raises ValueError if they are not JSON, or too long."""
    try:
        text = json.dumps(dict(given), ensure_ascii=False, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ValueError(
            "a value in it is not JSON; give strings, numbers, true, false, null, lists or objects"
        ) from None
    if len(text) > MOST:
        raise ValueError(f"it has {len(text)} characters as JSON; give at most {MOST}")
    return text


def option(given: object) -> str | None:
    """Variables as JSON, the form of an option of a run. None if there are none. Raises ValueError like `checked`."""
    if given is None:
        return None
    found = checked(given)
    return written(found) if found else None


def of_option(given: str | Variables | None) -> dict[str, Any]:
    """The variables of such an option."""
    return {} if given is None else checked(given)


def of_effort(effort: str | None, given: Variables) -> dict[str, Any]:
    """The variables by which templates learn how much to think. Of those in `given`, only `reasoning_effort` is
    changed.

    vLLM gives a template `reasoning_effort`, and `enable_thinking` false for "none" and true otherwise; SGLang also
    gives `thinking`, which DeepSeek V3.1 and Granite use.
    """
    if effort is None:
        return dict(given)
    thinks = effort != "none"
    return {"enable_thinking": thinks, "thinking": thinks, **given, "reasoning_effort": effort}


def _no_constant(name: str) -> Any:
    raise ValueError(name)

"""The options that each kind of server supports, and the fields for them, as its documentation says.

Independent of prompts and HTTP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from agentcho.config import API, ModelConfig
from agentcho.protocol.text_calls import Capability, Server

Fields = dict[str, Any]


class ServerKind(NamedTuple):
    """One kind of server.

    `can` is its documented abilities. `limit` is the field for the maximum number of answer tokens. `fixed`: the server
    has neither top_k nor min_p, and its own defaults apply where temperature or top_p is 1, the default of OpenAI's
    API. `choices` makes the fields that constrain an answer to texts. `goes_on` are the fields that make an answer
    continue the last message; `nudged`: the server does so by itself if that message is the assistant's. `stops` is the
    maximum number of stop strings of a request, `seeds` the number of different seeds. `takes` maps the `Sampling`
    options that this kind has a field for, and others may lack, to the names of the fields. `samples`: the model takes
    sampling options.
    """

    can: frozenset[Capability]
    limit: str = "max_tokens"
    fixed: bool = False
    choices: Callable[[Sequence[str]], Fields] | None = None
    goes_on: Mapping[str, Any] = {}
    nudged: bool = False
    stops: int = 16
    seeds: int = 1 << 31
    takes: Mapping[str, str] = {}
    samples: bool = True


def _structured(choices: Sequence[str]) -> Fields:
    return {"structured_outputs": {"choice": list(choices)}}


def _pattern(choices: Sequence[str]) -> Fields:
    alternatives = "|".join(re.sub(r"([\\.^$*+?()\[\]{}|/])", r"\\\1", choice) for choice in choices)
    return {"regex": f"({alternatives})"}


def _grammar(choices: Sequence[str]) -> Fields:
    return {"grammar": f"root ::= {' | '.join(json.dumps(choice, ensure_ascii=False) for choice in choices)}"}


THEIRS = (".openai.com", ".openai.azure.com")
"""Host suffixes of OpenAI's own models."""
REASONING = re.compile(r"(?:[\w-]+/)?(?:o\d|gpt-5(?!.*chat))")
"""The names of its models that refuse temperature, top_p, penalties and stop strings."""
PENALTIES = {name: name for name in ("frequency_penalty", "presence_penalty", "logit_bias")}
BENDS = {**PENALTIES, "repetition_penalty": "repetition_penalty"}
ENDS = {name: name for name in ("stop_token_ids", "min_tokens", "ignore_eos")}
OF_VLLM = {
    **BENDS,
    **ENDS,
    **{name: name for name in ("bad_words", "allowed_token_ids", "include_stop_str_in_output")},
}
PREFILL = {"continue_final_message": True, "add_generation_prompt": False}
KINDS: Mapping[Server, ServerKind] = {
    "openai": ServerKind(
        frozenset({"schema", "seed", "logprobs", "names"}),
        limit="max_completion_tokens",
        fixed=True,
        stops=4,
        takes=PENALTIES,
    ),
    "agentcho": ServerKind(
        frozenset({"choices", "schema", "seed", "logprobs", "names", "salt"}),
        choices=_structured,
        stops=16,
        takes=OF_VLLM,
    ),
    "vllm": ServerKind(
        frozenset({"choices", "schema", "seed", "logprobs", "header", "salt"}),
        choices=_structured,
        goes_on=PREFILL,
        takes=OF_VLLM,
    ),
    "sglang": ServerKind(
        frozenset({"choices", "schema", "seed", "logprobs", "header", "salt"}),
        choices=_pattern,
        goes_on={"continue_final_message": True},
        takes={**BENDS, **ENDS, "include_stop_str_in_output": "no_stop_trim"},
    ),
    "transformers": ServerKind(frozenset({"seed"}), fixed=True),
    "llama.cpp": ServerKind(
        frozenset({"choices", "schema", "seed", "logprobs", "header"}),
        choices=_grammar,
        nudged=True,
        takes={**PENALTIES, "ignore_eos": "ignore_eos"},
    ),
}


class Abilities(NamedTuple):
    """The kind of a server, and what it is assumed to support. `parts`: it never leaves thoughts in the text of an
    answer."""

    kind: ServerKind
    can: frozenset[Capability]
    parts: bool = False

    @classmethod
    def of(cls, config: ModelConfig) -> Abilities:
        """Return those of a configured server: the configured abilities, or else those of its kind.

        Hosts other than OpenAI's get the older name of the field for the token limit. If their kind is not given, they
        are not assumed to show names to the model, nor to answer a prompt that ends with the assistant's message.
        """
        kind, theirs = KINDS[config.server], (urlsplit(config.base_url or "").hostname or "").endswith(THEIRS)
        if theirs and REASONING.match(config.model.removeprefix(API)):
            kind = kind._replace(stops=0, takes={}, samples=False)
        kind = kind if theirs else kind._replace(limit="max_tokens")
        can = kind.can if config.can is None else frozenset(config.can)
        if config.server == "openai" and not theirs:
            kind = kind._replace(nudged=True)
            can = can if config.can is not None else can - {"names"}
        return cls(kind, can, parts=theirs or config.server == "agentcho")

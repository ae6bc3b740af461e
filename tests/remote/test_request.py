"""Calls as request bodies for each kind of server: what goes into fields, and what into words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from agentcho import Sampling
from agentcho.config import ModelConfig
from agentcho.errors import RequestError
from agentcho.integrations.endpoints.request import FIRST, FREE, NEXT, body
from agentcho.integrations.endpoints.servers import KINDS, Abilities
from agentcho.protocol.text_calls import Capability, PromptMessage, Server, TextCall

PROMPT = (
    PromptMessage("system", None, "You are Bob."),
    PromptMessage("user", "ann", "Hello."),
    PromptMessage("assistant", "bob", "To Ann: hi", own=True),
    PromptMessage("user", None, "Go."),
)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
EVERY: list[Server] = list(KINDS)


OPENAI = "https://api.openai.com/v1"


def sent(
    server: Server,
    call: TextCall,
    can: Iterable[Capability] | None = None,
    url: str = "http://127.0.0.1:1/v1",
    model: str = "m",
) -> dict[str, Any]:
    """The request body for a kind of server."""
    does = None if can is None else tuple(can)
    config = ModelConfig(model=f"openai:{model}", base_url=url, server=server, can=does)
    return body(model, call, Abilities.of(config))


def asked(**options: Any) -> TextCall:
    return TextCall(PROMPT, sampling=Sampling(**options))


@pytest.mark.parametrize("server", EVERY)
def test_who_speaks_is_known_by_role_and_name(server: Server) -> None:
    system, ann, own, scenario = sent(server, TextCall(PROMPT), url=OPENAI)["messages"]
    assert system == {"role": "system", "content": "You are Bob."}
    if "names" in KINDS[server].can:
        assert ann == {"role": "user", "content": "Hello.", "name": "ann"}
    else:
        assert ann == {"role": "user", "content": "ann: Hello."}
    assert own == {"role": "assistant", "content": "To Ann: hi"}
    assert scenario == {"role": "user", "content": "Go."}


def test_names_are_in_the_text_where_a_server_of_unknown_kind_may_drop_the_field() -> None:
    assert sent("openai", TextCall(PROMPT))["messages"][1] == {"role": "user", "content": "ann: Hello."}
    assert sent("openai", TextCall(PROMPT), can=["names"])["messages"][1]["name"] == "ann"


def test_what_others_said_is_never_the_assistants() -> None:
    call = TextCall((PromptMessage("assistant", "ann", "I am you."), PromptMessage("tool", "ann", "42")))
    assert [each["role"] for each in sent("openai", call)["messages"]] == ["user", "user"]


@pytest.mark.parametrize("server", EVERY)
def test_an_answer_is_bounded_and_streamed_with_its_usage(server: Server) -> None:
    found = sent(server, asked(max_tokens=9, stop=("a", "b", "c", "d", "e")))
    assert found["max_tokens"] == 9
    assert found["stream"]
    assert found["stream_options"] == {"include_usage": True}
    assert found["stop"][:4] == ["a", "b", "c", "d"]
    assert len(found["stop"]) <= KINDS[server].stops


@pytest.mark.parametrize(
    ("url", "limit"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("https://mine.openai.azure.com/openai/v1", "max_completion_tokens"),
        ("https://notopenai.com/v1", "max_tokens"),
        ("https://api.openai.com.example/v1", "max_tokens"),
    ],
)
def test_openais_own_servers_are_told_the_newer_name_of_the_limit(url: str, limit: str) -> None:
    found = sent("openai", asked(max_tokens=9), url=url)
    assert {name: found[name] for name in found if name.startswith("max")} == {limit: 9}


@pytest.mark.parametrize(
    ("model", "url", "takes"),
    [
        ("gpt-5-mini", OPENAI, False),
        ("o3", OPENAI, False),
        ("gpt-4o", OPENAI, True),
        ("gpt-5-chat-latest", OPENAI, True),
        ("gpt-5-mini", "https://elsewhere.example/v1", True),
    ],
)
def test_openais_reasoning_models_are_sent_no_options_that_they_refuse(model: str, url: str, takes: bool) -> None:
    found = sent("openai", asked(max_tokens=9, temperature=0, top_p=0.5, stop=("}",)), url=url, model=model)
    assert (found.keys() >= {"temperature", "top_p", "stop"}) is takes
    assert not takes or found["stop"] == ["}"]
    assert bool({"temperature", "top_p", "stop"} & found.keys()) is takes


def test_openai_is_asked_for_what_differs_from_its_defaults() -> None:
    assert not {"temperature", "top_p", "top_k", "min_p"} & sent("openai", asked(max_tokens=1)).keys()
    assert (
        sent("openai", asked(max_tokens=1, temperature=0, top_p=0.5)).items()
        >= {"temperature": 0, "top_p": 0.5}.items()
    )


@pytest.mark.parametrize("server", ["agentcho", "vllm", "sglang", "llama.cpp"])
def test_servers_with_defaults_of_their_own_are_told_all(server: Server) -> None:
    """The model's own generation configuration may have other defaults."""
    off = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0}
    assert sent(server, asked()).items() >= off.items()
    assert sent(server, asked(top_k=5, min_p=0.1)).items() >= {"top_k": 5, "min_p": 0.1}.items()


@pytest.mark.parametrize("server", ["openai", "transformers"])
@pytest.mark.parametrize("option", [{"top_k": 5}, {"min_p": 0.1}])
def test_what_has_no_field_and_cannot_be_checked_is_refused(server: Server, option: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(option))):
        sent(server, asked(**option))


BENT: dict[str, Any] = {
    "frequency_penalty": 0.5,
    "presence_penalty": -1.0,
    "repetition_penalty": 1.2,
    "logit_bias": {7: 2.0},
    "stop_token_ids": [7, 8],
    "include_stop_str_in_output": True,
    "min_tokens": 3,
    "ignore_eos": True,
    "bad_words": ["word"],
    "allowed_token_ids": [9],
}


@pytest.mark.parametrize("server", EVERY)
@pytest.mark.parametrize("option", BENT)
def test_what_bends_or_ends_a_text_is_sent_where_it_has_a_field_and_refused_elsewhere(
    server: Server, option: str
) -> None:
    given = asked(**{option: BENT[option]})
    if field := KINDS[server].takes.get(option):
        assert sent(server, given)[field] == ({"7": 2.0} if option == "logit_bias" else BENT[option])
    else:
        with pytest.raises(RequestError, match=option):
            sent(server, given)
    assert not {*BENT, "no_stop_trim"} & sent(server, asked()).keys()
    free = {option: BENT[option] for option in FREE}
    assert not {*free, "no_stop_trim"} & sent(server, asked(choices=["a"], **free)).keys()


@pytest.mark.parametrize("server", EVERY)
def test_a_seed_is_a_number_that_every_server_takes(server: Server) -> None:
    found = sent(server, asked(seed=-5))
    assert 0 <= found["seed"] < 1 << 31
    assert "seed" not in sent(server, asked(seed=-5), can=())


@pytest.mark.parametrize("server", EVERY)
def test_a_salt_goes_where_it_is_known(server: Server) -> None:
    found = sent(server, TextCall(PROMPT, salt="s"))
    assert found.get("cache_salt") == ("s" if "salt" in KINDS[server].can else None)


CHOICES = {
    "openai": ("response_format", None),
    "agentcho": ("structured_outputs", {"choice": ["a.", 'b"|']}),
    "vllm": ("structured_outputs", {"choice": ["a.", 'b"|']}),
    "sglang": ("regex", r'(a\.|b"\|)'),
    "llama.cpp": ("grammar", r'root ::= "a." | "b\"|"'),
}


@pytest.mark.parametrize("server", list(CHOICES))
def test_choices_are_constrained_in_the_servers_own_field(server: Server) -> None:
    field, value = CHOICES[server]
    found = sent(server, asked(choices=("a.", 'b"|')))
    if server == "openai":
        enum = found[field]["json_schema"]["schema"]["properties"]["answer"]["enum"]
        assert (enum, found[field]["json_schema"]["strict"]) == (["a.", 'b"|'], True)
    else:
        assert found[field] == value
    assert found["messages"] == sent(server, TextCall(PROMPT))["messages"]


@pytest.mark.parametrize("server", EVERY)
@pytest.mark.parametrize("options", [{"choices": ("red", "blue")}, {"json_schema": SCHEMA}])
def test_a_constraint_without_a_field_is_asked_in_words(server: Server, options: dict[str, Any]) -> None:
    found = sent(server, asked(**options), can=())
    *prompt, last = found["messages"]
    assert len(prompt) == len(PROMPT)
    assert last["role"] == "user"
    assert all(word in last["content"] for word in (options.get("choices") or ('"integer"',)))
    assert not {"response_format", "structured_outputs", "regex", "grammar"} & found.keys()


@pytest.mark.parametrize("server", ["openai", "agentcho", "vllm", "sglang", "llama.cpp"])
def test_a_schema_is_constrained_by_the_response_format(server: Server) -> None:
    found = sent(server, asked(json_schema=SCHEMA))["response_format"]
    assert found == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        SCHEMA | {"required": []},
        SCHEMA | {"additionalProperties": True},
        SCHEMA | {"properties": {"a": {"type": "object"}}},
        {"type": "array", "items": [SCHEMA | {"required": []}]},
        {"type": "array", "items": {"type": "string"}},
        {"anyOf": [SCHEMA]},
        *(
            SCHEMA | {"properties": {"a": part}, "$defs": {"n": {"type": "integer"}}}
            for part in (
                {},
                {"$ref": "#/$defs/n", "description": "a number"},
                {"oneOf": [{"type": "integer"}, {"type": "string"}]},
                {"type": "array", "prefixItems": [{"type": "integer"}]},
                {"type": "array"},
                {"type": "string", "maxLength": 3},
            )
        ),
    ],
)
def test_a_schema_that_openai_does_not_take_as_strict_is_not_said_to_be(schema: dict[str, Any]) -> None:
    assert not sent("openai", asked(json_schema=schema))["response_format"]["json_schema"]["strict"]


def test_what_openai_takes_as_strict_is_said_to_be_and_each_constant_has_its_type() -> None:
    parts: dict[str, Any] = {
        "a": {"$ref": "#/$defs/n"},
        "name": {"const": "look"},
        "b": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "string"}}]},
    }
    schema: dict[str, Any] = SCHEMA | {
        "properties": parts,
        "required": list(parts),
        "$defs": {"n": {"type": "integer"}},
    }
    found = sent("openai", asked(json_schema=schema))["response_format"]["json_schema"]
    assert found["strict"]
    assert found["schema"]["properties"]["name"] == {"type": "string", "const": "look"}
    assert schema["properties"]["name"] == {"const": "look"}


@pytest.mark.parametrize("server", EVERY)
def test_an_answer_goes_on_with_its_header(server: Server) -> None:
    found = sent(server, TextCall(PROMPT, header="To Ann: "))
    last = found["messages"][-1]
    if "header" in KINDS[server].can:
        assert last == {"role": "assistant", "content": "To Ann: "}
    else:
        assert last["role"] == "user"
        assert "To Ann: " in last["content"]
    assert found.get("add_generation_prompt", True) is (server != "vllm")
    assert found.get("continue_final_message", False) is (server in ("vllm", "sglang"))


def test_what_goes_on_by_itself_is_not_led_to_go_on_with_an_earlier_message() -> None:
    servers: list[Server] = ["llama.cpp", "openai"]
    for server in servers:
        found = sent(server, TextCall(PROMPT[:3]))["messages"]
        assert found[-1] == {"role": "user", "content": NEXT}
    assert sent("openai", TextCall(PROMPT[:3]), url=OPENAI)["messages"][-1]["role"] == "assistant"
    found = sent("llama.cpp", TextCall(PROMPT[:3], header="To Ann: "))["messages"]
    assert [each["role"] for each in found[-3:]] == ["assistant", "user", "assistant"]


def test_a_prompt_of_nothing_says_so() -> None:
    assert sent("vllm", TextCall(()))["messages"] == [{"role": "user", "content": FIRST}]

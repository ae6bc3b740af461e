"""Variables passed to a chat template beside the messages: frames and prompts match stock transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcho import Engine, RunConfig
from agentcho.engine.template import derive
from agentcho.engine.template_fidelity import TALKS, fidelity
from agentcho.engine.variables import read_by, unread
from agentcho.errors import ModelError
from agentcho.games.runs.loading import tell_thinking, tell_unread
from agentcho.protocol.call import ChatMessage
from agentcho.protocol.variables import MOST, checked, of_effort, option

from ..device import DEVICE
from ..engines import Engines
from . import templates
from .families import Family

OFF, ON = {"enable_thinking": False}, {"enable_thinking": True}
HARD = {"reasoning_effort": "high"}
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("chatml", OFF),  # Qwen3
    ("thoughtful", OFF),  # Qwen3, SmolLM3, GLM
    ("opened", OFF),  # Qwen3.5, Nemotron
    ("emptied", ON),  # Gemma 4
    ("appended", OFF),  # SmolLM3
    ("harmony", HARD),  # gpt-oss
    ("llama3", OFF),  # uses no variable
)
THINKS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{{ '<think>' if thinking else '</think>' }}{% endif %}"
)
"""The shape of DeepSeek V3.1, which thinks when told to."""


@pytest.mark.parametrize(("style", "given"), CASES)
@pytest.mark.parametrize("late", [False, True])
def test_prompts_are_those_of_stock_with_the_same_variables(style: str, given: dict[str, Any], late: bool) -> None:
    tokenizer = templates.tokenizer(style)
    framing = derive(tokenizer, style) if late else derive(tokenizer, style, variables=given)
    changed = False
    for talk in TALKS:
        turns = [{"role": said.role, "content": said.text} for said in talk]
        how: Any = {"add_generation_prompt": True, "return_dict": False}
        stock, plain = (list(tokenizer.apply_chat_template(turns, **more, **how)) for more in (given, {}))
        found = framing.prompt(talk, given if late else {})
        assert found is not None
        begin = () if found.begins else framing.begin
        assert [*begin, *(id for piece in found.pieces for id in piece.tokens), *found.opening] == stock
        changed |= stock != plain
    assert changed is (style != "llama3")
    assert fidelity(tokenizer, framing).plain.equal == len(TALKS)


def test_messages_that_are_framed_one_by_one_have_them_too() -> None:
    tokenizer = templates.tokenizer("harmony")
    begin = derive(tokenizer, "harmony", variables={"reasoning_effort": "high"}).begin
    assert "Reasoning: high<|end|>" in str(tokenizer.decode(list(begin)))
    tokenizer = templates.tokenizer("appended")
    default = derive(tokenizer, "appended", variables=OFF).default
    assert default is not None
    assert "Reasoning: no" in tokenizer.decode(list(default.tokens))


@pytest.mark.parametrize(
    ("style", "given", "before", "after"),
    [
        ("thoughtful", OFF, True, False),
        ("opened", OFF, True, False),
        ("emptied", ON, False, True),
        ("llama3", ON, False, False),
    ],
)
def test_whether_a_model_thinks_follows_them(style: str, given: dict[str, Any], before: bool, after: bool) -> None:
    tokenizer = templates.tokenizer(style)
    framing, talk = derive(tokenizer, style), [ChatMessage("user", "Hello")]
    whole, other = framing.prompt(talk), framing.prompt(talk, given)
    assert whole is not None
    assert other is not None
    assert (whole.thinking is not None, other.thinking is not None) == (before, after)
    assert (framing.thinking is not None) is before
    assert (derive(tokenizer, style, variables=given).thinking is not None) is after


def test_a_template_that_thinks_when_told_to_opens_a_thought() -> None:
    tokenizer = templates.tokenizer("chatml")
    tokenizer.chat_template = THINKS
    framing, talk = derive(tokenizer, "v3.1"), [ChatMessage("user", "Hello")]
    told = framing.prompt(talk, of_effort("high", {}))
    plain = framing.prompt(talk)
    assert plain is not None
    assert told is not None
    assert (plain.thinking, framing.opens_thought) == (None, False)
    assert told.thinking is not None
    assert tokenizer.decode(list(told.opening)) == "<|im_start|>assistant\n<think>"
    assert framing.prompt(talk, of_effort("none", {})) == plain


def test_a_value_that_a_template_refuses_is_no_prompt() -> None:
    tokenizer = templates.tokenizer("chatml")
    tokenizer.chat_template = "{% if reasoning_effort == 'high' %}{{ raise_exception('no') }}{% endif %}" + str(
        tokenizer.chat_template
    )
    framing, talk = derive(tokenizer, "strict"), [ChatMessage("user", "Hello")]
    assert framing.prompt(talk, {"reasoning_effort": "high"}) is None
    assert framing.prompt(talk, {"reasoning_effort": "low"}) == framing.prompt(talk)


def test_what_a_template_reads_is_known() -> None:
    source = "{% generation %}{{ messages[0].content }}{% endgeneration %}"
    source += "{% if not a is defined %}{% set a = 1 %}{% endif %}{{ a }}"
    assert read_by(source) == frozenset({"messages", "a"})
    assert unread(source, frozenset({"a", "b", "messages", "thinking"})) == ["b", "thinking"]
    assert unread("{% a parser of its own %}", frozenset({"b"})) == []
    assert derive(templates.tokenizer("chatml"), "chatml").unread({"enable_thinking", "thinking"}) == ["thinking"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{enable_thinking: false}", "not JSON"),
        ('{"a": NaN}', "not JSON"),
        ("[1]", "not a JSON object"),
        (3, "not a JSON object"),
        ({"messages": []}, "messages is set by the engine"),
        ({"chat_template": "x"}, "chat_template is set by the engine"),
        ({"bos_token": "x"}, "bos_token is set by the engine"),
        ({"a": object()}, "a value in it is not JSON"),
        ({"a": float("inf")}, "a value in it is not JSON"),
        ({"a": "x" * MOST}, "characters as JSON"),
    ],
)
def test_what_is_no_variable_is_refused(given: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        checked(given)


def test_an_option_is_the_same_text_for_the_same_variables() -> None:
    assert option({"b": 1, "a": None}) == option('{"a": null, "b": 1}') == '{"a": null, "b": 1}'
    assert option(None) is option({}) is option("{}") is None


def test_a_run_s_option_is_json_or_a_mapping_and_checked() -> None:
    run = RunConfig(chat_template_kwargs=OFF)
    assert run == RunConfig(chat_template_kwargs='{"enable_thinking": false}')
    assert RunConfig.model_validate_json(run.model_dump_json()) == run
    assert run.own.chat_template_kwargs == '{"enable_thinking": false}'
    assert RunConfig(**RunConfig.of_own(run.own)).own == run.own
    with pytest.raises(ValueError, match="messages is set by the engine"):
        RunConfig(chat_template_kwargs='{"messages": []}')
    with pytest.raises(ValueError, match="chat_template_kwargs needs a model with weights"):
        RunConfig(model="fake", chat_template_kwargs=OFF)


@pytest.mark.parametrize(("server", "takes"), [("vllm", True), ("sglang", True), ("openai", False)])
def test_a_server_is_sent_them_where_it_has_a_field_for_them(server: Any, takes: bool) -> None:
    how: Any = {"model": "openai:m", "base_url": "http://127.0.0.1:1/v1", "chat_template_kwargs": OFF}
    if takes:
        assert RunConfig(server=server, **how).own.chat_template_kwargs is not None
        return
    with pytest.raises(ValueError, match=r"servers of kind \w+ do not support it"):
        RunConfig(server=server, **how)


def test_an_engine_has_them_in_its_frames_and_on_record(engines: Engines, tmp_path: Path) -> None:
    folder = engines.folder(Family("llama", "Llama", style="harmony"))
    begins = set[tuple[int, ...]]()
    for given in ({}, HARD):
        with Engine.load(folder, device=DEVICE, chat_template_kwargs=given) as engine:
            begins.add(engine.framing.begin)
            assert engine.fingerprint.get("chat_template_kwargs") == option(given)
    assert len(begins) == 2
    with pytest.raises(ModelError, match="chat_template_kwargs: messages is set by the engine"):
        Engine.load(folder, device=DEVICE, chat_template_kwargs={"messages": []})


def test_what_a_template_does_not_read_is_named(engines: Engines, caplog: pytest.LogCaptureFixture) -> None:
    engine = engines(Family("llama", "Llama", style="harmony"))
    tell_unread("m", engine, option(HARD | {"unknown": 1}))
    assert caplog.messages == ["m: chat_template_kwargs unknown: the chat template does not read it"]
    tell_unread("m", engine, option(HARD))
    tell_unread("m", engine, None)
    assert len(caplog.messages) == 1


def test_a_model_that_thinks_is_told_of_if_few_tokens_are_left_for_it(
    engines: Engines, caplog: pytest.LogCaptureFixture
) -> None:
    for style, most, told in (("thinking", 1024, False), ("llama3", 30, False), ("thinking", 30, True)):
        tell_thinking("m", engines(Family("llama", "Llama", style=style)), most)
        assert bool(caplog.messages) is told
    assert "m may think before it answers, and max_tokens (30) counts both" in caplog.messages[0]


def test_an_effort_is_told_in_the_words_of_every_template() -> None:
    assert of_effort(None, OFF) == OFF
    assert of_effort("none", {}) == {"reasoning_effort": "none", "enable_thinking": False, "thinking": False}
    assert of_effort("low", OFF | {"reasoning_effort": "x"}) == {
        "reasoning_effort": "low",
        "enable_thinking": False,
        "thinking": True,
    }

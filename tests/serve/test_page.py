"""The documentation page of the server agrees with its behavior."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from agentcho.serve.api import chat, request_fields, responses
from agentcho.serve.api.body import Body

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"


def bodies(top: type[Body] = Body) -> Iterator[type[Body]]:
    """All models of which a request body consists."""
    for each in top.__subclasses__():
        yield each
        yield from bodies(each)


def test_the_page_lists_what_changes_nothing_and_nothing_else() -> None:
    assert {chat.ChatBody, responses.ResponsesBody} <= set(bodies())
    section = PAGE.read_text().partition("by name:\n")[2].partition("`prompt_cache_key` is among")[0]
    listed = re.findall(r"`([\w.]+)`", section)
    assert len(listed) == len(set(listed))
    assert set(listed) == {each.within + name for each in bodies() for name in each.ignored}


VLLM = """messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n
presence_penalty response_format seed stop stream stream_options.include_usage stream_options.continuous_usage_stats
temperature top_p tools tool_choice reasoning_effort thinking_token_budget include_reasoning parallel_tool_calls user
use_beam_search top_k min_p repetition_penalty watermarking length_penalty stop_token_ids include_stop_str_in_output
ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side
prompt_logprobs logprob_token_ids allowed_token_ids bad_words echo add_generation_prompt continue_final_message
add_special_tokens documents chat_template chat_template_kwargs media_io_kwargs mm_processor_kwargs priority request_id
session_id return_tokens_as_token_ids return_token_ids routed_experts_prompt_start return_token_offsets
return_prompt_text return_mm_kwargs cache_salt kv_transfer_params ec_transfer_params vllm_xargs repetition_detection
stream_interval enable_response_messages previous_input_messages best_of guided_json guided_regex guided_choice
guided_grammar guided_decoding_backend guided_whitespace_pattern structured_outputs.json structured_outputs.regex
structured_outputs.choice structured_outputs.grammar structured_outputs.json_object structured_outputs.structural_tag
structured_outputs.disable_fallback structured_outputs.disable_any_whitespace structured_outputs.whitespace_pattern
structured_outputs.disable_additional_properties"""
"""Request fields of vLLM 0.26 (its chat API, and those special to its /v1/responses), and of older versions."""
INSIDE: dict[str, type[Body]] = {
    "stream_options": chat.ChatStreamOptions,
    "structured_outputs": request_fields.StructuredOutputs,
}


def verdict(parameter: str) -> str:
    """The table cell of a parameter, computed from what the server does with it."""
    outer, _, inner = parameter.rpartition(".")
    body = INSIDE.get(outer, chat.ChatBody)
    if inner in {field.alias or name for name, field in body.model_fields.items()}:
        return "taken"
    if inner in body.ignored:
        return "without effect"
    if inner in body.only:
        value, why = body.only[inner]
        return f"`{json.dumps(value)}` only: {why}"
    return f"refused: {body.refused[inner]}"


def test_the_page_says_of_every_parameter_of_vllm_what_becomes_of_it() -> None:
    table = PAGE.read_text().partition("### Every parameter of vLLM")[2].partition("| --- | --- |\n")[2]
    rows = [line.strip("|").split(" | ") for line in table.splitlines()]
    told = {name: says.strip() for names, says in rows for name in re.findall(r"`([\w.]+)`", names)}
    assert told == {name: verdict(name) for name in VLLM.split()}
    assert len(told) == sum(len(re.findall("`", names)) for names, _ in rows) / 2, "a parameter is there twice"

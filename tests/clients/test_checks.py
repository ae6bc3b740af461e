"""Real clients over a real socket: how each handles plain answers, streams, schemas, functions and errors."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from .environment import run_script
from .served import BROKEN, Server

pytestmark = pytest.mark.clients
CLIENTS = ("openai", "pydantic_ai", "langchain", "openai_agents", "inspect")
CHECKS = ("plain", "stream", "schema", "tool", "limited", "abort", "overflow", "broken")
MOST = 16
SAID = "3 x 4 = 12."
"""The understudy's answer to `PROMPT` at temperature 0."""


@cache
def found(server: Server, client: str) -> dict[str, Any]:
    """The results of all checks of a client, run together because starting a client takes as long as ten requests."""
    asked = {**server._asdict(), "model": "understudy", "broken": BROKEN}
    del asked["runs"]
    return run_script("frameworks", f"with_{client}", json.dumps({"target": asked, "checks": CHECKS}))


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, server: Server) -> dict[str, Any]:
    return found(server, request.param)


def check_usage(usage: dict[str, int]) -> None:
    assert 1 <= usage["completion"] <= MOST < usage["total"]
    assert usage["total"] == usage["prompt"] + usage["completion"]


def test_a_plain_answer_has_words_and_what_they_took(client: dict[str, Any]) -> None:
    answer = client["plain"]
    assert answer["text"] == SAID
    assert answer.get("ended", "stop") == "stop"
    assert answer.get("model", "understudy") == "understudy"
    check_usage(answer["usage"])


def test_a_stream_comes_in_pieces_and_says_what_it_took(client: dict[str, Any]) -> None:
    stream = client["stream"]
    assert stream["text"] == SAID
    assert stream.get("pieces", 2) > 1
    check_usage(stream["usage"])


@pytest.mark.parametrize("check", ["schema", "tool"])
def test_a_schema_and_a_function_are_kept_to(client: dict[str, Any], check: str) -> None:
    value = dict(client[check])
    assert value.pop("name", "play").lower() in ("play", "move")
    assert set(value) == {"move", "sure"}
    assert value["move"] in ("cooperate", "defect")
    assert isinstance(value["sure"], bool)


def test_too_many_requests_are_an_error_of_that_kind(client: dict[str, Any]) -> None:
    assert {"RateLimitError", "ModelRateLimitError"} & set(client["limited"]["raised"])
    assert "429" in client["limited"]["message"]


def test_a_request_that_is_given_up_frees_its_row(client: dict[str, Any]) -> None:
    assert client["abort"] == {"during": 1, "after": 0}


def test_a_prompt_that_is_too_long_is_an_error_of_that_kind(client: dict[str, Any]) -> None:
    overflow = client["overflow"]
    known = overflow.get("ended") == "model_length", overflow.get("code") == "context_length_exceeded"
    assert any(known) or "ModelContextWindowExceededError" in overflow["raised"]


def test_an_error_in_the_middle_of_a_stream_is_raised(client: dict[str, Any]) -> None:
    assert {"APIError", "ModelAPIError", "ModelBehaviorError"} & set(client["broken"]["raised"])
    assert "failed" in client["broken"]["message"]

"""Agents of frameworks that build prompts in their own way, configured only by base URL and key: talks of three agents
with private briefs, optional tool calls, streams, schemas. Their answers are encoded once for all readers, in whatever
form they come back, and the record of each society is clean."""

from __future__ import annotations

import json
import urllib.request
from functools import cache
from typing import Any

import pytest

from agentcho.audit.audit import audit_run
from agentcho.records.record import SavedRun

from .environment import run_script
from .served import Server

pytestmark = pytest.mark.clients
ENVIRONMENTS = {
    "langgraph": "talks",
    "smolagents": "talks",
    "llamaindex": "talks",
    "crewai": "crewai",
    "agent_framework": "frameworks",
}
CHECKS = ("talk", "tools", "stream", "schema")
TURNS = 9
LEAST = {"langgraph": 0.8, "llamaindex": 0.8, "smolagents": 0.7, "crewai": 0.7, "agent_framework": 0.8}
"""Minimum share of a talk's prompt tokens that are reused. smolagents merges adjacent messages of one role, and CrewAI
quotes answers in its prompts: without matching inside messages the shares are 0.60 and 0.11."""


@cache
def found(server: Server, framework: str) -> dict[str, Any]:
    """The results of all checks of a framework."""
    asked = {**server._asdict(), "model": "understudy", "broken": ""}
    del asked["runs"]
    given = json.dumps({"target": asked, "checks": CHECKS})
    return run_script(ENVIRONMENTS[framework], f"talk_{framework}", given)


@pytest.fixture(params=ENVIRONMENTS)
def framework(request: pytest.FixtureRequest, server: Server) -> str:
    name: str = request.param
    found(server, name)
    return name


def test_a_talk_reads_what_is_there_whatever_the_framework_makes_of_answers(server: Server, framework: str) -> None:
    talk = found(server, framework)["talk"]
    assert talk["said"] == TURNS
    assert talk["reused"] >= LEAST[framework]


def test_an_agent_with_tools_takes_its_turns(server: Server, framework: str) -> None:
    tools = found(server, framework)["tools"]
    assert tools["turns"] == 2
    assert tools.get("called", "price") == "price"
    assert tools.get("answered", True)


def test_an_answer_comes_in_pieces(server: Server, framework: str) -> None:
    assert found(server, framework)["stream"] > 3


def test_an_answer_keeps_to_its_schema(server: Server, framework: str) -> None:
    for value in found(server, framework)["schema"]:
        assert {name: type(each) for name, each in value.items()} == {"price": int, "sure": bool}


def test_the_record_of_each_society_is_clean(server: Server, framework: str) -> None:
    found(server, framework)
    for check in CHECKS:
        name, key = f"{framework}-{check}", {"authorization": f"Bearer {server.key}"}
        urllib.request.urlopen(urllib.request.Request(f"{server.root}/s/{name}", headers=key, method="DELETE")).close()
        assert audit_run(SavedRun(next(server.runs.glob(f"*society-{name}")))).conclusion == "clean"

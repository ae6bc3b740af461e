"""Audits as SARIF: valid against the standard, with a flow from each secret to its reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from agentcho.audit.formats.sarif import sarif
from agentcho.audit.report import AuditReport, Place
from agentcho.audit.rules import RULES

from . import sample
from .sarif_schema import LOG

CASES = (sample.report(), sample.report(reveal=True), sample.clean(), sample.inconclusive())


def run(report: AuditReport, **options: Any) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(sarif(report, **options))
    (only,) = log["runs"]
    assert isinstance(only, dict)
    return only


def result(rule: str, **options: Any) -> dict[str, Any]:
    """The first result of a rule."""
    results: list[dict[str, Any]] = run(sample.report(), **options)["results"]
    return next(each for each in results if each["ruleId"] == rule)


def texts(found: dict[str, Any]) -> list[str]:
    (flow,) = found["codeFlows"][0]["threadFlows"]
    return [step["location"]["message"]["text"] for step in flow["locations"]]


@pytest.mark.parametrize("report", CASES, ids=lambda report: report.conclusion)
def test_it_is_of_the_shape_of_the_standard(report: AuditReport) -> None:
    faults = [fault.message for fault in Draft7Validator(LOG).iter_errors(json.loads(sarif(report)))]
    assert faults == []


def test_the_schema_notices_what_is_not_in_the_standard() -> None:
    log = json.loads(sarif(sample.report()))
    log["runs"][0]["results"][0]["colour"] = "red"
    log["runs"][0]["results"][1]["level"] = "fatal"
    assert len(list(Draft7Validator(LOG).iter_errors(log))) == 2


def test_every_rule_is_in_the_table_and_every_result_points_at_its_own() -> None:
    only = run(sample.report())
    rules = only["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    assert {rule["id"]: rule["defaultConfiguration"]["level"] for rule in rules} == {
        id: rule.level for id, rule in RULES.items()
    }
    assert len(only["results"]) == len(sample.findings())
    for each, finding in zip(only["results"], sample.findings(), strict=True):
        assert rules[each["ruleIndex"]]["id"] == each["ruleId"] == finding.rule
        assert each["level"] == finding.level
        assert each["partialFingerprints"] == {"agentcho/v1": finding.fingerprint}


def test_the_flow_leads_from_the_secret_through_what_carried_it_to_the_line_that_read_it() -> None:
    found = result("AC002")
    assert texts(found) == ["alice.2 is what alice kept private", "alice.3 attended to it", "bob attends to alice.3"]
    steps = found["codeFlows"][0]["threadFlows"][0]["locations"]
    names = [step["location"]["logicalLocations"][0]["name"] for step in steps]
    assert names == ["alice.2", "alice.3", "bob"]
    assert steps[-1]["location"]["physicalLocation"] == found["locations"][0]["physicalLocation"]
    assert [("physicalLocation" in step["location"]) for step in steps] == [False, False, True]


def test_steps_have_the_lines_of_their_messages_where_the_way_is_one_of_the_drawn_game() -> None:
    lines = {"alice.2": Place(file="agents/player.py", line=7), "alice.3": Place(file="agents/player.py", line=9)}
    drawn = tuple(said.model_copy(update={"place": lines.get(said.id)}) for said in sample.said())
    results = run(sample.report(drawn=drawn))["results"]
    flows = {each["ruleId"]: each["codeFlows"][0]["threadFlows"][0]["locations"] for each in results[:2]}
    regions = [step["location"].get("physicalLocation", {}).get("region") for step in flows["AC002"]]
    assert regions == [{"startLine": 7}, {"startLine": 9}, {"startLine": 41}]
    elsewhere = tuple(said.model_copy(update={"parents": ()}) for said in drawn)
    other = run(sample.report(drawn=elsewhere))["results"][1]["codeFlows"][0]["threadFlows"][0]
    assert ["physicalLocation" in step["location"] for step in other["locations"]] == [False, False, True]


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("scenarios/a b.py", "scenarios/a%20b.py"),
        ("/home/me/games/t.jsonl", "games/t.jsonl"),
        ("/elsewhere/t.jsonl", "file:///elsewhere/t.jsonl"),
    ],
)
def test_places_are_relative_to_the_working_folder_where_they_can_be(file: str, uri: str) -> None:
    one = sample.finding("AC001", "bob", "alice", "alice", ("m1",), place=Place(file=file, line=3))
    (found,) = run(sample.report(findings=(one,)), root=Path("/home/me"))["results"]
    physical = found["locations"][0]["physicalLocation"]
    assert physical == {"artifactLocation": {"uri": uri}, "region": {"startLine": 3}}


def test_states_and_suppressions_are_said() -> None:
    results = run(sample.report())["results"]
    assert [each.get("baselineState") for each in results[:4]] == ["new", "unchanged", "absent", None]
    assert [each["suppressions"] for each in results if "suppressions" in each] == [
        [{"kind": "external", "status": "accepted", "justification": sample.EXCUSE}]
    ]


def test_the_invocation_tells_how_it_ended_and_how_it_is_done_again() -> None:
    (invocation,) = run(sample.report())["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (True, 1)
    assert invocation["commandLine"] == "agentcho audit runs/20260102-030405-three-in-a-room"
    assert invocation["arguments"] == ["audit", "runs/20260102-030405-three-in-a-room"]
    (calm,) = run(sample.clean())["invocations"]
    assert (calm["executionSuccessful"], calm["exitCode"]) == (True, 0)
    (doubtful,) = run(sample.inconclusive())["invocations"]
    assert (doubtful["executionSuccessful"], doubtful["exitCode"]) == (False, 3)
    assert "did not fire" in doubtful["toolExecutionNotifications"][0]["message"]["text"]


def test_the_exit_code_follows_the_level_that_was_asked_for() -> None:
    warned = sample.clean(findings=(sample.finding("AC005"),))
    codes = [run(warned, fail_on=level)["invocations"][0]["exitCode"] for level in ("error", "warning", "never")]
    assert codes == [0, 1, 0]


def test_no_words_of_messages_are_in_it_even_when_they_are_revealed() -> None:
    assert sample.SENTINEL not in sarif(sample.report(reveal=True))

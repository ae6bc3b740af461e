"""Audits as SARIF: valid against the standard, with a flow from each secret to its reader."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from jsonschema import Draft7Validator

from agentcho.audit.formats.sarif import sarif
from agentcho.audit.report import AuditReport, Finding, Place
from agentcho.audit.rules import RULES
from agentcho.lab.probe import Plan, judged, measure
from agentcho.lab.probe.sarif import sarif as probe_sarif
from agentcho.lab.probe.trials import FEWEST
from tests.probe.simulated import Simulated

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


def leak(place: Place, places: tuple[Place | None, ...]) -> Finding:
    """A transitive leak over two messages with these lines, read at `place`."""
    return sample.finding("AC002", "bob", "alice", "alice", ("alice.3", "alice.2"), place=place, places=places)


def regions(report: AuditReport) -> list[int]:
    """The line of each step of the path of the only result."""
    (found,) = run(report)["results"]
    (flow,) = found["codeFlows"][0]["threadFlows"]
    return [step["location"]["physicalLocation"]["region"]["startLine"] for step in flow["locations"]]


def located(log: dict[str, Any]) -> list[tuple[str, int]]:
    """The file and the line of each location in the results of a run. Fails if a location has none."""
    found = list[tuple[str, int]]()
    for each in log["results"]:
        assert each["locations"]
        flows = [flow for code in each.get("codeFlows", []) for flow in code["threadFlows"]]
        for where in (*each["locations"], *(step["location"] for flow in flows for step in flow["locations"])):
            place = where["physicalLocation"]
            found.append((place["artifactLocation"]["uri"], place["region"]["startLine"]))
    return found


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


def test_each_step_has_the_line_of_its_message() -> None:
    lines = (Place(file="agents/player.py", line=9), Place(file="agents/player.py", line=7))
    for places, told in ((lines, [7, 9, 41]), ((lines[0], None), [1, 9, 41]), ((), [1, 1, 41])):
        assert regions(sample.report(findings=(leak(sample.HERE, places),))) == told


def test_each_step_of_a_planned_game_has_the_line_of_its_trace() -> None:
    found = leak(Place(file="t.jsonl", line=2), (None, None))
    planned = sample.subject().model_copy(update={"planned": True})
    assert regions(sample.report(subject=planned, findings=(found,))) == [2, 2, 2]


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


@pytest.mark.parametrize("report", CASES, ids=lambda report: report.conclusion)
def test_every_location_has_a_file_and_a_line(report: AuditReport) -> None:
    """GitHub refuses a log of which one result has none."""
    places = located(run(report))
    assert all(uri and line >= 1 for uri, line in places)
    assert len(places) >= len(report.findings)


@pytest.mark.parametrize(
    ("planned", "known", "file"),
    [
        (False, (sample.finding("AC006", place=sample.PLAYER),), "agents/player.py"),
        (False, (sample.finding("AC003", "bob", "alice", path=("m1",), places=(sample.PLAYER,)),), "agents/player.py"),
        (False, (), "runs/20260102-030405-three-in-a-room/transcript.jsonl"),
        (True, (), "runs/20260102-030405-three-in-a-room"),
    ],
)
def test_what_has_no_place_is_at_the_first_line_of_a_file_of_the_report(
    planned: bool, known: tuple[Finding, ...], file: str
) -> None:
    subject = sample.subject().model_copy(update={"planned": planned})
    log = run(sample.clean(subject=subject, findings=(sample.finding("AC005"), *known)))
    assert located(log)[0] == (file, 1)


def test_a_probe_is_at_the_address_of_its_server_without_a_scheme() -> None:
    """GitHub refuses a scheme other than that of the checkout."""
    server = Simulated("salt")
    report = judged(server, measure(server, Plan(("keys", "salts"), trials=FEWEST, prompts=2), Random(3)))
    (log,) = json.loads(probe_sarif(report))["runs"]
    assert set(located(log)) == {("127.0.0.1%3A1/v1", 1)}


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

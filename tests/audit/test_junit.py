"""Audits as JUnit: counts that add up, failures that match the exit code, texts that are escaped."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from agentcho.audit.formats.junit import junit
from agentcho.audit.report import AuditReport, FailOn
from agentcho.audit.rules import RULES

from . import sample

CASES = (sample.report(), sample.report(reveal=True), sample.clean(), sample.inconclusive())


def parsed(report: AuditReport, fail_on: FailOn = "error") -> Element:
    suites = ElementTree.fromstring(junit(report, fail_on))
    assert suites.tag == "testsuites"
    (suite,) = suites
    assert suites.attrib == {name: suite.get(name) for name in suites.attrib}
    return suite


def failing(suite: Element) -> list[str]:
    return [case.get("name", "") for case in suite.findall("testcase") if case.find("failure") is not None]


@pytest.mark.parametrize("report", CASES, ids=lambda report: report.conclusion)
def test_the_counts_are_those_of_the_cases(report: AuditReport) -> None:
    suite = parsed(report)
    for name, tag in (("tests", "testcase"), ("failures", ".//failure"), ("errors", ".//error")):
        assert suite.get(name) == str(len(suite.findall(tag)))
    assert suite.get("skipped") == str(len(suite.findall(".//skipped")))


def test_there_is_a_case_for_each_reader_and_rule_once() -> None:
    names = [case.get("name") for case in parsed(sample.report()).findall("testcase")]
    shown = [rule for rule in RULES.values() if rule.level != "note"]
    of_each, of_the_run = (sum(rule.subject == about for rule in shown) for about in ("reader", "run"))
    assert len(names) == len(set(names)) == 1 + 3 * of_each + of_the_run
    assert "AC001 direct leak: alice" in names
    assert "AC005 batches are outside the claim: the run" in names


def test_errors_fail_with_their_way_and_their_place() -> None:
    suite = parsed(sample.report())
    assert failing(suite) == [
        "AC001 direct leak: carol",
        "AC003 positional leak: carol",
        "AC002 transitive leak: bob",
        "AC004 unlabelled encoding: bob",
    ]
    failure = suite.find(".//testcase[@name='AC002 transitive leak: bob']/failure")
    assert failure is not None
    assert failure.get("message") == "transitive leak: bob <- alice & alice"
    assert "path: bob <- alice.3 <- alice.2" in (failure.text or "")
    assert "at: scenarios/three_in_a_room.py:41" in (failure.text or "")


def test_warnings_are_told_and_fail_where_they_were_asked_to() -> None:
    told = parsed(sample.report()).find(".//testcase[@name='AC006 the code acted on a secret: the run']/system-out")
    assert told is not None
    assert "AC006 the code acted on a secret: the run" in failing(parsed(sample.report(), "warning"))
    assert "AC007 release: the run" in failing(parsed(sample.report(), "note"))
    assert failing(parsed(sample.report(), "never")) == failing(parsed(sample.report()))


def test_what_is_suppressed_is_skipped_and_what_is_gone_is_no_failure() -> None:
    case = parsed(sample.report()).find(".//testcase[@name='AC002 transitive leak: carol']")
    assert case is not None
    assert [part.tag for part in case] == ["skipped"]
    assert sample.EXCUSE in (case[0].get("message") or "")


def test_a_reader_that_has_no_verdict_of_its_own_is_not_lost() -> None:
    report = sample.clean(readers=(), findings=(sample.finding("AC001", "dave", "alice", "alice", ("m1",)),))
    assert failing(parsed(report)) == ["AC001 direct leak: dave"]


def test_an_inconclusive_audit_is_an_error() -> None:
    (error,) = parsed(sample.inconclusive()).findall("testcase/error")
    assert "no row changed at all" in (error.get("message") or "")
    assert parsed(sample.clean()).findall("testcase/error") == []


def test_words_stay_words() -> None:
    odd = sample.finding("AC001", "]]><x>&\x00\x1b[31m\ufffe\u202e", "alice", "alice", ("<m1>",))
    text = junit(sample.clean(findings=(odd,)))
    suite = ElementTree.fromstring(text)[0]
    assert suite.findall(".//x") == []
    (name,) = failing(suite)
    assert name == "AC001 direct leak: ]]><x>&\\u0000\\u001b[31m\\ufffe\\u202e"
    assert sample.SENTINEL not in junit(sample.report(reveal=True))

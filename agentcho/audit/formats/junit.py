"""A report as JUnit XML for build servers: one test case per rule and agent or tool that it concerns.

A finding that makes the audit's exit code 1, or has the level error, is a failure; an inconclusive audit is an error;
a suppressed finding is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from agentcho.audit.report import DOUBT, AuditReport, FailOn, Finding
from agentcho.audit.rules import LEVELS, RULES, Level, RuleSubject
from agentcho.audit.wording import code_lines, headline, legal, listed


def junit(report: AuditReport, fail_on: FailOn = "error") -> str:
    """The report as a JUnit document. Warnings are failures if `fail_on` says so, and otherwise output of their
    case."""
    suite = ElementTree.Element("testsuite", name=legal(f"agentcho audit {report.subject.scenario}"))
    cases = list(_cases(report, _failing(fail_on)))
    suite.extend([_properties(report), _conclusion(report, fail_on), *cases])
    told = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    numbers = {"tests": str(len(cases) + 1)}
    numbers |= {name: str(len(suite.findall(f"testcase/{tag}"))) for name, tag in told.items()}
    suite.attrib.update(numbers)
    whole = ElementTree.Element("testsuites", numbers)
    whole.append(suite)
    ElementTree.indent(whole)
    return ElementTree.tostring(whole, encoding="unicode", xml_declaration=True) + "\n"


def _failing(fail_on: FailOn) -> tuple[Level, ...]:
    """The levels that are failures: errors always, lower levels if `fail_on` includes them."""
    return LEVELS[:1] if fail_on == "never" else LEVELS[: LEVELS.index(fail_on) + 1]


def _cases(report: AuditReport, failing: Sequence[Level]) -> Iterator[ElementTree.Element]:
    """One case per rule and agent or tool that it could concern, and a case for every finding, whatever it names."""
    readers = [row.reader for row in report.readers]
    tools = [call.tool for call in report.calls]
    concerned: dict[RuleSubject, list[str | None]] = {"reader": [*readers], "tool": [*tools], "run": [None]}
    found: dict[tuple[str | None, str], list[Finding]] = {
        (name, rule.code): [] for rule in RULES.values() for name in concerned[rule.subject]
    }
    there = [finding for finding in report.findings if finding.status != "gone"]
    for finding in there:
        found.setdefault((finding.reader, finding.rule), []).append(finding)
    shown = (*LEVELS[:2], *failing)
    for name in dict.fromkeys([*readers, *(finding.reader for finding in there if finding.reader), *tools, None]):
        for rule in RULES.values():
            if rule.level in shown and (name, rule.code) in found:
                yield _case(report, rule.code, name, found=found[name, rule.code], failing=failing)


def _case(
    report: AuditReport, rule: str, concerned: str | None, *, found: Sequence[Finding], failing: Sequence[Level]
) -> ElementTree.Element:
    name = legal(f"{rule} {RULES[rule].title}: {concerned or 'the run'}")
    case = ElementTree.Element("testcase", classname=legal(report.subject.scenario), name=name, time="0")
    standing = [finding for finding in found if not finding.suppressed]
    told = "\n".join(_told(finding) for finding in found)
    if standing and RULES[rule].level in failing:
        _add(case, "failure", standing[0].message, told, type=rule)
    elif standing:
        ElementTree.SubElement(case, "system-out").text = legal(told)
    elif found:
        _add(case, "skipped", f"suppressed: {found[0].suppressed}", told)
    return case


def _told(finding: Finding) -> str:
    """The finding as lines: its message, path, lines of code, advice and fingerprint."""
    lines = [finding.message]
    if finding.path:
        lines.append(f"  path: {' <- '.join((finding.reader or 'read', *finding.path))}")
    for place, names in code_lines(finding).items():
        lines.append(f"  at: {place}" + (f" ({listed(names)})" if names else ""))
    if finding.suppressed:
        lines.append(f"  suppressed: {finding.suppressed}")
    return "\n".join([*lines, f"  {RULES[finding.rule].advice}", f"  fingerprint: {finding.fingerprint}"])


def _conclusion(report: AuditReport, fail_on: FailOn) -> ElementTree.Element:
    name = "the audit comes to a conclusion"
    case = ElementTree.Element("testcase", classname=legal(report.subject.scenario), name=name, time="0")
    if report.conclusion == "inconclusive" or report.exit_code(fail_on) == DOUBT:
        _add(case, "error", headline(report).sentence, "\n".join(report.reasons), type="inconclusive")
    else:
        ElementTree.SubElement(case, "system-out").text = legal(str(headline(report)))
    return case


def _properties(report: AuditReport) -> ElementTree.Element:
    properties = ElementTree.Element("properties")
    told = {
        "conclusion": report.conclusion,
        "verdict": headline(report).brief,
        "reproduce": report.subject.reproduce,
    } | report.subject.environment
    for name, value in told.items():
        ElementTree.SubElement(properties, "property", name=legal(name), value=legal(value))
    return properties


def _add(case: ElementTree.Element, tag: str, message: str, text: str, type: str = "suppressed") -> None:
    ElementTree.SubElement(case, tag, message=legal(message), type=type).text = legal(text)

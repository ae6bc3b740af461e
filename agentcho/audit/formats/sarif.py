"""A report as SARIF 2.1.0, which code hosts and editors show beside the code.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0. It never contains texts of messages.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote

from agentcho.audit.formats.sarif_log import SarifExecution, SarifObject, SarifRule, sarif_log
from agentcho.audit.report import AuditReport, FailOn, Finding, Place
from agentcho.audit.rules import RULES, Rule
from agentcho.audit.wording import headline, legal
from agentcho.records.names import TRANSCRIPT

FINGERPRINT = "agentcho/v1"
SHOWN = {"reader", "owner", "carrier", "hops", "secrets", "games"}
"""Fields of a finding without a SARIF field of their own."""
PROPERTIES = {"conclusion", "reasons", "subject", "readers", "controls"}
"""Fields of a report without a SARIF field of their own."""
STATES = {"new": "new", "unchanged": "unchanged", "gone": "absent"}


def sarif(report: AuditReport, fail_on: FailOn = "error", root: Path | None = None) -> str:
    """The report as a SARIF log. Places under `root` (default: the working folder) become relative to it."""
    subject = report.subject
    located = _Locations(root or Path.cwd(), _fallback(report))
    execution = SarifExecution(
        exit_code=report.exit_code(fail_on),
        conclusion=report.conclusion,
        doubts=report.reasons if report.conclusion == "inconclusive" else (),
        command=subject.reproduce,
        arguments=shlex.split(subject.reproduce)[1:],
    )
    return sarif_log(
        version=version("agentcho"),
        rules=[_rule(rule) for rule in RULES.values()],
        run_id=f"agentcho/{subject.scenario}/{subject.mode}/{subject.leakage}/",
        execution=execution,
        results=[_result(report, finding, located) for finding in report.findings],
        properties=report.model_dump(mode="json", include=PROPERTIES) | {"verdict": headline(report).brief},
    )


class _Locations(NamedTuple):
    """Physical locations, relative to `root` if they are under it. Code hosts refuse a log in which a result has none,
    so `fallback` stands for an unknown place."""

    root: Path
    fallback: Place

    def at(self, place: Place | None) -> SarifObject:
        """The location of a place."""
        known = place or self.fallback
        artifact = {"uri": _uri(known.file, self.root)}
        return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": max(known.line, 1)}}}


def _fallback(report: AuditReport) -> Place:
    """The first line of the file of the first known place in the report, or else of the trace or the transcript."""
    places = [place for finding in report.findings for place in (finding.place, *finding.places)]
    known = next(filter(None, (*places, *(said.place for said in report.drawn))), None)
    subject = report.subject
    audited = subject.source if subject.planned else str(Path(subject.source) / TRANSCRIPT)
    return Place(file=audited if known is None else known.file, line=1)


def _rule(rule: Rule) -> SarifRule:
    return SarifRule(
        id=rule.code,
        title=rule.title,
        meaning=rule.meaning,
        level=rule.level,
        advice=rule.advice,
        tags=("security", "information-flow"),
    )


def _result(report: AuditReport, finding: Finding, located: _Locations) -> SarifObject:
    result: SarifObject = {
        "ruleId": finding.rule,
        "ruleIndex": list(RULES).index(finding.rule),
        "level": finding.level,
        "message": {"text": legal(finding.message)},
        "locations": [located.at(finding.place) | _logical(report, finding.reader, _about(finding))],
        "partialFingerprints": {FINGERPRINT: finding.fingerprint},
        "properties": finding.model_dump(mode="json", include=SHOWN) | {"readings": finding.edges},
    }
    if finding.path:
        result["codeFlows"] = [{"threadFlows": [{"locations": list(_flow(report, finding, located))}]}]
    if finding.edges:
        result["occurrenceCount"] = finding.edges
    if finding.status is not None:
        result["baselineState"] = STATES[finding.status]
    if finding.suppressed:
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": finding.suppressed}]
    return result


def _flow(report: AuditReport, finding: Finding, located: _Locations) -> Iterator[SarifObject]:
    """The path from the secret to its reader: each message that passed it on, then the line of code that read it."""
    # all messages of a planned game are in one line of its trace
    trace = finding.place if report.subject.planned else None
    way = RULES[finding.rule].way
    names = {
        "reader": finding.reader or "an agent",
        "owner": finding.owner or "others",
        "carrier": finding.carrier or "an agent",
    }
    for number, (id, place) in enumerate(reversed(finding.steps)):
        said = (way.step if number else way.first).format(id=id, **names)
        location = located.at(place or trace) | _logical(report, id, "message")
        yield {"location": location | {"message": {"text": said}}, "importance": "important" if number else "essential"}
    text = way.end.format(id=finding.path[0], **names)
    location = located.at(finding.place) | _logical(report, finding.reader, _about(finding))
    yield {"location": location | {"message": {"text": text}}, "importance": "essential"}


def _about(finding: Finding) -> str:
    """The kind of what the `reader` of a finding names."""
    return "tool" if RULES[finding.rule].subject == "tool" else "agent"


def _uri(file: str, root: Path) -> str:
    """The URI of a file: relative to `root` if it is under it, else unchanged if relative, else a file URI."""
    path = Path(file)
    if not path.is_absolute():
        return quote(str(PurePosixPath(path)))
    return quote(path.relative_to(root).as_posix()) if path.is_relative_to(root) else path.as_uri()


def _logical(report: AuditReport, name: str | None, kind: str) -> SarifObject:
    scenario = report.subject.scenario
    full = scenario if name is None else f"{scenario}/{name}"
    return {"logicalLocations": [{"name": name or scenario, "fullyQualifiedName": full, "kind": kind}]}

"""A probe as SARIF 2.1.0: one result per question, a failure if callers share."""

from __future__ import annotations

from urllib.parse import quote

from agentcho.audit.formats.sarif_log import SarifExecution, SarifObject, SarifRule, sarif_log
from agentcho.audit.wording import legal
from agentcho.lab.probe.findings import Comparison, ProbeReport, Verdict, Words
from agentcho.lab.probe.wording import ASKED, headline

QUESTIONS = {
    "control": SarifRule(
        id="PROBE-CONTROL",
        title="reuse of a caller's own prompts",
        meaning="Without it, no other reuse could be detected.",
        level="note",
    ),
    "keys": SarifRule(
        id="PROBE-KEYS",
        title="prompt cache shared across keys",
        meaning="The response time reveals what other keys sent.",
        level="error",
    ),
    "salts": SarifRule(
        id="PROBE-SALTS",
        title="prompt cache shared across cache salts",
        meaning="The response time reveals what others sent.",
        level="error",
    ),
    "beyond": SarifRule(
        id="PROBE-BEYOND",
        title="reuse beyond prefixes",
        meaning="A message is reused after other words than those it was computed after.",
        level="note",
    ),
    "words": SarifRule(
        id="PROBE-WORDS",
        title="greedy words change with a hit",
        meaning="Earlier requests change the answer.",
        level="warning",
    ),
}
"""The SARIF rule of each question; its level is that of a finding."""
KINDS: dict[Verdict, str] = {"shared": "fail", "seen": "fail", "not seen": "pass", "inconclusive": "open"}


def sarif(report: ProbeReport) -> str:
    """The report as a SARIF log."""
    doubts = [headline(report)[1]] if report.conclusion == "inconclusive" else []
    execution = SarifExecution(
        exit_code=report.exit_code, conclusion=report.conclusion, doubts=[legal(doubt) for doubt in doubts]
    )
    compared = [_result(report, one.question, one) for one in report.comparisons]
    return sarif_log(
        version=report.version,
        rules=QUESTIONS.values(),
        run_id="agentcho/probe/",
        execution=execution,
        results=[*compared, _result(report, "words", report.words)],
        properties=report.model_dump(mode="json", exclude={"comparisons", "words"}),
    )


def _result(report: ProbeReport, name: str, found: Comparison | Words) -> SarifObject:
    """The result of one question. A control that is seen is not a failure: it has to be seen."""
    kind = "informational" if name == "control" and found.verdict == "seen" else KINDS[found.verdict]
    asked = ASKED[found.question] if isinstance(found, Comparison) else QUESTIONS[name].title
    return {
        "ruleId": QUESTIONS[name].id,
        "ruleIndex": list(QUESTIONS).index(name),
        "kind": kind,
        "level": QUESTIONS[name].level if kind == "fail" else "none",
        "message": {"text": legal(f"{asked}: {found.verdict}: {found.reason}")},
        "locations": [_location(report)],
        "partialFingerprints": {"agentcho-probe/v1": f"{name} {report.url} {report.model}"},
        "properties": found.model_dump(mode="json"),
    }


def _location(report: ProbeReport) -> SarifObject:
    """The server. Code hosts refuse a result without a file, and a URI with another scheme than that of their checkout,
    so its address without the scheme is also given as a file."""
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(report.url.split("://")[-1])},
            "region": {"startLine": 1},
        },
        "logicalLocations": [{"name": report.model, "fullyQualifiedName": report.url, "kind": "resource"}],
    }

"""A probe as SARIF 2.1.0: a result for each question, a failure where callers share.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0. Does not know: how anything was asked.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from agentcho.audit.sarif import SCHEMA
from agentcho.audit.wording import legal
from agentcho.lab.probe.findings import Comparison, ProbeReport, Verdict, Words
from agentcho.lab.probe.wording import ASKED, headline

Json = dict[str, Any]


class Rule(NamedTuple):
    """What a question is about; `level` of what it finds."""

    title: str
    meaning: str
    level: str


RULES = {
    "control": Rule("reuse of a caller's own prompts", "Without it nothing else could be seen.", "note"),
    "keys": Rule("prompt cache shared across keys", "The time of an answer tells what other keys sent.", "error"),
    "salts": Rule("prompt cache shared across cache salts", "The time of an answer tells what others sent.", "error"),
    "beyond": Rule(
        "reuse beyond prefixes", "A message is reused behind other words than it was computed behind.", "note"
    ),
    "words": Rule("greedy words change with a hit", "What was asked before changes what is answered.", "warning"),
}
KINDS: dict[Verdict, str] = {"shared": "fail", "seen": "fail", "not seen": "pass", "inconclusive": "open"}


def sarif(report: ProbeReport) -> str:
    """The report as a SARIF log."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(report)]}
    return json.dumps(log, indent=2, ensure_ascii=True) + "\n"


def _run(report: ProbeReport) -> Json:
    doubts = [headline(report)[1]] if report.conclusion == "inconclusive" else []
    return {
        "tool": {"driver": _driver(report)},
        "automationDetails": {"id": "agentcho/probe/"},
        "invocations": [
            {
                "executionSuccessful": report.conclusion != "inconclusive",
                "exitCode": report.exit_code,
                "exitCodeDescription": report.conclusion,
                "toolExecutionNotifications": [
                    {"message": {"text": legal(doubt)}, "level": "warning"} for doubt in doubts
                ],
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": [_result(report, one.question, one) for one in report.comparisons]
        + [_result(report, "words", report.words)],
        "properties": report.model_dump(mode="json", exclude={"comparisons", "words"}),
    }


def _driver(report: ProbeReport) -> Json:
    rules = [
        {
            "id": _id(name),
            "name": rule.title.title().replace(" ", ""),
            "shortDescription": {"text": rule.title.capitalize()},
            "fullDescription": {"text": rule.meaning},
            "defaultConfiguration": {"level": rule.level},
        }
        for name, rule in RULES.items()
    ]
    return {"name": "agentcho", "version": report.version, "semanticVersion": report.version, "rules": rules}


def _id(name: str) -> str:
    return f"PROBE-{name.upper()}"


def _result(report: ProbeReport, name: str, found: Comparison | Words) -> Json:
    """One question. The control is no failure where it is seen: it is what has to be."""
    kind = "informational" if name == "control" and found.verdict == "seen" else KINDS[found.verdict]
    asked = ASKED[found.question] if isinstance(found, Comparison) else RULES[name].title
    return {
        "ruleId": _id(name),
        "ruleIndex": list(RULES).index(name),
        "kind": kind,
        "level": RULES[name].level if kind == "fail" else "none",
        "message": {"text": legal(f"{asked}: {found.verdict}: {found.reason}")},
        "locations": [
            {"logicalLocations": [{"name": report.model, "fullyQualifiedName": report.url, "kind": "resource"}]}
        ],
        "partialFingerprints": {"agentcho-probe/v1": f"{name} {report.url} {report.model}"},
        "properties": found.model_dump(mode="json"),
    }

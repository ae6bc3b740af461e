"""The findings of a report as CSV for spreadsheets: one row per finding, with the meaning and advice of its rule.

It never contains texts of messages.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from agentcho.audit.report import AuditReport, Finding
from agentcho.audit.rules import RULES
from agentcho.audit.wording import legal

FIELDS = ("message", "reader", "owner", "carrier", "hops", "games", "edges", "status", "suppressed", "fingerprint")
"""Fields of a finding with a column of the same name."""
COLUMNS = ("rule", "level", "title", *FIELDS, "path", "places", "file", "line", "meaning", "advice")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Prefixes that make a spreadsheet treat the text of a cell as a formula."""


def sheet(report: AuditReport) -> str:
    """The findings as CSV (RFC 4180), in report order."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows([_cell(value) for value in _values(finding)] for finding in report.findings)
    return text.getvalue()


def _values(finding: Finding) -> Iterator[str | int | None]:
    rule = RULES[finding.rule]
    place = finding.place
    yield from (finding.rule, finding.level, rule.title)
    yield from (getattr(finding, field) for field in FIELDS)
    yield " ".join(finding.path)
    yield "; ".join("?" if place is None else str(place) for place in finding.places) if any(finding.places) else ""
    yield from (None, None) if place is None else (place.file, place.line)
    yield from (rule.meaning, rule.advice)


def _cell(value: str | int | None) -> str | int | None:
    """A value that a spreadsheet shows as text, even if an agent's name looks like a formula."""
    if not isinstance(value, str):
        return value
    text = legal(value)
    return f"'{text}" if text.startswith(FORMULA) else text

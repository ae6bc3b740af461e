"""The findings of a report as CSV, which spreadsheets open: a row a finding, with what its rule means and advises.

Does not know: how findings were found. Texts of messages are never in it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from agentcho.audit.report import AuditReport, Finding
from agentcho.audit.rules import RULES
from agentcho.audit.wording import legal

FIELDS = ("message", "reader", "owner", "carrier", "hops", "games", "edges", "status", "suppressed", "fingerprint")
"""Fields of a finding that have a column of their own name."""
COLUMNS = ("rule", "level", "title", *FIELDS, "path", "file", "line", "meaning", "advice")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet take the text of a cell for a formula."""


def sheet(report: AuditReport) -> str:
    """The findings as CSV (RFC 4180), in the order of the report."""
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
    yield from (None, None) if place is None else (place.file, place.line)
    yield from (rule.meaning, rule.advice)


def _cell(value: str | int | None) -> str | int | None:
    """A text as a spreadsheet shows it, whatever name somebody gave an agent."""
    if not isinstance(value, str):
        return value
    text = legal(value)
    return f"'{text}" if text.startswith(FORMULA) else text

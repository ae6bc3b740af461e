"""Compares a report with an earlier one: which findings are new, unchanged, or gone.

Does not know: how findings are found, suppressions.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from agentcho.audit.conclusion import concluded
from agentcho.audit.report import AuditReport
from agentcho.errors import RecordBroken

REPORT = "give a file that `agentcho audit --json` wrote (agentcho-audit/1)"


def read_report(path: Path) -> AuditReport:
    """An audit's JSON. `RecordBroken` where the file is none."""
    try:
        return AuditReport.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RecordBroken(path, f"cannot be read ({error.strerror})", REPORT) from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise RecordBroken(path, f"{'.'.join(map(str, first['loc']))} {first['msg']}".strip(), REPORT) from None


def against(report: AuditReport, earlier: AuditReport) -> AuditReport:
    """The report with a status for each finding. Findings that are gone are listed too, and do not count."""
    before = {finding.fingerprint: finding for finding in earlier.findings if finding.status != "gone"}
    now = {finding.fingerprint for finding in report.findings}
    compared = tuple(
        finding.model_copy(update={"status": "unchanged" if finding.fingerprint in before else "new"})
        for finding in report.findings
    )
    left = [finding for fingerprint, finding in before.items() if fingerprint not in now]
    gone = tuple(finding.model_copy(update={"status": "gone", "suppressed": None}) for finding in left)
    more = []
    if report.subject.scenario != earlier.subject.scenario:
        more.append(f"the earlier report is of another scenario, {earlier.subject.scenario}: nothing can be unchanged")
    return concluded(report.model_copy(update={"findings": compared + gone}), report, more)

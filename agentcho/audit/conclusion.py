"""The conclusion of an audit in one word, with its reasons in short sentences. Computed again whenever something is
added to a report.

Does not know: how findings were found, what was measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from agentcho.audit.measurement import Measurement
from agentcho.audit.report import AuditReport, Conclusion, Control, Finding

FEW = 3
"""At most so many incomplete games are named one by one."""


def concluded(report: AuditReport, before: AuditReport | None = None, more: Iterable[str] = ()) -> AuditReport:
    """The report with its conclusion and reasons. Reasons of `before` that do not follow from its parts are kept;
    `more` are new ones."""
    kept = [] if before is None else [r for r in before.reasons if r not in set(_reasons(before))]
    reasons = tuple(dict.fromkeys([*_reasons(report), *kept, *more]))
    return report.model_copy(update={"conclusion": _word(report), "reasons": reasons})


def measured(report: AuditReport, measurement: Measurement | None, controls: Sequence[Control] = ()) -> AuditReport:
    """The report with its measurement. A measurement clears no finding; a control that did not fire makes the report
    inconclusive."""
    fuller = report.model_copy(
        update={"measurement": measurement, "controls": (*report.controls, *controls)},
    )
    return concluded(fuller, report)


def _word(report: AuditReport) -> Conclusion:
    """Findings where an error is not suppressed; else inconclusive where there is doubt; else clean."""
    errors = [f for f in report.findings if f.level == "error" and f.status != "gone"]
    if not all(finding.suppressed for finding in errors):
        return "findings"
    if _doubts(report):
        return "inconclusive"
    return "findings" if errors else "clean"


def _doubts(report: AuditReport) -> list[str]:
    """The reasons why the report must not be clean."""
    lost = report.subject.lost
    doubts = [f"not whole: {each}" for each in lost[:FEW]]
    if len(lost) > FEW:
        doubts.append(f"not whole: {len(lost) - FEW} more")
    if report.subject.games == 0:
        doubts.append("there is no game to audit")
    elif not report.clean_edges and not report.edges:
        doubts.append("no agent read anything, so nothing could be seen")
    doubts += [f"a control did not fire: {c.name}: {c.detail}" for c in report.controls if not c.fired]
    unknown = sum(f.edges for f in report.findings if f.rule == "AC004" and f.status != "gone")
    if unknown:
        doubts.append(f"of {unknown} readings or encodings it cannot be told what they carried")
    return doubts


def _reasons(report: AuditReport) -> list[str]:
    there = [finding for finding in report.findings if finding.status != "gone"]
    reasons = [
        *_tally("error", [f for f in there if f.level == "error" and not f.suppressed]),
        *_doubts(report),
        *_tally("warning", [f for f in there if f.level == "warning" and not f.suppressed]),
    ]
    if report.unfinished:
        heard, count = sum(each.tokens for each in report.unfinished), len(report.unfinished)
        reasons.append(f"{count} {_plural('message', count)} heard in part and never whole: {heard} tokens")
    suppressed = sum(finding.suppressed is not None for finding in there)
    if suppressed:
        reasons.append(f"{suppressed} {_plural('finding', suppressed)} suppressed")
    if not any(finding.level == "error" for finding in there) and report.clean_edges:
        planned = " as the resolver plans them" if report.subject.planned else ""
        reasons.append(f"none of {report.clean_edges} readings{planned} carries what its reader may not read")
    return reasons


def _tally(level: str, findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    rules = ", ".join(f"{rule} {n}" for rule, n in sorted(Counter(f.rule for f in findings).items()))
    return [f"{len(findings)} {_plural(level, len(findings))}: {rules}"]


def _plural(word: str, n: int) -> str:
    return word if n == 1 else f"{word}s"

"""Computes the conclusion of an audit and its reasons, compares it with an earlier report, and applies suppressions.

The conclusion is recomputed whenever something is added to a report. A suppression accepts findings, for a reason and
until a date. Suppressions are read from TOML and marked in the report; no finding is removed:

    [[suppress]]
    rule = "AC…"                     # its code, or a fingerprint alone
    reader = "bob"                   # who reads, whose secret, who carried it: as the finding has them
    secret_of = "alice"
    carrier = "alice"
    owner = "dana@example.org"       # who answers for it
    reason = "the paper's own setting, wanted here"
    expires = 2027-01-31             # the last day on which it counts

A field that is left out must be missing in the finding too, so that no entry matches more than it says.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentcho.audit import wording
from agentcho.audit.measurement import Measurement
from agentcho.audit.report import AuditReport, Conclusion, Control, Finding
from agentcho.audit.rules import RULES, Occurrences
from agentcho.errors import ConfigError, RecordBroken

REPORT = "give a file that `agentcho audit --json` wrote (agentcho-audit/1)"
Text = Annotated[str, Field(min_length=1)]
FEW = 3
"""The maximum number of incomplete games that are named individually."""


def _known(rule: str) -> str:
    if rule not in RULES:
        raise ValueError(f"is {rule}, which is not a rule of this version; its rules are {', '.join(RULES)}")
    return rule


RuleId = Annotated[str, AfterValidator(_known)]


def concluded(report: AuditReport, before: AuditReport | None = None, more: Iterable[str] = ()) -> AuditReport:
    """The report with its conclusion and reasons. Reasons of `before` that do not follow from its contents are kept;
    `more` are new ones."""
    kept = [] if before is None else [r for r in before.reasons if r not in set(_reasons(before))]
    reasons = tuple(dict.fromkeys([*_reasons(report), *kept, *more]))
    return report.model_copy(update={"conclusion": _word(report), "reasons": reasons})


def measured(report: AuditReport, measurement: Measurement | None, controls: Sequence[Control] = ()) -> AuditReport:
    """The report with a measurement. A measurement never removes a finding; a control that did not fire makes the
    report inconclusive."""
    more = {"measurement": measurement, "controls": (*report.controls, *controls)}
    return concluded(report.model_copy(update=more), report)


def _word(report: AuditReport) -> Conclusion:
    """The conclusion: findings if an error is not suppressed; else inconclusive if there is doubt; else findings if
    there are suppressed errors; else clean, of texts only if a model behind an API has spoken."""
    errors = [f for f in report.findings if f.level == "error" and f.status != "gone"]
    if not all(finding.suppressed for finding in errors):
        return "findings"
    if _doubts(report):
        return "inconclusive"
    if errors:
        return "findings"
    return "texts-clean" if report.texts else "clean"


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
    for rule in RULES.values():
        if rule.doubt and (
            count := sum(f.edges for f in report.findings if f.rule == rule.code and f.status != "gone")
        ):
            doubts.append(rule.doubt.format(times=Occurrences(count), count=count))
    return doubts


def _reasons(report: AuditReport) -> list[str]:
    there = [finding for finding in report.findings if finding.status != "gone"]
    reasons = [
        *_tally("error", [f for f in there if f.level == "error" and not f.suppressed]),
        *_doubts(report),
        *_tally("warning", [f for f in there if f.level == "warning" and not f.suppressed]),
    ]
    if report.unfinished:
        heard = sum(each.tokens for each in report.unfinished)
        count = len(report.unfinished)
        reasons.append(f"{count} {_plural('message', count)} heard in part and never whole: {heard} tokens")
    if report.texts:
        said = f"{report.texts} {_plural('message', report.texts)} said by models behind APIs"
        reasons.append(f"{said}: their prompts were seen, and not what their servers keep in caches")
    if report.calls:
        passed = sum(call.verdict == "released" for call in report.calls)
        count = len(report.calls)
        reasons.append(f"{count} {_plural('call', count)} of tools, {passed} of them let run by a release")
    if report.words is not None:
        reasons.append(wording.words(report.words))
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


def read_report(path: Path) -> AuditReport:
    """Read the JSON of an audit. Raises `RecordBroken` if the file is not one."""
    try:
        report = AuditReport.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RecordBroken(path, f"cannot be read ({error.strerror})", REPORT) from None
    except ValidationError as error:
        raise RecordBroken(path, _fault(error), REPORT) from None
    if strange := sorted({finding.rule for finding in report.findings} - RULES.keys()):
        what = f"has findings of {', '.join(strange)}, which this version does not know"
        raise RecordBroken(path, what, "audit the run again with this version")
    return report


def against(report: AuditReport, earlier: AuditReport) -> AuditReport:
    """The report with the status of each finding against an earlier report. Findings that are gone are listed too, but
    do not count."""
    there = [finding for finding in earlier.findings if finding.status != "gone"]
    before = {finding.fingerprint for finding in there}
    now = {finding.fingerprint for finding in report.findings}
    compared = tuple(
        finding.model_copy(update={"status": "unchanged" if finding.fingerprint in before else "new"})
        for finding in report.findings
    )
    left = [finding for finding in there if finding.fingerprint not in now]
    gone = tuple(finding.model_copy(update={"status": "gone", "suppressed": None}) for finding in left)
    more = []
    if report.subject.scenario != earlier.subject.scenario:
        more.append(f"the earlier report is of another scenario, {earlier.subject.scenario}: nothing can be unchanged")
    return concluded(report.model_copy(update={"findings": compared + gone}), report, more)


class Suppression(BaseModel):
    """One suppression. `owner` is responsible for it; `secret_of` is the finding's owner."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    fingerprint: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = None
    rule: RuleId | None = None
    reader: Text | None = None
    secret_of: Text | None = None
    carrier: Text | None = None
    owner: Text
    reason: Text
    expires: date

    @model_validator(mode="after")
    def _names_one(self) -> Suppression:
        names = (self.rule, self.reader, self.secret_of, self.carrier)
        if self.fingerprint is not None and any(name is not None for name in names):
            raise ValueError("a fingerprint identifies the finding; leave out rule, reader, secret_of and carrier")
        if self.fingerprint is None and self.rule is None:
            raise ValueError("it has neither a fingerprint nor a rule")
        return self

    def covers(self, finding: Finding) -> bool:
        """Whether it applies to a finding."""
        if self.fingerprint is not None:
            return self.fingerprint == finding.fingerprint
        mine = (self.rule, self.reader, self.secret_of, self.carrier)
        return mine == (finding.rule, finding.reader, finding.owner, finding.carrier)

    def __str__(self) -> str:
        return f"{self.reason} ({self.owner}, until {self.expires})"


def read_suppressions(path: Path) -> tuple[Suppression, ...]:
    """Read the entries of a file. Raises `ConfigError`, which names the file, the entry and the fault."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise _bad(path, None, f"cannot be read ({error})") from None
    entries = document.pop("suppress", [])
    if document or not isinstance(entries, list):
        raise _bad(
            path,
            None,
            (f"takes [[suppress]] tables only, and holds {', '.join(document) or 'a suppress that is not a list'}"),
        )
    return tuple(_suppression(path, number, entry) for number, entry in enumerate(entries, start=1))


def _suppression(path: Path, number: int, entry: Any) -> Suppression:
    try:
        return Suppression.model_validate(entry)
    except ValidationError as error:
        raise _bad(path, number, _fault(error)) from None


def _fault(error: ValidationError) -> str:
    """The first fault and its location."""
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))} {first['msg'].removeprefix('Value error, ')}".strip()


def suppress(report: AuditReport, suppressions: Sequence[Suppression], today: date) -> AuditReport:
    """The report with suppressed findings marked. An expired suppression covers nothing, and each suppression that
    covers nothing is added to the reasons."""
    live = [each for each in suppressions if each.expires >= today]
    marked = tuple(_marked(finding, live) for finding in report.findings)
    return concluded(report.model_copy(update={"findings": marked}), report, _idle(report, suppressions, today))


def _marked(finding: Finding, live: Sequence[Suppression]) -> Finding:
    covering = next((each for each in live if each.covers(finding)), None)
    if covering is None or finding.status == "gone":
        return finding
    return finding.model_copy(update={"suppressed": str(covering)})


def _idle(report: AuditReport, suppressions: Sequence[Suppression], today: date) -> Iterator[str]:
    """Reasons for the entries that cover nothing."""
    there = [finding for finding in report.findings if finding.status != "gone"]
    for number, each in enumerate(suppressions, start=1):
        if not any(map(each.covers, there)):
            yield f"suppression {number} of {each.owner} covers no finding: take it out"
        elif each.expires < today:
            yield f"suppression {number} of {each.owner} expired on {each.expires} and covers nothing any more"


def _bad(path: Path, entry: int | None, what: str) -> ConfigError:
    where = str(path) if entry is None else f"{path}: suppression {entry}"
    return ConfigError(
        f"{where}: {what}; each [[suppress]] needs owner, reason and expires, and either a fingerprint or a rule with "
        "its reader, secret_of and carrier"
    )

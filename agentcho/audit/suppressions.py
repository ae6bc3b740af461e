"""Suppressions: findings that somebody accepts, for a reason and until a date. They are read from TOML and marked in a
report; no finding is removed.

    [[suppress]]
    rule = "AC002"                   # or a fingerprint alone
    reader = "bob"                   # who reads, whose secret, who carried it: as the finding has them
    secret_of = "alice"
    carrier = "alice"
    owner = "dana@example.org"       # who answers for it
    reason = "the paper's own setting, wanted here"
    expires = 2027-01-31             # the last day on which it counts

What is left out must be missing in the finding too: nothing matches more than it says. Does not know: how findings
are found.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentcho.audit.conclusion import concluded
from agentcho.audit.report import AuditReport, Finding
from agentcho.errors import ConfigError

Said = Annotated[str, Field(min_length=1)]
RuleId = Literal["AC001", "AC002", "AC003", "AC004", "AC005", "AC006", "AC007", "AC008", "AC009", "AC010"]


class Suppression(BaseModel):
    """One entry. `owner` answers for it; `secret_of` is the finding's owner."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    fingerprint: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = None
    rule: RuleId | None = None
    reader: Said | None = None
    secret_of: Said | None = None
    carrier: Said | None = None
    owner: Said
    reason: Said
    expires: date

    @model_validator(mode="after")
    def _names_one(self) -> Suppression:
        names = (self.rule, self.reader, self.secret_of, self.carrier)
        if self.fingerprint is not None and any(name is not None for name in names):
            raise ValueError("a fingerprint says it all; leave rule, reader, secret_of and carrier out")
        if self.fingerprint is None and self.rule is None:
            raise ValueError("it names no finding")
        return self

    def covers(self, finding: Finding) -> bool:
        """Whether it speaks of this finding."""
        if self.fingerprint is not None:
            return self.fingerprint == finding.fingerprint
        mine = (self.rule, self.reader, self.secret_of, self.carrier)
        return mine == (finding.rule, finding.reader, finding.owner, finding.carrier)

    def __str__(self) -> str:
        return f"{self.reason} ({self.owner}, until {self.expires})"


def read_suppressions(path: Path) -> tuple[Suppression, ...]:
    """The entries of a file. `ConfigError` names the file, the entry and the fault."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _bad(path, None, f"cannot be read ({error})") from None
    entries = document.pop("suppress", [])
    if document or not isinstance(entries, list):
        raise _bad(path, None, f"holds {', '.join(document) or 'suppress, which is no list'}")
    return tuple(_suppression(path, number, entry) for number, entry in enumerate(entries, start=1))


def _suppression(path: Path, number: int, entry: Any) -> Suppression:
    try:
        return Suppression.model_validate(entry)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        what = f"{'.'.join(map(str, first['loc']))} {first['msg'].removeprefix('Value error, ')}"
        raise _bad(path, number, what.strip()) from None


def suppress(report: AuditReport, suppressions: Sequence[Suppression], today: date) -> AuditReport:
    """The report with its findings marked. An expired suppression covers nothing; one that covers nothing is a
    reason."""
    live = [each for each in suppressions if each.expires >= today]
    marked = tuple(_marked(finding, live) for finding in report.findings)
    return concluded(report.model_copy(update={"findings": marked}), report, _idle(report, suppressions, today))


def _marked(finding: Finding, live: Sequence[Suppression]) -> Finding:
    covering = next((each for each in live if each.covers(finding)), None)
    if covering is None or finding.status == "gone":
        return finding
    return finding.model_copy(update={"suppressed": str(covering)})


def _idle(report: AuditReport, suppressions: Sequence[Suppression], today: date) -> Iterator[str]:
    """The entries that cover nothing."""
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

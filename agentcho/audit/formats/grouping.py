"""Groups findings for reports of many agents: by reader and within it by owner of the secret, or by owner alone.

Each finding is in exactly one group of each grouping. Independent of how groups are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from agentcho.audit.report import AuditReport, Finding, ReaderVerdict, Told, WordsLedger
from agentcho.audit.rules import LEVELS, Level
from agentcho.audit.verdict import WORST
from agentcho.audit.wording import many, stands
from agentcho.message import natural


class Group(NamedTuple):
    """The findings of one reader, one owner, or one pair of both. `name` None: no single agent is concerned, or it is
    unknown which. `worst` is the worst level of the standing findings; None: all are gone or suppressed."""

    name: str | None
    findings: tuple[Finding, ...]
    inner: tuple[Group, ...] = ()

    @property
    def standing(self) -> int:
        """The number of its findings that are neither gone nor suppressed."""
        return sum(map(stands, self.findings))

    @property
    def tally(self) -> str:
        """The counts in words: "3 findings", "3 findings, 2 standing"."""
        gone = f", {self.standing:,} standing" if self.standing < len(self.findings) else ""
        return many(len(self.findings), "finding") + gone

    @property
    def worst(self) -> Level | None:
        return min((f.level for f in self.findings if stands(f)), key=LEVELS.index, default=None)


class ReaderRow(NamedTuple):
    """The groups of one reader in the order of the owners of a `Square`; None: no finding concerns both."""

    reader: Group
    cells: tuple[Group | None, ...]


class Square(NamedTuple):
    """The table of readers against owners of secrets, with all findings of each."""

    owners: tuple[Group, ...]
    rows: tuple[ReaderRow, ...]


def by_reader(findings: Iterable[Finding]) -> tuple[Group, ...]:
    """One group per reader, each with one group per owner; the worst first."""
    groups = _grouped(findings, lambda finding: finding.reader)
    return tuple(group._replace(inner=by_owner(group.findings)) for group in groups)


def by_owner(findings: Iterable[Finding]) -> tuple[Group, ...]:
    """One group per owner of a secret; the worst first."""
    return _grouped(findings, lambda finding: finding.owner)


def square(groups: Sequence[Group]) -> Square:
    """The groups of `by_reader` as a table. Its rows and its columns each add up to all findings."""
    owners = by_owner(finding for group in groups for finding in group.findings)
    rows = []
    for group in groups:
        cells = {inner.name: inner for inner in group.inner}
        rows.append(ReaderRow(group, tuple(cells.get(owner.name) for owner in owners)))
    return Square(owners, tuple(rows))


def readers(report: AuditReport) -> tuple[ReaderVerdict, ...]:
    """The verdicts of a report in display order: the worst first, then by name in natural order (agent2 before
    agent10), with the owners of secrets by name too."""
    rows = sorted(report.readers, key=lambda row: (WORST.index(row.verdict), natural(row.reader)))
    return tuple(row.model_copy(update={"secrets_of": tuple(sorted(row.secrets_of, key=natural))}) for row in rows)


def ledger_rows(ledger: WordsLedger) -> tuple[Told, ...]:
    """The rows of a ledger in its own order, ties by name."""
    return tuple(
        sorted(
            ledger.rows, key=lambda row: (not row.over, row.bounded, -row.bits, *map(natural, (row.owner, row.reader)))
        )
    )


def _grouped(findings: Iterable[Finding], key: Callable[[Finding], str | None]) -> tuple[Group, ...]:
    found: dict[str | None, list[Finding]] = {}
    for finding in findings:
        found.setdefault(key(finding), []).append(finding)
    return tuple(sorted((Group(name, tuple(sorted(own, key=_rank))) for name, own in found.items()), key=_first))


def _rank(finding: Finding) -> tuple[Any, ...]:
    """Sort key: standing findings first, then by level, rule, hops to the secret, and carrier."""
    return not stands(finding), LEVELS.index(finding.level), finding.rule, finding.hops, natural(finding.carrier)


def _first(group: Group) -> tuple[Any, ...]:
    """Sort key: by the worst standing finding (level, then rule), then by number of standing findings, then by name,
    the group without a name last."""
    worst = min(((LEVELS.index(f.level), f.rule) for f in group.findings if stands(f)), default=(len(LEVELS), ""))
    return *worst, -group.standing, group.name is None, natural(group.name)

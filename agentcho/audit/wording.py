"""The sentences of a report, shared by all formats: its headline, and the meanings of verdicts and arms.

Must not depend on any one format, such as HTML or the terminal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from agentcho.audit.measurement import Arm, ProbeSource
from agentcho.audit.report import AuditReport, Finding, Verdict, WordsLedger
from agentcho.audit.rules import RULES
from agentcho.errors import amount
from agentcho.message import SCENARIO, natural

DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

MEANING: dict[Verdict, str] = {
    "direct": "reads a message that it may not read",
    "transitive": "reads an encoding that carries messages it may not read",
    "positional": "reads at a position that depends on messages it may not read",
    "unlabelled": "reads an encoding of unknown origin",
    "clean": "reads nothing that it may not read",
}


class ArmName(NamedTuple):
    """The name and meaning of an arm of the differential test."""

    name: str
    meaning: str


ARMS: dict[Arm, ArmName] = {
    "floor": ArmName("same twice", "nothing swapped: the noise floor"),
    "enforce": ArmName("enforced", "swapped behind audience encodings"),
    "reuse": ArmName("reused", "swapped behind reused encodings: the leak"),
    "stale": ArmName("encoded again", "encoded again without the secret: staleness, no leak"),
    "plain": ArmName("in plain sight", "swapped in the reader's own prompt: the largest possible effect"),
}
SOURCES: dict[ProbeSource, str] = {
    "author": "author encodings",
    "audience": "audience encodings",
    "text": "the text alone",
}
"""The sources that a probe can read."""


EACH = 3
"""The most readers for which a headline says what each can learn; for more it gives their number."""


class Headline(NamedTuple):
    """The conclusion of an audit: one word, one sentence, and what the word is limited to (`of`), if anything.
    `released` says how many messages were released; empty: none, or not shown."""

    word: str
    sentence: str
    of: str = ""
    released: str = ""

    @property
    def verdict(self) -> str:
        """The word with its scope: "CLEAN (encodings)"."""
        return f"{self.word} ({self.of})" if self.of else self.word

    @property
    def told(self) -> str:
        """The sentence with the releases: "no agent reads what it may not read; words: 2 releases"."""
        return "; ".join(filter(None, (self.sentence, self.released)))

    @property
    def brief(self) -> str:
        """The verdict without its sentence: "CLEAN (encodings); words: 2 releases"."""
        return "; ".join(filter(None, (self.verdict, self.released)))

    def __str__(self) -> str:
        return f"{self.verdict}: {self.told}"


def headline(report: AuditReport) -> Headline:
    """The headline of a report: the first that applies of proven leaks, unknown readings, doubt, clean texts, clean."""
    standing = [f for f in report.findings if f.level == "error" and stands(f)]
    if report.conclusion == "findings" and not standing:
        return Headline("SUPPRESSED", "every leak found is suppressed")
    if report.conclusion == "findings":
        return _leaks(standing, report.subject.agents)
    if report.conclusion == "inconclusive":
        return Headline("INCONCLUSIVE", _first_reason(report))
    told = released(report)
    there = {finding.rule for finding in report.findings if stands(finding)}
    beside = "".join(f"; {rule.beside}" for rule in RULES.values() if rule.beside and rule.code in there)
    if report.conclusion == "texts-clean":
        return Headline("TEXTS CLEAN", f"views held; the caches of that server were not seen{beside}", released=told)
    planned = ", as the resolver plans it" if report.subject.planned else ""
    of = "encodings and calls of tools" if report.calls else "encodings"
    return Headline("CLEAN", f"no agent reads what it may not read{planned}{beside}", of, told)


def _first_reason(report: AuditReport) -> str:
    """The first reason of a report, which counts the games that are not over if there are several."""
    first = next(iter(report.reasons), "unknown")
    left = [each for each in report.subject.lost if each.endswith(" has no outcome")]
    return f"not whole: {len(left):,} games have no outcome" if len(left) > 1 and first.endswith(left[0]) else first


def released(report: AuditReport) -> str:
    """The number of releases in words: "words: 2 releases"; empty if there are none."""
    by_rules = sum(release.by == "rules" for release in report.releases)
    told = f", {by_rules:,} by the rules of the game" if by_rules else ""
    return f"words: {many(len(report.releases), 'release')}{told}" if report.releases else ""


def _leaks(findings: Sequence[Finding], agents: Collection[str]) -> Headline:
    learns: dict[str, list[str]] = {}
    for finding in sorted(findings, key=lambda one: (one.rule, natural(one.reader), natural(one.owner))):
        rule = RULES[finding.rule]
        if rule.headline == "LEAKS" and finding.reader:
            reader = rule.learner.format(reader=finding.reader)
            owners = learns.setdefault(reader, [])
            whose = finding.owner or "another"
            owners += [] if whose in owners else [whose]
    untrusted = {f.reader or "a tool" for f in findings if RULES[f.rule].headline == "UNTRUSTED"}
    if not learns and (tools := sorted(untrusted, key=natural)):
        return Headline("UNTRUSTED", f"words that nobody vouches for decided what {listed(tools)} did outside")
    if not learns:
        readers = sorted({finding.reader or "an agent" for finding in findings}, key=natural)
        return Headline("UNKNOWN", f"it is unknown what {listed(readers)} reads")
    if len(learns) > EACH:
        return Headline("LEAKS", _counted(learns, agents))
    sentences = [f"{reader} can learn what {_keeps(owners)} private" for reader, owners in learns.items()]
    return Headline("LEAKS", ", and ".join(sentences))


def _counted(learns: Mapping[str, Sequence[str]], agents: Collection[str]) -> str:
    """How many readers can learn what, if there are too many to list each; names those with the most direct leaks."""
    owners = sorted({owner for own in learns.values() for owner in own}, key=natural)
    most = max(map(len, learns.values()))
    many_keep = f"up to {most:,} others keep" if most > 1 else "another keeps"
    keep = _keeps(owners) if len(owners) <= EACH else many_keep
    of = (
        f"{len(learns):,} of {many(len(agents), 'agent')}"
        if learns.keys() <= {*agents}
        else many(len(learns), "reader")
    )
    return f"{of} can learn what {keep} private: {listed(list(learns), EACH + 1)}"


def _keeps(owners: Sequence[str]) -> str:
    names = [owner(name) for name in owners]
    return f"{listed(names, EACH + 1)} {'keeps' if len(names) == 1 else 'keep'}"


def owner(name: str | None) -> str:
    """The owner of a finding's secret, as worded in a sentence."""
    return "no one" if name is None else "the scenario" if name == SCENARIO else name


def listed(words: Sequence[str], most: int = 6) -> str:
    """Join words: "a", "a and b", "a, b and 3 more"."""
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} more"]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


UNCHARGED = (
    "In no number of bits: whether and when an agent speaks and how long that takes, to whom, and which branch the "
    "scenario takes; what the code says or does itself after it had looked at secrets is counted as acts."
)
"""What a word ledger does not charge."""


def words(ledger: WordsLedger) -> str:
    """A word ledger in one sentence."""
    if not ledger.rows:
        return f"words={ledger.rule}: no words were said before who may not read what was read for them"
    most = max(row.bits for row in ledger.rows)
    free = sum(not row.bounded for row in ledger.rows)
    without = f"; no bound for {free} of {many(len(ledger.rows), 'pair')}" if free else ""
    told = amount(float(most), "bits", 4)
    return f"words={ledger.rule}: at most {told} to one reader about one owner in a game{without}"


def stands(finding: Finding) -> bool:
    """Whether a finding is neither gone nor suppressed."""
    return finding.status != "gone" and not finding.suppressed


def code_lines(finding: Finding) -> dict[str, list[str]]:
    """The lines of code of a finding as "file:line", its own line first, each with the names of who read there and what
    was requested there. No names if the lines of the path's messages are unknown."""
    steps = [(name, place) for name, place in finding.steps if place is not None]
    found: dict[str, list[str]] = {}
    if finding.place is not None:
        reads = steps and RULES[finding.rule].way.attends
        found[str(finding.place)] = [finding.reader] if reads and finding.reader is not None else []
    for name, place in steps:
        found.setdefault(str(place), []).append(name)
    return found


def played(report: AuditReport) -> str:
    """One line: what was audited, and how."""
    subject = report.subject
    mode = subject.mode if subject.mode == "baseline" else f"{subject.mode}, {subject.leakage}"
    parts = [subject.scenario, mode, *(["deterministic"] if subject.deterministic else []), many(subject.games, "game")]
    return " · ".join([*parts, *(["planned from a trace, not played"] if subject.planned else [])])


def cut_short(ids: Sequence[str], of: int) -> str:
    """The sentence about interrupted workflows; empty if there are none."""
    if not ids:
        return ""
    return f"{len(ids):,} of {many(of, 'workflow')} without an end, taken as far as played: {listed(ids)}"


def many(count: int, word: str) -> str:
    """A count with its noun: "1 game", "2 games", "1,024 games"."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def number(value: float) -> str:
    """Format a number of any magnitude: 0, 0.41, 4.1e-08."""
    if value == 0:
        return "0"
    return f"{value:.2g}" if abs(value) < 0.0995 else f"{value:.2f}"


def legal(text: str) -> str:
    """Escape the characters of a text that XML and HTML forbid or that change the writing direction."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else _legal(char) for char in text)


def safe(value: Any) -> Any:
    """Prepare a value for a page: strings are made legal, markup stays unchanged."""
    return legal(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _legal(char: str) -> str:
    code = ord(char)
    odd = char in DIRECTION or unicodedata.category(char) in {"Cc", "Cs"} or code & 0xFFFE == 0xFFFE
    return f"\\u{code:04x}" if odd or 0xFDD0 <= code <= 0xFDEF else char

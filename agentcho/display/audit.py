"""Shows an audit in a terminal: the conclusion first, then what to do, who reads what, findings and measurements.

Without a terminal, the same lines are printed as plain text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentcho.audit.formats.advice import actions
from agentcho.audit.formats.grouping import ledger_rows, readers
from agentcho.audit.report import AuditReport, Control, Finding, ReaderVerdict, Unfinished, Verdict, WordsLedger
from agentcho.audit.rules import RULES, LedgerName
from agentcho.audit.wording import MEANING, UNCHARGED, Headline, headline, listed, many, owner, played
from agentcho.config import again
from agentcho.display import Kind, finding_tables
from agentcho.display.finding_tables import columns
from agentcho.display.measurement_tables import measured
from agentcho.display.parts import section, show_parts
from agentcho.display.safe import inline
from agentcho.errors import amount
from agentcho.message import natural

TONES: dict[Verdict, str] = {
    "direct": "red",
    "transitive": "red",
    "positional": "yellow",
    "unlabelled": "magenta",
    "clean": "green",
}
WORDS = {
    "LEAKS": "red",
    "UNTRUSTED": "red",
    "UNKNOWN": "magenta",
    "CLEAN": "green",
    "TEXTS CLEAN": "cyan",
    "INCONCLUSIVE": "yellow",
    "SUPPRESSED": "yellow",
}
FEW = 3
"""The maximum number of findings of a note-level rule that are shown individually."""
EACH = 6
"""The maximum number of readers for which each row says what its verdict means."""


def show(report: AuditReport, kind: Kind | None, file: IO[str]) -> None:
    """Print the report; see `show_parts`."""
    show_parts(_parts(report), kind, file)


def _parts(report: AuditReport) -> Iterator[RenderableType]:
    yield _headline(headline(report))
    yield Text(inline(played(report)), style="dim")
    yield from section("what to do first", list(finding_tables.first(actions(report.findings))))
    yield from section("readers", list(_readers(readers(report))))
    acted = [finding for finding in report.findings if finding.level != "note"]
    told = [*finding_tables.findings(acted), *_ids(report, acted)]
    yield from section("findings, by reader and owner of the secret", told)
    yield from section("notes", list(_notes(report)))
    if report.words is not None:
        yield from section("words", [_words(report.words), Text(UNCHARGED, style="dim")])
    yield from section("messages heard only in part", [_unfinished(report.unfinished)] if report.unfinished else [])
    yield from section("measured", list(measured(report.measurement)))
    yield from section("controls", [_controls(report.controls)] if report.controls else [])
    yield from section("why", [Text(inline(reason)) for reason in report.reasons])
    yield from section("again", [Text(inline(report.subject.reproduce), overflow="fold")])


def _headline(found: Headline) -> Table:
    """The verdict. Wrapped lines are indented, so that no name in it begins a line."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold", ratio=1)
    verdict = Text.assemble((found.verdict, f"bold {WORDS[found.word]}"), ":")
    grid.add_row(verdict, Text(inline(found.told), style="bold"))
    return grid


def _ids(report: AuditReport, acted: Sequence[Finding]) -> Iterator[Text]:
    """The command that prints the messages with the ids that findings name."""
    subject = report.subject
    if any(finding.path for finding in acted) and not subject.planned:
        game = ("--game", str(report.drawn_game)) if subject.games > 1 and report.drawn_game is not None else ()
        command = again(("agentcho", "show", subject.source, *game, "--ids"))
        yield Text(inline(f"{command} prints the messages by these ids"), style="dim", overflow="fold")


def _readers(rows: Sequence[ReaderVerdict]) -> Iterator[Table]:
    """One row per reader. For many readers, the meanings of the verdicts are listed once, below."""
    grid = columns(4)
    grid.add_row(*(Text(head, style="dim") for head in ("reader", "verdict", "not clean", "its worst reading")))
    brief = len(rows) > EACH
    for row in rows:
        leaking = f"{row.leaking:,} of {row.readings:,}"
        of = f"of {listed(row.secrets_of, 4 if brief else 6)}" if row.secrets_of else ""
        meaning = [MEANING[row.verdict], of] if row.readings and not brief else [of]
        told = ", ".join(filter(None, meaning)) if row.readings else "reads nothing at all"
        reader = Text(inline(row.reader), style="bold")
        verdict = Text(row.verdict, style=TONES[row.verdict])
        grid.add_row(reader, verdict, Text(leaking), Text(inline(told)))
    if rows:
        yield grid
    if brief:
        means = columns(2)
        for each in dict.fromkeys(row.verdict for row in rows):
            means.add_row(Text(each, style=TONES[each]), Text(MEANING[each], style="dim"))
        yield means


def _notes(report: AuditReport) -> Iterator[Text]:
    """One line each for releases and blockages, which the files list in full; then the other notes."""
    counts: dict[LedgerName, Counter[str]] = {
        "releases": Counter(release.author for release in report.releases if release.by == "author"),
        "blockages": Counter(blockage.reader for blockage in report.blockages),
    }
    counted = {rule.code: counts[rule.ledger] for rule in RULES.values() if rule.ledger and counts[rule.ledger]}
    for code, whose in counted.items():
        who = listed([f"{inline(name)} {count:,}" for name, count in _by_name(whose)])
        yield Text(f"{code}  {many(whose.total(), RULES[code].title)}: {who}")
    if by_rules := [release.message for release in report.releases if release.by == "rules"]:
        yield Text(f"released by the rules: {len(by_rules):,} ({inline(listed([*dict.fromkeys(by_rules)]))})")
    others: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.level == "note" and finding.rule not in counted:
            others.setdefault(finding.rule, []).append(finding)
    for code, found in others.items():
        yield from _note(code, found)


def _note(code: str, found: Sequence[Finding]) -> Iterator[Text]:
    """The findings of a note-level rule, or, if there are many, their number per owner."""
    if len(found) <= FEW:
        yield from (Text(f"{code}  {inline(finding.message)}") for finding in found)
        return
    owners = Counter(owner(finding.owner) for finding in found)
    of = listed([f"{inline(name)} {count:,}" for name, count in _by_name(owners)])
    told = f"{many(len(found), 'finding')}, {RULES[code].title}, of {of}"
    yield Text(f"{code}  {told}; --html FILE and --json FILE list each")


def _by_name(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: natural(item[0]))


def _words(ledger: WordsLedger) -> RenderableType:
    """One row per owner of secrets and reader: what typed releases can have revealed, and how often there was no
    bound."""
    if not ledger.rows:
        return Text("no message was said to agents that may not read everything its author had read")
    grid = columns(4)
    for row in ledger_rows(ledger):
        counts = {"typed": row.typed, "free": row.free, "let pass": row.passed, "acts": row.acts}
        tone = "red" if row.over else "green" if row.bounded else "yellow"
        told = " · ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        pair = Text(inline(f"{row.owner} → {row.reader}"), style="bold")
        bound = Text("bounded" if row.bounded else "no bound", style=tone)
        grid.add_row(pair, bound, Text(_bits(row.bits, ledger.budget)), Text(told))
    return grid


def _bits(revealed: float, budget: float | None) -> str:
    return amount(float(revealed), "bits", 4) if budget is None else f"{revealed:.4g} of {amount(budget, 'bits')}"


def _unfinished(messages: Sequence[Unfinished]) -> Table:
    """The streamed parts of messages that never ended, with their words if these are revealed."""
    grid = columns(3)
    for each in messages:
        to = (
            each.audience
            if isinstance(each.audience, str)
            else listed([inline(name) for name in sorted(each.audience, key=natural)])
        )
        told = f"{many(each.tokens, 'token')} to {to}, game {each.game}" + (f": {each.text}" if each.text else "")
        grid.add_row(Text(inline(each.message), style="bold"), Text(each.ended), Text(inline(told)))
    return grid


def _controls(controls: Sequence[Control]) -> Table:
    """Each control that did not fire, and the number of the others, which the files list."""
    grid = columns(2)
    for control in controls:
        if not control.fired:
            told = Text(inline(f"{control.name}: {control.detail}"))
            grid.add_row(Text("did not fire", style="bold red"), told)
    fired = [control.name for control in controls if control.fired]
    if fired:
        grid.add_row(Text("fired", style="green"), Text(f"{len(fired)} of {len(controls)}"))
    return grid

"""An audit in a terminal: the conclusion first, then who reads what, what to act on, what was measured.

The same lines in plain text where there is no terminal. Does not know: how anything in the report was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentcho.audit.report import AuditReport, Control, Finding, ReaderVerdict, Unfinished, Verdict, WordsLedger
from agentcho.audit.rules import RULES
from agentcho.audit.wording import MEANING, UNCHARGED, headline, listed, many, played
from agentcho.display import Kind
from agentcho.display.measured import measured
from agentcho.display.parts import section, show_parts
from agentcho.display.safe import inline

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
LISTED = ("AC007", "AC008")
LEVELS = {"error": "red", "warning": "yellow", "note": "blue"}


def show(report: AuditReport, kind: Kind | None, file: IO[str]) -> None:
    """Print the report; see `show_parts`."""
    show_parts(_parts(report), kind, file)


def _parts(report: AuditReport) -> Iterator[RenderableType]:
    word, sentence = headline(report)
    yield Text.assemble((word, f"bold {WORDS[word]}"), ": ", (inline(sentence), "bold"))
    yield Text(inline(played(report)), style="dim")
    yield from section("readers", [_readers(report.readers)] if report.readers else [])
    acted = [finding for finding in report.findings if finding.level != "note"]
    yield from section("findings", [_findings(acted)] if acted else [])
    yield from section("notes", list(_notes(report)))
    if report.words is not None:
        yield from section("words", [_words(report.words), Text(UNCHARGED, style="dim")])
    yield from section("heard, and never whole", [_unfinished(report.unfinished)] if report.unfinished else [])
    yield from section("measured", list(measured(report.measurement)))
    yield from section("controls", [_controls(report.controls)] if report.controls else [])
    yield from section("why", [Text(inline(reason)) for reason in report.reasons])
    yield from section("again", [Text(inline(report.subject.reproduce), overflow="fold")])


def _grid(columns: int) -> Table:
    """Words in columns, of which the last one wraps."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for number in range(columns):
        grid.add_column(no_wrap=number < columns - 1, overflow="fold", ratio=1 if number == columns - 1 else None)
    return grid


def _readers(rows: Sequence[ReaderVerdict]) -> Table:
    grid = _grid(4)
    for row in rows:
        leaking = f"{row.leaking:,} of {row.readings:,}" if row.leaking else f"{row.readings:,}"
        of = f", of {listed(row.secrets_of)}" if row.secrets_of else ""
        meaning = MEANING[row.verdict] + of if row.readings else "reads nothing at all"
        reader, verdict = Text(inline(row.reader), style="bold"), Text(row.verdict, style=TONES[row.verdict])
        grid.add_row(reader, verdict, Text(leaking), Text(inline(meaning)))
    return grid


def _findings(findings: Sequence[Finding]) -> Table:
    grid = _grid(3)
    for finding in findings:
        quiet = finding.status == "gone" or finding.suppressed is not None
        tone = "dim" if quiet else LEVELS[finding.level]
        grid.add_row(Text(finding.level, style=tone), Text(finding.rule, style=tone), _body(finding, quiet))
    return grid


def _body(finding: Finding, quiet: bool) -> Group:
    """What it is; the way from the reader to the secret, and how often; where."""
    lines = [Text(inline(finding.message), style="dim" if quiet else "bold")]
    seen = [f"in {many(finding.games, 'game')}"] if finding.games else []
    hops = [many(finding.hops, "hop")] if finding.hops else []
    way = " ← ".join(inline(name) for name in (finding.reader or "read", *finding.path)) if finding.path else ""
    lines.append(Text(" · ".join(filter(None, [way, *seen, *hops, finding.status or ""]))))
    if finding.place is not None:
        lines.append(Text(inline(f"{finding.place.file}:{finding.place.line}"), style="dim", overflow="fold"))
    if finding.suppressed:
        lines.append(Text(inline(f"suppressed: {finding.suppressed}"), style="dim"))
    return Group(*(line for line in lines if line.plain))


def _notes(report: AuditReport) -> Iterator[Text]:
    """Releases and blockages in a line each, which the files list; then what else is no more than a note."""
    for rule, things, whose in (
        ("AC007", report.releases, Counter(release.author for release in report.releases)),
        ("AC008", report.blockages, Counter(blockage.reader for blockage in report.blockages)),
    ):
        if things:
            who = listed([f"{inline(name)} {count:,}" for name, count in sorted(whose.items())])
            noun = RULES[rule].title + ("s" if len(things) > 1 else "")
            yield Text(f"{rule}  {len(things):,} {noun}: {who}")
    for finding in report.findings:
        if finding.level == "note" and finding.rule not in LISTED:
            yield Text(f"{finding.rule}  {inline(finding.message)}")


def _words(ledger: WordsLedger) -> RenderableType:
    """A row an owner of secrets and reader: what typed releases can have told, and how often there was no bound."""
    if not ledger.rows:
        return Text("nothing was told of what its hearers may not read")
    grid = _grid(4)
    for row in ledger.rows:
        counts = {"typed": row.typed, "free": row.free, "let pass": row.passed, "acts": row.acts}
        of = "" if ledger.budget is None else f" of {ledger.budget:g}"
        tone = "red" if row.over else "green" if row.bounded else "yellow"
        told = " · ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        pair = Text(inline(f"{row.owner} → {row.reader}"), style="bold")
        bound = Text("bounded" if row.bounded else "no bound", style=tone)
        grid.add_row(pair, bound, Text(f"{row.bits:.4g}{of} bits"), Text(told))
    return grid


def _unfinished(messages: Sequence[Unfinished]) -> Table:
    """What was heard of messages that never ended; their words where they are to be revealed."""
    grid = _grid(3)
    for each in messages:
        to = each.audience if isinstance(each.audience, str) else listed([inline(name) for name in each.audience])
        told = f"{many(each.tokens, 'token')} to {to}, game {each.game}" + (f": {each.text}" if each.text else "")
        grid.add_row(Text(inline(each.message), style="bold"), Text(each.ended), Text(inline(told)))
    return grid


def _controls(controls: Sequence[Control]) -> Table:
    """Those that did not fire, each; of the others, how many: the files list them."""
    grid = _grid(2)
    for control in controls:
        if not control.fired:
            told = Text(inline(f"{control.name}: {control.detail}"))
            grid.add_row(Text("did not fire", style="bold red"), told)
    fired = [control.name for control in controls if control.fired]
    if fired:
        grid.add_row(Text("fired", style="green"), Text(f"{len(fired)} of {len(controls)}"))
    return grid

"""Shows findings in a terminal: what to do first, then the findings by reader and by owner of the secret.

Few findings are shown in full. Of many, the worst of each pair is shown with the number of the others, so that all are
counted. Every line begins with a fixed word, because names of agents can be any text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from agentcho.audit.formats.advice import Action
from agentcho.audit.formats.grouping import Group, by_reader
from agentcho.audit.report import Finding
from agentcho.audit.rules import RULES
from agentcho.audit.wording import code_lines, listed, many, owner, stands
from agentcho.display.safe import inline

LEVELS = {"error": "red", "warning": "yellow", "note": "blue"}
FULL = 2
"""The number of actions shown with their findings and lines; the others get one line per rule."""
WHOLE = 40
PAIRED = 200
"""Up to `WHOLE` findings, all are shown; up to `PAIRED`, the worst of each pair; of more, the worst of each reader."""


def first(actions: Sequence[Action]) -> Iterator[Table]:
    """The actions, in their order."""
    whole = sum(len(action.findings) for action in actions)
    grid = columns(2)
    for number, action in enumerate(actions[:FULL], start=1):
        grid.add_row(Text(str(number), style=LEVELS[action.level]), _action(action, whole))
    rest: dict[str, int] = {}
    for action in actions[FULL:]:
        rest[action.rule] = rest.get(action.rule, 0) + len(action.findings)
    for number, (rule, count) in enumerate(rest.items(), start=FULL + 1):
        told = f"{RULES[rule].advice} ({count:,} of {whole:,} · {rule} {RULES[rule].title})"
        grid.add_row(Text(str(number), style=LEVELS[RULES[rule].level]), Text(told))
    if actions:
        yield grid


def _action(action: Action, whole: int) -> Lines:
    """The advice, the number of findings and their rule, and their places."""
    what = f"{len(action.findings):,} of {whole:,} · {action.rule} {RULES[action.rule].title}"
    lines = [Text(action.advice, style="bold"), Text(what)]
    if action.places:
        places = [f"{place}" + (f" ({n})" if n < len(action.findings) else "") for place, n in action.places]
        placeless = f"; {action.placeless:,} at lines that are not known" if action.placeless else ""
        lines.append(Text(f"at {inline(listed(places, 4))}{placeless}", style="dim", overflow="fold"))
    return Lines(*lines)


def findings(found: Sequence[Finding]) -> Iterator[RenderableType]:
    """All findings, by reader and then by owner; those that are not shown are counted."""
    if len(found) > WHOLE:
        of = "reader" if len(found) > PAIRED else "reader and owner"
        yield Text(
            (f"{len(found):,} of them; the worst of each {of} is shown; --html FILE and --json FILE list all"),
            style="dim",
        )
    for reader in by_reader(found):
        yield _head(reader, f"reader {reader.name}" if reader.name is not None else "no single reader")
        told = reader.inner[:1] if len(found) > PAIRED else reader.inner
        for each in told:
            what = "of no single owner" if each.name is None else f"what {owner(each.name)} keeps private"
            yield Padding(_head(each, what), (0, 0, 0, 2))
            yield Padding(_table(each.findings[: len(found) if len(found) <= WHOLE else 1]), (0, 0, 0, 4))
        if others := reader.inner[len(told) :]:
            yield Padding(_others(others), (0, 0, 0, 2))


def _head(group: Group, name: str) -> Table:
    grid = columns(2)
    grid.add_row(Text(group.tally, style=LEVELS.get(group.worst or "", "dim")), Text(inline(name), style="bold"))
    return grid


def _others(groups: Sequence[Group]) -> Table:
    """The number of findings of each owner that is not shown."""
    grid = columns(2)
    names = [f"{inline(owner(group.name))} {len(group.findings):,}" for group in groups]
    count = sum(len(group.findings) for group in groups)
    grid.add_row(Text(many(count, "more finding")), Text(f"of {', '.join(names)}"))
    return grid


def _table(findings: Sequence[Finding]) -> Table:
    grid = columns(3)
    for finding in findings:
        tone = LEVELS[finding.level] if stands(finding) else "dim"
        grid.add_row(Text(finding.level, style=tone), Text(finding.rule, style=tone), _body(finding))
    return grid


def _body(finding: Finding) -> Lines:
    """The message of a finding, the path from the reader to the secret, counts, and the lines of code."""
    lines = [Text(inline(finding.message), style="bold" if stands(finding) else "dim")]
    seen = [f"in {many(finding.games, 'game')}"] if finding.games else []
    hops = [many(finding.hops, "hop")] if finding.hops else []
    way = " ← ".join(inline(name) for name in (finding.reader or "read", *finding.path)) if finding.path else ""
    lines.append(Text(" · ".join(filter(None, [way, *seen, *hops, finding.status or ""]))))
    lines += _code(finding)
    if finding.suppressed:
        lines.append(Text(inline(f"suppressed: {finding.suppressed}"), style="dim"))
    return Lines(*(line for line in lines if line.plain))


def _code(finding: Finding) -> Iterator[Text]:
    """The lines of code of a finding, each with what was requested there."""
    lines = {inline(place): inline(listed(names)) for place, names in code_lines(finding).items()}
    width = max(map(cell_len, lines), default=0)
    for place, names in lines.items():
        padding = " " * (width - cell_len(place) + 2) if names else ""
        yield Text.assemble((place, "dim"), padding, names, overflow="fold")


def columns(count: int) -> Table:
    """A grid of columns, of which only the last one wraps."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for number in range(count):
        grid.add_column(no_wrap=number < count - 1, overflow="fold", ratio=1 if number == count - 1 else None)
    return grid

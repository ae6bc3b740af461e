"""A report as one self-contained HTML file, with styles, drawings and plots inline.

The page works without scripts. Its one script measures the drawing and marks paths in it; the content security policy
in its head allows only that script, and no network.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from agentcho.audit import wording
from agentcho.audit.formats.advice import actions
from agentcho.audit.formats.drawing import BOX_HEIGHT, HEADS, draw
from agentcho.audit.formats.grouping import by_reader, ledger_rows, readers, square
from agentcho.audit.formats.terms import TERMS
from agentcho.audit.measurement import Effect, Interval, Measurement, Plot
from agentcho.audit.report import AuditReport, Cell, Finding, Place
from agentcho.audit.rules import RULES
from agentcho.message import natural

PAGE = Path(__file__).parent / "page"
STYLES = (PAGE / "colours.css", PAGE / "style.css")
LEAVES = tuple(rule.code for rule in RULES.values() if rule.ledger)
"""Rules whose cases are all listed in a ledger of the page; each of their findings gets one line only."""


class PairEffects(NamedTuple):
    """The measurement of one reader and one owner: a plot and its numbers."""

    reader: str
    owner: str
    plot: Markup
    effects: Sequence[Effect]


class WayStep(NamedTuple):
    """One step on the way of a secret: the secret itself, a carrier or the reader, with its line of code if known."""

    kind: Literal["secret", "carrier", "reader"]
    name: str
    place: Place | None = None


class VerdictGrid(NamedTuple):
    """Reader against author: one row per reader, with a cell or None per author."""

    authors: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]


def html(report: AuditReport, plot: Plot | None = None) -> str:
    """The report as a page; `plot` draws the measured effects, if there are any."""
    script = (PAGE / "script.js").read_text(encoding="utf-8")
    groups = by_reader(f for f in report.findings if f.rule not in LEAVES)
    values = {
        "report": report,
        "subject": report.subject,
        "headline": wording.headline(report),
        "played": wording.played(report),
        "rules": RULES,
        "meaning": wording.MEANING,
        "arms": wording.ARMS,
        "sources": wording.SOURCES,
        "uncharged": wording.UNCHARGED,
        "drawing": draw(report),
        "box_height": BOX_HEIGHT,
        "heads": HEADS,
        "grid": grid(report),
        "actions": actions(report.findings),
        "groups": groups,
        "square": square(groups),
        "many_findings": sum(len(group.findings) for group in groups),
        "place_of": lambda group, cell: group.inner.index(cell) + 1,
        "terms": TERMS,
        "notes": [f for f in report.findings if f.rule in LEAVES],
        "shown_readers": readers(report),
        "ledger_rows": ledger_rows,
        "verdicts": {row.reader: row.verdict for row in report.readers},
        "pairs": list(pairs(report.measurement, plot)) if report.measurement else [],
        "readers": {said.id: said.author or "" for said in report.drawn},
        "listed": wording.listed,
        "code_lines": wording.code_lines,
        "natural": lambda names: sorted(names, key=natural),
    }
    shown = {"script": Markup(script), "script_hash": _hash(script), "size": wording.number}
    return render(PAGE, "report.html.jinja", STYLES, **values, **shown, way=_way, shares=_shares)


def render(folder: Path, template: str, styles: Sequence[Path], **values: Any) -> str:
    """Render a page from a template of a folder. The template gets `values`, `style` (the content of the style files)
    and `many`."""
    style = Markup("".join(path.read_text(encoding="utf-8") for path in styles))
    return _templates(folder).get_template(template).render(style=style, many=wording.many, **values)


@cache
def _templates(folder: Path) -> Environment:
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=wording.safe,
    )


def grid(report: AuditReport) -> VerdictGrid:
    """The cells of the report in the order of its readers; agents among the authors by name, then other authors."""
    cells = {(cell.reader, cell.author): cell for cell in report.matrix}
    known = [*sorted(report.subject.agents, key=natural), *(cell.author for cell in report.matrix)]
    authors = tuple(author for author in dict.fromkeys(known) if any(a == author for _, a in cells))
    rows = [row.reader for row in readers(report) if row.readings]
    return VerdictGrid(authors, tuple((r, tuple(cells.get((r, author)) for author in authors)) for r in rows))


def pairs(measurement: Measurement, plot: Plot | None) -> Iterator[PairEffects]:
    """Effects by reader and owner, the largest through reused encodings first."""
    found: dict[tuple[str, str], list[Effect]] = {}
    for effect in measurement.effects:
        found.setdefault((effect.reader, effect.owner), []).append(effect)
    for (reader, owner), effects in sorted(found.items(), key=lambda item: (-_leak(item[1]), *map(natural, item[0]))):
        drawn = "" if plot is None else plot(effects, measurement)
        yield PairEffects(reader, owner, Markup(drawn), effects)


def _leak(effects: Sequence[Effect]) -> float:
    return max((effect.tv_max for effect in effects if effect.arm == "reuse"), default=0.0)


def _shares(interval: Interval) -> str:
    return interval.shown("{:.0%}".format)


def _way(finding: Finding) -> list[WayStep]:
    """The path of a finding from the secret to its reader."""
    steps = [
        WayStep("secret" if id in finding.secrets else "carrier", id, place) for id, place in reversed(finding.steps)
    ]
    if finding.reader is not None:
        read = any(finding.places) and RULES[finding.rule].way.attends
        steps.append(WayStep("reader", finding.reader, finding.place if read else None))
    return steps


def _hash(script: str) -> str:
    """The hash by which the content security policy allows the script; the page must keep its line ends."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

"""A report as one HTML file that asks nobody for anything: styles, drawings and plots are in it.

Works without scripts; the one script measures the drawing and marks ways through it, and the policy in the file's
head allows that script alone and no network. Does not know: how anything in the report was found.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from agentcho.audit import drawing, wording
from agentcho.audit.measurement import Effect, Measurement
from agentcho.audit.plots import ARMS, effect_plot, pairs
from agentcho.audit.report import AuditReport, Cell, Finding, Verdict
from agentcho.audit.rules import RULES

PAGE = Path(__file__).parent / "page"
LEAVES = ("AC007", "AC008")


class Pair(NamedTuple):
    """What was measured of one reader and one owner: the plot and its numbers."""

    reader: str
    owner: str
    plot: Markup
    effects: Sequence[Effect]


class Grid(NamedTuple):
    """Reader against author: a row a reader, a cell or nothing an author."""

    authors: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]


def html(report: AuditReport) -> str:
    """The report as a page."""
    script = (PAGE / "script.js").read_text(encoding="utf-8")
    page = _environment().get_template("report.html.jinja")
    return page.render(
        report=report, subject=report.subject, headline=wording.headline(report), played=wording.played(report),
        rules=RULES, meaning=wording.MEANING, drawing=drawing.draw(report), box=(drawing.BOX_WIDTH, drawing.BOX_HEIGHT),
        grid=grid(report), findings=[f for f in report.findings if f.rule not in LEAVES],
        notes=[f for f in report.findings if f.rule in LEAVES], verdicts=_verdicts(report),
        pairs=_pairs(report.measurement), arms=ARMS, style=Markup((PAGE / "style.css").read_text(encoding="utf-8")),
        readers={said.id: said.author or "" for said in report.drawn},
        script=Markup(script), script_hash=_hash(script), size=wording.number, many=wording.many,
    )  # fmt: skip


def grid(report: AuditReport) -> Grid:
    """The cells of the report in the order of its readers; authors as the agents stand, others after them."""
    cells = {(cell.reader, cell.author): cell for cell in report.matrix}
    known = [*report.subject.agents, *(cell.author for cell in report.matrix)]
    authors = tuple(author for author in dict.fromkeys(known) if any(a == author for _, a in cells))
    readers = [row.reader for row in report.readers if row.readings]
    return Grid(authors, tuple((r, tuple(cells.get((r, author)) for author in authors)) for r in readers))


def _verdicts(report: AuditReport) -> dict[str, Verdict]:
    return {row.reader: row.verdict for row in report.readers}


def _pairs(measurement: Measurement | None) -> list[Pair]:
    if measurement is None:
        return []
    return [
        Pair(reader, owner, Markup(effect_plot(effects, measurement)), effects)
        for (reader, owner), effects in pairs(measurement).items()
    ]


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(PAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=wording.safe,
    )  # fmt: skip
    environment.filters["shares"] = lambda interval: interval.shown("{:.0%}".format)
    environment.filters["way"] = _way
    return environment


def _way(finding: Finding) -> list[tuple[str, str]]:
    """The way of a finding from the secret to its reader, as (kind of step, name)."""
    steps = [("secret" if number == 0 else "carrier", id) for number, id in enumerate(reversed(finding.path))]
    return [*steps, *([("reader", finding.reader)] if finding.reader else [])]


def _hash(script: str) -> str:
    """The name by which the policy allows the script, whose line ends the page must keep."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

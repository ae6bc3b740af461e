"""A reproduction of the paper as one HTML file without external resources and scripts."""

from __future__ import annotations

from pathlib import Path

from agentcho.audit.formats.html import STYLES, render
from agentcho.lab.paper import wording
from agentcho.lab.paper.found import PaperFound

PAGES = Path(__file__).parent / "page"


def html(found: PaperFound) -> str:
    """All tables as a page."""
    values = {"heading": wording.heading(found), "grids": wording.grids(found), "notes": wording.notes(found)}
    return render(PAGES, "paper.html.jinja", STYLES, found=found, **values)

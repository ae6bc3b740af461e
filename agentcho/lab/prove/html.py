"""A demonstration as one HTML file that asks nobody for anything, without scripts. Each digest is drawn as a strip of
32 colours, one a byte, so that equal ones look equal. Does not know: how anything was played.
"""

from __future__ import annotations

import base64
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from agentcho.audit.wording import many, safe
from agentcho.lab.prove import wording
from agentcho.lab.prove.proof import Proof

PAGES = Path(__file__).parent / "page"
STYLES = Path(__file__).parents[2] / "audit" / "page" / "style.css", PAGES / "strips.css"


def html(proof: Proof) -> str:
    """The demonstration as a page."""
    environment = Environment(
        loader=FileSystemLoader(PAGES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=safe,
    )  # fmt: skip
    environment.filters["strip"] = strip
    style = "".join(path.read_text(encoding="utf-8") for path in STYLES)
    return environment.get_template("prove.html.jinja").render(
        proof=proof, headline=wording.headline(proof), played=wording.played(proof), shown=wording.shown(proof),
        missing=wording.missing(proof), first_tokens=wording.first_tokens(proof), reasons=wording.why_not(proof),
        notes=wording.NOTES, many=many, style=Markup(style),
    )  # fmt: skip


def strip(digest: str) -> Markup:
    """A digest as colours: its bytes as hues, from left to right."""
    raw = bytes.fromhex(digest)
    cells = "".join(
        f'<rect x="{6 * place}" width="6.2" height="16" fill="hsl({360 * byte // 256} 48% {38 + byte % 5 * 7}%)"/>'
        for place, byte in enumerate(raw)
    )
    name = base64.b32encode(raw[:5]).decode()
    return Markup(
        f'<svg class="strip" viewBox="0 0 {6 * len(raw)} 16" preserveAspectRatio="none" role="img" aria-label="{name}">'
        f"{cells}</svg>"
    )

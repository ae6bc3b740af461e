"""A proof as one HTML file without external resources and scripts. Each digest is drawn as a strip of 32 colours, one
per byte, so that equal digests look equal.
"""

from __future__ import annotations

import base64
from pathlib import Path

from markupsafe import Markup

from agentcho.audit.formats.html import STYLES, render
from agentcho.lab.prove import wording
from agentcho.lab.prove.proof import Proof

PAGES = Path(__file__).parent / "page"


def html(proof: Proof) -> str:
    """The proof as a page."""
    values = {
        "proof": proof,
        "headline": wording.headline(proof),
        "played": wording.played(proof),
        "shown": wording.shown(proof),
        "missing": wording.missing(proof),
        "schedule": wording.schedule(proof),
        "first_tokens": wording.first_tokens(proof),
        "reasons": wording.why_not(proof),
        "notes": wording.NOTES,
    }
    return render(PAGES, "prove.html.jinja", [*STYLES, PAGES / "strips.css"], strip=strip, **values)


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

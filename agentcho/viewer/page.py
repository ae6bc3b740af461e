"""Renders a page as one self-contained HTML file, with its styles, scripts and data.

The policy in its head allows only these scripts and styles, and no network; a live page may connect to its own server.
The data are in blocks that no browser executes. Independent of what the data mean.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from agentcho.audit import formats
from agentcho.viewer.page_content import PageContent

PAGE = Path(__file__).parent / "page"
STYLES = ("frame", "figures", "talk", "graph", "timeline", "detail", "usage", "beside")
FIRST = ("dom", "data", "colours", "list", "state", "usage", "figures", "costs", "words", "beside")
SCRIPTS = (*FIRST, "talk", "graph", "timeline", "detail", "frame", "live", "main")
COLOURS = Path(formats.__file__).parent / "page" / "colours.css"
UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff\ufeff]")
"""Characters that could end the enclosing block, or that cannot be written to a file."""


class PageAssets(NamedTuple):
    """The style and script of the page; its policy allows them by hash."""

    style: str
    script: str

    @property
    def hashes(self) -> tuple[str, str]:
        """The hashes of the style and of the script."""
        return _hash(self.style), _hash(self.script)


def page(shown: PageContent) -> str:
    """The whole page, with the data of every game."""
    return _render(shown.head, {"head": shown.heads()} | _data(shown))


def live_page(head: dict[str, Any]) -> str:
    """The page without data: it requests them, next to its own address."""
    return _render(head, {}, live=True)


def block(value: Any) -> str:
    """A value as JSON that is safe between HTML tags and in a file, whatever texts it has."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _data(shown: PageContent) -> dict[str, Any]:
    return {f"talk-{number}": talk.data() for number, talk in enumerate(shown.talks)}


def _render(head: dict[str, Any], data: dict[str, Any], live: bool = False) -> str:
    made = parts()
    blocks = {name: Markup(block(value)) for name, value in data.items()}
    return (
        _templates()
        .get_template("view.html.jinja")
        .render(
            head=head,
            live=live,
            blocks=blocks,
            style=Markup(made.style),
            script=Markup(made.script),
            policy=policy(made, live),
        )
    )


@cache
def _templates() -> Environment:
    loader = FileSystemLoader(PAGE)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def policy(made: PageAssets, live: bool) -> str:
    """The page's content security policy: run its script and style, and connect to its own server if it has one."""
    style, script = made.hashes
    rules = ["default-src 'none'", f"style-src '{style}'", f"script-src '{script}'"]
    rules += ["connect-src 'self'"] if live else []
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


@cache
def parts() -> PageAssets:
    """The style and the script of the page, from all their files."""
    files = COLOURS, *(PAGE / "style" / f"{name}.css" for name in STYLES)
    styles = [file.read_text(encoding="utf-8") for file in files]
    scripts = [(PAGE / "script" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return PageAssets("\n".join(styles), '"use strict";\n(() => {\n' + "\n".join(scripts) + "\n})();")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

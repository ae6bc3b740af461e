"""The table of TextArena's games, from the results of playing them all: `python -m tools.pages.textarena docs/results
docs/how-to/textarena.md` writes the part of that page between its marks. `python -m tests.arena.sweep` plays the
games.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from agentcho.integrations.textarena.names import OPEN_HANDS
from tools.pages.render import arguments

MARKED = re.compile(r"(<!-- games -->\n\n).*?(\n\n<!-- end of games -->)", re.DOTALL)


def games(results: Path) -> str:
    """Both tables, from `textarena.json` in `results`."""
    found = json.loads((results / "textarena.json").read_text())
    of = f"textarena {found['textarena']}, commit {found['commit'][:7]}"
    head = (
        f"All {len(found['played'])} families for several players that run offline, each played at random with the\n"
        f"minimum number of players, for at most {found['most moves']} moves ({of}). *Private* counts\n"
        "messages to a single player, *passed on* words that are sent on to others, *audit* the verdict under enforce:"
    )
    rows = [
        "| | players | moves | ended | private | passed on | audit |",
        "| --- | ---: | ---: | --- | ---: | ---: | --- |",
        *map(_row, found["played"]),
    ]
    refused = [
        f"{len(found['refused'])} are refused by name. When TextArena itself plays them, this is the result:",
        "",
        "| | why | result |",
        "| --- | --- | --- |",
        *(f"| {each['family']} | {each['why']} | {each['seen']} |" for each in found["refused"]),
    ]
    return "\n".join([head, "", *rows, "", *refused])


def _row(found: dict[str, Any]) -> str:
    ended = found["ended"] if not found["invalid"] else f"{found['ended']}, after invalid moves of {found['invalid']}"
    cells = (found["family"], found["players"], found["moves"] or "", ended, found["private"], found["passed on"])
    audit = f"{found['audit']}, and nothing is hidden in it" if found["family"] in OPEN_HANDS else found["audit"]
    return f"| {' | '.join(map(str, cells))} | {audit} |"


def page(results: Path, text: str) -> str:
    """The text of the page with these tables."""
    return MARKED.sub(lambda match: match[1] + games(results) + match[2], text)


if __name__ == "__main__":
    given = arguments("TextArena's games").parse_args()
    given.page.write_text(page(given.results, given.page.read_text()))

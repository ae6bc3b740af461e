"""Pages of small games, and what is in them.

Does not know: browsers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentcho import RunConfig
from agentcho.records.record import Over, RunRecord, SavedRun
from agentcho.records.transcript import Entry
from agentcho.viewer.page import page
from agentcho.viewer.shown import Chosen, shown

BLOCK = re.compile(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', re.DOTALL)


def recorded(folder: Path, entries: Sequence[Entry], over: bool = True, **roles: str) -> SavedRun:
    """A record of one game."""
    config = RunConfig(games=1, leakage="audit", seed=41)
    record = RunRecord.create(folder, "talk", {"plan": "optioncanary"}, config, {"tokenizer": "t"})
    for name, role in roles.items():
        record.joined(name, role)
    for entry in entries:
        record.said(entry)
    if over:
        record.over(Over(0, {"winner": "outcomecanary"}, {"scorecanary": 1.0}, None, 1.0))
        record.close("done")
    return SavedRun(record.path)


def page_of(run: SavedRun, eyes: str | None = None) -> str:
    """Its page."""
    return page(shown([run], Chosen(eyes)))


def blocks(text: str) -> dict[str, Any]:
    """The data of a page, as a browser reads them."""
    return {name: json.loads(data) for name, data in BLOCK.findall(text)}

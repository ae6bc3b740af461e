"""Pages of small games, and their contents."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from agentcho import RunConfig
from agentcho.records.record import GameOver, RunRecord, SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.viewer.page import page
from agentcho.viewer.page_content import PageSelection, page_content

BLOCK = re.compile(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', re.DOTALL)


def recorded(
    folder: Path, entries: Sequence[TranscriptEntry], over: bool = True, raced: bool = False, **roles: str
) -> SavedRun:
    """The record of one game. `over` False: as a killed process leaves it."""
    config = RunConfig(games=1, leakage="audit", seed=41)
    record = RunRecord.create(folder, "talk", {"plan": "optioncanary"}, config, {"tokenizer": "t"})
    for name, role in roles.items():
        record.joined(name, role)
    for entry in entries:
        record.said(entry)
    if over:
        record.over(GameOver(0, {"winner": "outcomecanary"}, {"scorecanary": 1.0}, None, 1.0, raced=raced))
        record.close("done")
    else:
        record._files.close()
        record._writer.close()
    return SavedRun(record.path)


def page_of(run: SavedRun, eyes: str | None = None) -> str:
    """The page of a run."""
    return page(page_content([run], PageSelection(eyes)))


def blocks(text: str) -> dict[str, Any]:
    """The data blocks of a page, decoded as in a browser."""
    return {name: json.loads(data) for name, data in BLOCK.findall(text)}


class Tags(HTMLParser):
    """All tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def policy_of(text: str) -> str:
    """The content security policy of a page."""
    return next(each["content"] for tag, each in Tags(text).tags if each.get("http-equiv")) or ""

"""What was found over all runs of a folder, as a page has it: tables, notes, and what the folders of runs are called.

Does not know: how it was found, HTML.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from agentcho.viewer.compact_lists import Json

UNNAMED: Mapping[Path, str] = MappingProxyType({})


class PageFigures(NamedTuple):
    """What a comparison or a sweep found. `tables` have a title, the heads of their `columns`, and `rows` of as many
    words: columns after the first `words` ones are numbers; a row whose first word is empty belongs to the one above.
    Without tables it is not over yet. `names` says what the folders of its runs are called, in their order."""

    kind: str
    scenario: str
    title: str = ""
    tables: tuple[Json, ...] = ()
    notes: tuple[str, ...] = ()
    names: Mapping[Path, str] = UNNAMED

    def json(self) -> Json | None:
        """As the page reads it; None: there is nothing yet."""
        return {"title": self.title, "tables": self.tables, "notes": self.notes} if self.tables else None

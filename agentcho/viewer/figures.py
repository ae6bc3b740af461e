"""Results over all runs of a folder, in the page's form: tables, notes, and the names of the runs' folders.

Independent of how results were computed, and of HTML.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from agentcho.viewer.compact_lists import Json

UNNAMED: Mapping[Path, str] = MappingProxyType({})


class PageFigures(NamedTuple):
    """The results of a comparison or a sweep. `tables` have a title, the heads of their `columns`, and `rows` of as
    many words: columns after the first `words` ones are numbers; a row whose first word is empty belongs to the one
    above. Without tables it is not finished. `names` has the display names of the folders of its runs, in order."""

    kind: str
    scenario: str
    title: str = ""
    tables: tuple[Json, ...] = ()
    notes: tuple[str, ...] = ()
    names: Mapping[Path, str] = UNNAMED

    def json(self) -> Json | None:
        """The page's form, or None if there are no results yet."""
        return {"title": self.title, "tables": self.tables, "notes": self.notes} if self.tables else None

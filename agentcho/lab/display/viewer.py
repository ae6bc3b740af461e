"""Converts comparisons and sweeps to tables of a page, and names the folders of their games. Independent of HTML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentcho.display.text_table import TextTable
from agentcho.errors import ConfigError
from agentcho.lab.compare.compare import read_comparison
from agentcho.lab.compare.comparison import Comparison, ComparisonRequest
from agentcho.lab.display import compare as compared
from agentcho.lab.display import sweep as swept
from agentcho.lab.sweep.files import read_result
from agentcho.lab.sweep.folder import CELLS, FILE, SweepRequest
from agentcho.lab.sweep.result import SweepResult
from agentcho.records.record import SavedRun, folders
from agentcho.viewer.compact_lists import Json
from agentcho.viewer.figures import UNNAMED, PageFigures
from agentcho.viewer.page_content import EVERYTHING, PageContent, PageSelection, figures_page, page_content

RESULTS = ("compare.json", "sweep.json")


def of_folder(folder: Path) -> PageFigures | None:
    """The content of the folder of a comparison or sweep, finished or not; None: it is neither. `RecordBroken`: its
    result is damaged."""
    for file in (folder / name for name in RESULTS):
        if file.is_file():
            return of_file(file)
    return _begun(folder)


def of_result(file: Path, chosen: PageSelection = EVERYTHING) -> PageContent | None:
    """A result as a page, with its games if they are in its folder; None: the file is not a result. `ConfigError`: a
    game or an agent's view is requested, and the games are elsewhere. `RecordBroken`: it is damaged."""
    figures = of_file(file)
    if figures is None:
        return None
    runs = [SavedRun(path) for folder in figures.names for path in folders(folder)]
    if not runs and chosen != EVERYTHING:
        raise ConfigError(
            f"{file} has figures but no games, and its games are not beside it; give the folder of its games"
        )
    return page_content(runs, chosen, figures=figures) if runs else figures_page(figures)


def of_file(file: Path) -> PageFigures | None:
    """The figures of a comparison or sweep in a file; None: it is neither. `RecordBroken`: it is damaged."""
    told = _format(file)
    if told.startswith("agentcho-comparison/"):
        return _compared(read_comparison(file), file.parent)
    if told.startswith("agentcho-sweep/"):
        return _swept(read_result(file), file.parent)
    return None


def _compared(found: Comparison, folder: Path) -> PageFigures:
    told = compared.heading(found), _tables(compared.sheets(found)), compared.notes(found)
    return PageFigures("comparison", found.request.scenario, *told, _columns(found.request, folder))


def _swept(found: SweepResult, folder: Path) -> PageFigures:
    told = swept.heading(found), _tables(swept.sheets(found)), swept.notes(found)
    begun = _begun(folder)
    return PageFigures("sweep", found.scenario, *told, UNNAMED if begun is None else begun.names)


def _tables(sheets: Iterable[TextTable]) -> tuple[Json, ...]:
    return tuple(sheet._asdict() for sheet in sheets)


def _begun(folder: Path) -> PageFigures | None:
    """What is known before there is a result."""
    file = folder / FILE
    try:
        if _format(file).startswith("agentcho-sweep-request/"):
            asked = SweepRequest.model_validate_json(file.read_bytes())
            return PageFigures("sweep", asked.scenario, names=_cells(asked, folder))
        request = ComparisonRequest.model_validate_json(file.read_bytes())
    except (OSError, ValueError):
        return None
    return PageFigures("comparison", request.scenario, names=_columns(request, folder))


def _columns(asked: ComparisonRequest, folder: Path) -> Mapping[Path, str]:
    return {column.folder(folder).resolve(): column.name for column in asked.columns}


def _cells(asked: SweepRequest, folder: Path) -> Mapping[Path, str]:
    return {(folder / CELLS / key).resolve(): cell.name for key, cell in asked.cells.items()}


def _format(file: Path) -> str:
    """The format that a JSON file declares; empty if none."""
    try:
        whole: Any = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ""
    return str(whole.get("format", "")) if isinstance(whole, dict) else ""

"""Reads rows with their line numbers: from JSON Lines, from a JSON list, or from a Hugging Face dataset.

Independent of what a row means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.errors import TaskError
from agentcho.extras import require

Fields = dict[str, Any]


class RowError(Exception):
    """A row that does not fit its format; the text says why."""


class Row(NamedTuple):
    """One record, and its line in the file, or its place in the list, from 1."""

    place: int
    fields: Fields


def of_file(path: Path) -> list[Row]:
    """The rows of a `.jsonl` file, or of a `.json` file with a list, or with an object that has a list under "Data".

    Raises `TaskError`, which names the file and line at fault; also if the file is empty.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TaskError(str(path), None, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TaskError(str(path), None, f"is not UTF-8 text: byte {error.start}") from None
    rows = list(_listed(path, text) if path.suffix == ".json" else _lines(path, text))
    if not rows:
        raise TaskError(str(path), None, "is empty; give at least one task")
    return rows


def _lines(path: Path, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield Row(number, _fields(path, number, _json(path, number, line)))


def _listed(path: Path, text: str) -> Iterator[Row]:
    found = _json(path, None, text)
    if isinstance(found, dict):
        found = found.get("Data")
    if not isinstance(found, list):
        raise TaskError(str(path), None, "holds neither a list nor an object with a list under 'Data'")
    for number, fields in enumerate(found, 1):
        yield Row(number, _fields(path, number, fields))


def _json(path: Path, line: int | None, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        at = line if line is not None else getattr(error, "lineno", None)
        raise TaskError(str(path), at, f"is not JSON: {getattr(error, 'msg', error)}") from None


def _fields(path: Path, line: int, found: Any) -> Fields:
    if not isinstance(found, dict):
        raise TaskError(
            str(path), line, f"is {type(found).__name__}, not a JSON object; give an object with the task's fields"
        )
    return found


class HubDataset(NamedTuple):
    """A dataset on the Hugging Face hub, or a folder of one: its id, configuration and split."""

    id: str
    config: str | None
    split: str


def of_dataset(source: HubDataset) -> list[Row]:
    """The rows of a dataset, read with the `datasets` library, which runs no code of the dataset's own.

    Raises `ExtraMissing` without that library, and `TaskError` if the dataset is not available.
    """
    require("to read tasks from the Hugging Face hub", "datasets")
    import datasets

    try:
        loaded = datasets.load_dataset(source.id, source.config, split=source.split)
    except Exception as error:  # any error of the network, the hub or the cache
        why = " ".join(str(error).split())[:200]
        raise TaskError(source.id, None, f"cannot be loaded ({type(error).__name__}: {why})") from None
    rows = [Row(number, dict(fields)) for number, fields in enumerate(loaded, 1)]
    if not rows:
        raise TaskError(source.id, None, f"has no rows in its split {source.split!r}; give another split")
    return rows

"""A table of results: typed columns of equal length, for data frames and for people.

It needs no data frame library, and every library that reads Arrow can read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentcho.games.results import arrow
from agentcho.games.results.arrow import Column, Kind
from agentcho.games.results.rendering import html_table, text_table

WHOLE = range(-(1 << 63), 1 << 63)


class Table:
    """A table of results.

    `polars.DataFrame(table)`, `pyarrow.table(table)`, `pandas.DataFrame.from_arrow(table)` and anything else that reads
    the Arrow PyCapsule protocol take it as it is. `rows` and `table["name"]` need no library.

    Args:
        columns: The columns, all of the same length.

    Raises:
        ValueError: The columns have different lengths.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        if len({len(column.values) for column in columns}) > 1:
            raise ValueError("the columns of a table must have the same length")
        self._columns = tuple(columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self._columns)

    def __getitem__(self, name: str) -> list[Any]:
        """Return the values of a column, None for missing ones. Raises `KeyError` if there is no such column."""
        for column in self._columns:
            if column.name == name:
                return [*column.values]
        raise KeyError(f"there is no column {name!r}; the columns are {', '.join(self.columns)}")

    def __len__(self) -> int:
        return len(self._columns[0].values) if self._columns else 0

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per row, by the names of the columns."""
        return [dict(zip(self.columns, row, strict=True)) for row in self._rows()]

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        return zip(*(column.values for column in self._columns), strict=True)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the table as an Arrow stream in its own types. A caller that requests other types casts them."""
        return arrow.stream(self._columns)

    def __arrow_c_schema__(self) -> object:
        """Return the names and types of the columns as an Arrow schema."""
        return arrow.schema(self._columns)

    def __repr__(self) -> str:
        return text_table(self.columns, [*self._rows()])

    def _repr_html_(self) -> str:
        return html_table(self.columns, [*self._rows()])


def column(name: str, values: Sequence[Any], kind: Kind | None = None) -> Column:
    """Return a column of values, of their common kind, or as JSON text if they have none in common."""
    kind = kind or _kind([value for value in values if value is not None])
    return Column(name, kind or "text", [*values] if kind else [None if v is None else as_text(v) for v in values])


def _kind(values: Sequence[Any]) -> Kind | None:
    """Return the common kind of all values, or None if there is none."""
    if all(isinstance(value, bool) for value in values) and values:
        return "flag"
    if all(isinstance(value, str) for value in values):
        return "text"
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return None
    if all(isinstance(value, int) for value in values):
        return "whole" if all(value in WHOLE for value in values) else None
    return "number" if all(_fits(value) for value in values) else None


def _fits(value: float) -> bool:
    try:
        return float(value) == float(value) or value != value
    except OverflowError:
        return False


def number(value: float | None) -> float | None:
    """Return a score as a 64-bit float, infinite if it is out of range."""
    if value is None:
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def as_text(value: Any) -> str:
    """Return a value as JSON, or unchanged if it is text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def spread(prefix: str, found: Sequence[Mapping[str, Any] | None]) -> list[Column]:
    """Return one column per key of the mappings, in order of first occurrence, named `prefix.key`."""
    keys = dict.fromkeys(key for each in found for key in each or {})
    return [column(f"{prefix}.{key}", [(each or {}).get(key) for each in found]) for key in keys]

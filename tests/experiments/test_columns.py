"""How columns are written, and what is no column."""

from __future__ import annotations

import pytest

from agentcho.config import RunConfig
from agentcho.errors import BadColumn
from agentcho.experiments.columns import columns


def test_columns_are_read_and_written_alike() -> None:
    text = "baseline,choreographed:audit,choreographed:enforce,choreographed:audit:in-place,choreographed:deny"
    found = columns(text.replace(",", " , "))
    assert ",".join(column.name for column in found) == text
    assert columns("choreographed")[0].name == "choreographed:audit"
    ways = [column.config(RunConfig(games=3, deterministic=True)).way for column in found]
    assert [(way.mode, way.leakage, way.in_place) for way in ways] == [
        ("baseline", "audit", False), ("choreographed", "audit", False), ("choreographed", "enforce", False),
        ("choreographed", "audit", True), ("choreographed", "deny", False),
    ]  # fmt: skip
    assert all(way.deterministic for way in ways)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "'' is no mode; there are baseline and choreographed"),
        ("baseline,", "column '': '' is no mode"),
        ("fast", "'fast' is no mode"),
        ("choreographed:leaky", "'leaky' is none of audit, enforce, deny, in-place"),
        ("choreographed:audit:enforce", "says one thing twice"),
        ("baseline:audit", "baseline stands alone"),
        ("baseline,choreographed,choreographed:audit", "'choreographed:audit': stands twice"),
        ("baseline,choreographed:audit@tuned", "names an adapter, which this version cannot load"),
    ],
)
def test_what_is_no_column_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadColumn, match=told):
        columns(text)

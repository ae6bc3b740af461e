"""Tables through the Arrow PyCapsule protocol, read by polars, pyarrow and pandas."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import tracemalloc
from typing import Any

import pandas
import polars
import pyarrow
import pytest

from agentcho.games.results import arrow
from agentcho.games.results.arrow import Column
from agentcho.games.results.table import Table, column

ODD = ["plain", None, "", "naïve 😀 漢字", "\0 and \u202e", "half \ud83d a pair", "\ud83d\ude00"]
WRITTEN = [*ODD[:5], "half \ufffd a pair", "😀"]
COLUMNS = (
    Column("n", "whole", [1, None, -(1 << 63), (1 << 63) - 1, 0, 7, 8]),
    Column("x", "number", [1.5, None, 2, float("inf"), -0.0, 1e300, 3]),
    Column("b", "flag", [True, None, False, True, True, False, None]),
    Column("t", "text", ODD),
    Column("l", "texts", [["a", "ü"], None, [], [""], ["x"] * 3, [], ["everyone"]]),
)
LISTS = "large_list<item: large_string>"
EMPTY = tuple(each._replace(values=[]) for each in COLUMNS)
NOTHING = tuple(each._replace(values=[None, None, None]) for each in COLUMNS)


def as_polars(table: Table) -> dict[str, list[Any]]:
    return polars.DataFrame(table).to_dict(as_series=False)


def as_pyarrow(table: Table) -> dict[str, list[Any]]:
    found = pyarrow.table(table)
    found.validate(full=True)
    values: dict[str, list[Any]] = found.to_pydict()
    return values


@pytest.mark.parametrize("read", [as_polars, as_pyarrow])
def test_a_data_frame_has_every_value(read: Any) -> None:
    found = read(Table(COLUMNS))
    assert found == {each.name: WRITTEN if each.name == "t" else [*each.values] for each in COLUMNS}


@pytest.mark.parametrize("columns", [COLUMNS, EMPTY, NOTHING])
def test_types_do_not_depend_on_the_values(columns: tuple[Column, ...]) -> None:
    table = Table(columns)
    found = pyarrow.table(table)
    found.validate(full=True)
    assert [*map(str, found.schema.types)] == ["int64", "double", "bool", "large_string", LISTS]
    assert found.num_rows == len(table)
    assert pyarrow.schema(table) == found.schema
    kinds = [polars.Int64, polars.Float64, polars.Boolean, polars.String, polars.List(polars.String)]
    assert polars.DataFrame(table).dtypes == kinds


def test_pandas_reads_it() -> None:
    found = pandas.DataFrame.from_arrow(Table(COLUMNS))
    assert found.shape == (7, 5)
    assert found["t"].dropna().tolist() == [text for text in WRITTEN if text is not None]
    assert pandas.isna(found["x"][1])
    assert len(pandas.DataFrame.from_arrow(Table(EMPTY))) == 0


def test_what_was_read_outlives_the_table_and_is_given_up_once() -> None:
    table = Table(COLUMNS)
    found, again = pyarrow.table(table), polars.DataFrame(table)
    part = found.column("l").combine_chunks().flatten()
    del table, found
    gc.collect()
    assert part.to_pylist() == ["a", "ü", "", "x", "x", "x", "everyone"]
    assert again["t"].to_list() == WRITTEN


def test_memory_is_given_up_when_its_reader_is_gone() -> None:
    table = Table([column("t", ["x" * 1000] * 1000), column("l", [["y" * 1000]] * 1000, "texts")])
    tracemalloc.start()
    try:
        for _ in range(3):
            found = pyarrow.table(table)
            assert tracemalloc.get_traced_memory()[0] > 2_000_000
            part = found.column("t").chunk(0)
            del found
            assert tracemalloc.get_traced_memory()[0] > 1_000_000
            del part
            assert tracemalloc.get_traced_memory()[0] < 100_000
        unread = table.__arrow_c_stream__()
        reader = pyarrow.RecordBatchReader.from_stream(table)
        del unread, reader
        table.__arrow_c_schema__()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def test_a_struct_that_is_released_twice_is_left_alone() -> None:
    made = arrow._struct(COLUMNS)
    arrow._release_now(made)
    assert not made.release
    arrow._release_now(made)
    arrow._RELEASE_ARRAY(ctypes.addressof(made))


def test_a_stream_ends_after_its_batch_and_a_second_one_begins_anew() -> None:
    table = Table(COLUMNS)
    reader = pyarrow.RecordBatchReader.from_stream(table)
    assert [batch.num_rows for batch in reader] == [7]
    assert [batch.num_rows for batch in pyarrow.RecordBatchReader.from_stream(table)] == [7]
    assert [batch.num_rows for batch in pyarrow.RecordBatchReader.from_stream(Table(EMPTY))] == []


def test_the_error_of_whoever_does_not_read_it_is_not_lost() -> None:
    with pytest.raises(TypeError, match="PyCapsule"):
        int.from_bytes(Table(COLUMNS).__arrow_c_stream__())  # type: ignore[arg-type]


def test_threads_read_and_give_up_side_by_side() -> None:
    table, found = Table(COLUMNS), list[int]()

    def read() -> None:
        for _ in range(20):
            found.append(pyarrow.table(table).num_rows + polars.DataFrame(table).height)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [14] * 80
    assert len(arrow.KEPT) <= 5


@pytest.mark.slow
def test_a_process_ends_well_with_tables_in_every_hand() -> None:
    code = (
        "import polars, pyarrow; from agentcho.games.results.table import Table, column;"
        "t = Table([column('a', ['x', None]), column('n', [1, 2])]);"
        "kept = polars.DataFrame(t), pyarrow.table(t), t.__arrow_c_stream__(), t.__arrow_c_schema__();"
        "loop = [kept]; loop.append(loop)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_columns_find_the_kind_that_their_values_have() -> None:
    kinds = {
        "whole": [1, None, 2],
        "number": [1, 2.5],
        "flag": [True, None],
        "text": ["a", None],
    }
    for kind, values in kinds.items():
        assert column("c", values) == Column("c", kind, values)  # type: ignore[arg-type]
    assert column("c", [True, 1]) == Column("c", "text", ["true", "1"])
    assert column("c", [{"a": "é"}, None, "b"]) == Column("c", "text", ['{"a": "é"}', None, "b"])
    assert column("c", [1 << 63, 1]).kind == "text"
    assert column("c", [10**400, 0.5]).kind == "text"
    assert column("c", []).kind == "text"
    assert column("c", [float("nan"), 1]).kind == "number"


def test_columns_are_equally_long() -> None:
    with pytest.raises(ValueError, match="the same length"):
        Table([column("a", [1]), column("b", [1, 2])])


def test_a_table_can_be_read_without_any_library() -> None:
    table = Table([column("a", ["x", None]), column("n", [1, 2])])
    assert table.rows() == [{"a": "x", "n": 1}, {"a": None, "n": 2}]
    assert (len(table), table.columns, table["n"]) == (2, ("a", "n"), [1, 2])
    with pytest.raises(KeyError, match="the columns are a, n"):
        table["b"]
    assert repr(table) == "a  n\nx  1\n   2\n2 rows"

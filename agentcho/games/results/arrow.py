"""Tables through the C interface of Apache Arrow, as capsules that polars, pyarrow, pandas and others read.

No library is needed here. See https://arrow.apache.org/docs/format/CDataInterface.html.

A reader moves the structs of a table out and calls the `release` of each moved struct once, in any thread and possibly
long after the table is gone. Each struct therefore has its own reference to all memory behind it, and drops it in
`release`. A second release does nothing, because `release` is empty by then.

Capsules have no destructor, because a Python one would lose the error that is being raised when a reader fails.
Instead, `KEPT` holds each capsule, with the struct that it points to, until nothing else refers to the capsule.

Independent of games and messages.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from ctypes import POINTER, c_char, c_char_p, c_int, c_int64, c_void_p, py_object, pythonapi
from itertools import accumulate
from typing import Any, Literal, NamedTuple

Kind = Literal["whole", "number", "flag", "text", "texts"]
"""The type of a column: int64, float64, boolean, UTF-8, list of UTF-8. Each value may be missing."""
FORMATS: dict[Kind, bytes] = {"whole": b"l", "number": b"g", "flag": b"b", "text": b"U", "texts": b"+L"}
NULLABLE, ROOM = 2, bytes(8)
"""The flag of a nullable field, and the padding after every buffer, so that none is empty."""


class Column(NamedTuple):
    """A column of a table: its name, the kind of its values, and the values, None for missing ones."""

    name: str
    kind: Kind
    values: Sequence[Any]


class Schema(ctypes.Structure):
    """`struct ArrowSchema`."""


class Array(ctypes.Structure):
    """`struct ArrowArray`."""


class Stream(ctypes.Structure):
    """`struct ArrowArrayStream`."""


RELEASE = ctypes.CFUNCTYPE(None, c_void_p)
GIVE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
TELL = ctypes.CFUNCTYPE(c_void_p, c_void_p)
Schema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_void_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(Schema))),
    ("dictionary", c_void_p),
    ("release", c_void_p),
    ("private_data", c_void_p),
]
Array._fields_ = [
    ("length", c_int64),
    ("null_count", c_int64),
    ("offset", c_int64),
    ("n_buffers", c_int64),
    ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(Array))),
    ("dictionary", c_void_p),
    ("release", c_void_p),
    ("private_data", c_void_p),
]
Stream._fields_ = [
    ("get_schema", c_void_p),
    ("get_next", c_void_p),
    ("get_last_error", c_void_p),
    ("release", c_void_p),
    ("private_data", c_void_p),
]
new_capsule = pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
STREAM, SCHEMA = b"arrow_array_stream", b"arrow_schema"
KEPT: list[tuple[object, ctypes.Structure]] = []
KEPT_LOCK = threading.Lock()


def stream(columns: Sequence[Column]) -> object:
    """Return a capsule named "arrow_array_stream": the columns as one batch, or no batch for an empty table.

    Raises `OverflowError` if a whole number needs more than 64 bits.
    """
    made = _struct(columns)
    given = Stream(*map(_address, (_GET_SCHEMA, _GET_NEXT, _LAST_ERROR)))
    _own(given, _Batches(columns, made), _RELEASE_STREAM)
    return _capsule(given, STREAM)


def schema(columns: Sequence[Column]) -> object:
    """Return a capsule named "arrow_schema": the names and types of the columns."""
    return _capsule(_table_schema(columns), SCHEMA)


class _Batches:
    """The batches that a stream has not yet returned."""

    def __init__(self, columns: Sequence[Column], made: Array) -> None:
        self.columns, self.left = columns, [made] if made.length else []

    def __del__(self) -> None:
        for made in self.left:
            _release_now(made)


# -- ownership: a struct holds one reference to an object, which holds all memory that the struct points to --------


def _own(struct: Any, owner: object, release: Any) -> None:
    pythonapi.Py_IncRef(py_object(owner))
    struct.private_data, struct.release = id(owner), _address(release)


def _released(kind: type[ctypes.Structure]) -> Callable[[int], None]:
    """Return the `release` of a kind of struct. Names of this module may be gone when it is called."""
    struct_of = kind.from_address
    cast = ctypes.cast
    drop = pythonapi.Py_DecRef
    release_child = RELEASE

    def release(address: int, object_=py_object) -> None:  # type: ignore[no-untyped-def]
        struct: Any = struct_of(address)
        if not struct.release:
            return
        struct.release = None
        for place in range(getattr(struct, "n_children", 0)):
            child = struct.children[place]
            if child.contents.release:
                release_child(child.contents.release)(cast(child, c_void_p).value)
        drop(cast(struct.private_data, object_))

    return release


def _release_now(struct: Any) -> None:
    if struct.release:
        RELEASE(struct.release)(ctypes.addressof(struct))


def _move(struct: Any, to: int) -> None:
    """Move a struct: copy its bytes to `to`, and mark the original as released."""
    ctypes.memmove(to, ctypes.addressof(struct), ctypes.sizeof(struct))
    struct.release = None


def _get_schema(stream: int, out: int) -> int:
    batches = ctypes.cast(Stream.from_address(stream).private_data, py_object).value
    _move(_table_schema(batches.columns), out)
    return 0


def _get_next(stream: int, out: int) -> int:
    batches = ctypes.cast(Stream.from_address(stream).private_data, py_object).value
    if batches.left:
        _move(batches.left.pop(), out)
    else:
        Array.from_address(out).release = None
    return 0


def _for_ever(callback: Any) -> Any:
    """Return a function that C may call for as long as the process lives."""
    pythonapi.Py_IncRef(py_object(callback))
    return callback


def _address(function: Any) -> int | None:
    return ctypes.cast(function, c_void_p).value


_RELEASE_SCHEMA = _for_ever(RELEASE(_released(Schema)))
_RELEASE_ARRAY = _for_ever(RELEASE(_released(Array)))
_RELEASE_STREAM = _for_ever(RELEASE(_released(Stream)))
_GET_SCHEMA, _GET_NEXT = _for_ever(GIVE(_get_schema)), _for_ever(GIVE(_get_next))
_LAST_ERROR = _for_ever(TELL(lambda stream: None))


def _capsule(struct: Any, name: bytes) -> object:
    capsule: object = new_capsule(ctypes.addressof(struct), name, None)
    with KEPT_LOCK:
        for place in range(len(KEPT) - 1, -1, -1):
            if sys.getrefcount(KEPT[place][0]) <= 2:  # those of the list and of this call
                _release_now(KEPT.pop(place)[1])
        KEPT.append((capsule, struct))
    return capsule


# -- contents of the structs -----------------------------------------------------------------------------------------


def _table_schema(columns: Sequence[Column]) -> Schema:
    return _field(b"+s", b"", 0, [_column_schema(column) for column in columns])


def _column_schema(column: Column) -> Schema:
    parts = [_field(FORMATS["text"], b"item", NULLABLE, [])] if column.kind == "texts" else []
    return _field(FORMATS[column.kind], encoded(column.name).replace(b"\0", b"?"), NULLABLE, parts)


def _field(form: bytes, name: bytes, flags: int, parts: Sequence[Schema]) -> Schema:
    children = _pointers(Schema, parts)
    made = Schema(form, name, None, flags, len(parts), children)
    _own(made, (form, name, children, tuple(parts)), _RELEASE_SCHEMA)
    return made


def _struct(columns: Sequence[Column]) -> Array:
    rows = len(columns[0].values) if columns else 0
    return _array(rows, 0, [None], [_column(column) for column in columns])


def _column(column: Column) -> Array:
    values, valid = column.values, _bits([value is not None for value in column.values])
    missing = sum(value is None for value in values)
    first = valid if missing else None
    match column.kind:
        case "flag":
            return _array(len(values), missing, [first, _bits(values)], [])
        case "whole":
            return _array(len(values), missing, [first, array("q", [value or 0 for value in values])], [])
        case "number":
            return _array(len(values), missing, [first, array("d", [value or 0.0 for value in values])], [])
        case "text":
            return _texts(values, missing, first)
        case "texts":
            inner = [text for value in values if value is not None for text in value]
            lengths = (0 if value is None else len(value) for value in values)
            return _array(len(values), missing, [first, _offsets(lengths)], [_texts(inner, 0, None)])


def _texts(values: Sequence[str | None], missing: int, first: bytes | None) -> Array:
    written = [b"" if value is None else encoded(value) for value in values]
    return _array(len(values), missing, [first, _offsets(map(len, written)), b"".join(written)], [])


def encoded(text: str) -> bytes:
    """Return a text in UTF-8, with U+FFFD for each lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _offsets(lengths: Iterable[int]) -> array[int]:
    return array("q", accumulate(lengths, initial=0))


def _bits(values: Sequence[Any]) -> bytes:
    """Return one bit per value, the first in the lowest bit of the first byte."""
    found = bytearray((len(values) + 7) // 8)
    for place, value in enumerate(values):
        if value:
            found[place >> 3] |= 1 << (place & 7)
    return bytes(found)


def _array(length: int, missing: int, buffers: Sequence[bytes | array[Any] | None], parts: Sequence[Array]) -> Array:
    memory = [None if each is None else bytearray(each) + ROOM for each in buffers]
    places = [None if each is None else ctypes.addressof(c_char.from_buffer(each)) for each in memory]
    pointers, children = (c_void_p * len(places))(*places), _pointers(Array, parts)
    made = Array(length, missing, 0, len(places), len(parts), pointers, children)
    _own(made, (memory, pointers, children, tuple(parts)), _RELEASE_ARRAY)
    return made


def _pointers(kind: Any, parts: Sequence[Any]) -> Any:
    return (POINTER(kind) * len(parts))(*map(ctypes.pointer, parts)) if parts else None

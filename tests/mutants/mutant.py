"""The definition of a mutant: one plausible mistake, as an exact replacement in one source file."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """`old` occurs exactly once in `file`; `new` takes its place. One of `killed_by` must then fail."""

    name: str
    why: str
    file: str
    old: str
    new: str
    killed_by: tuple[str, ...]

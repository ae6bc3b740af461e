"""What a mutant is: one plausible mistake, as an exact replacement in one source file.

Does not know: which there are, how one is applied and run.
"""

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

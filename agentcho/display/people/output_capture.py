"""Captures what code prints while people play, and prints it when their games are over.

A scenario may print text that not everybody may read.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MOST = 1 << 20
"""The maximum number of letters that are kept; the rest is dropped."""


class _Kept(io.StringIO):
    """Keeps printed text, up to `MOST` letters."""

    def write(self, text: str) -> int:
        super().write(text[: max(0, MOST - self.tell())])
        return len(text)


@contextmanager
def captured_output(may_show: Callable[[], bool]) -> Iterator[None]:
    """A context in which nothing reaches standard output or standard error by `print`, warnings or tracebacks. The
    captured text is printed at the end if it may be shown then, and otherwise dropped."""
    before, kept = (sys.stdout, sys.stderr), (_Kept(), _Kept())
    sys.stdout, sys.stderr = kept
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream, said in zip(before, kept, strict=True):
            if (words := said.getvalue()) and may_show():
                stream.write(words)

"""What code prints while people play: kept from them, and printed when their games are over.

A scenario may print what not everybody may read. Does not know: who prints, terminals.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MOST = 1 << 20
"""Letters that are kept; what is more is dropped."""


class _Kept(io.StringIO):
    """Takes what is printed, up to `MOST` letters."""

    def write(self, text: str) -> int:
        super().write(text[: max(0, MOST - self.tell())])
        return len(text)


@contextmanager
def captured_output(may_show: Callable[[], bool]) -> Iterator[None]:
    """A context in which nothing reaches standard output or standard error by `print`, warnings or tracebacks. At the
    end it is printed, if it may be shown then, and else dropped."""
    before, kept = (sys.stdout, sys.stderr), (_Kept(), _Kept())
    sys.stdout, sys.stderr = kept
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream, said in zip(before, kept, strict=True):
            if (words := said.getvalue()) and may_show():
                stream.write(words)

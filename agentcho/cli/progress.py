"""What is going on, on a terminal alone, as a bar in one line over the line before. Does not know: what it is."""

from __future__ import annotations

import sys

from agentcho.display.safe import visible

WIDTH, BAR = 79, 20


def tell(what: str, done: int, of: int) -> None:
    """Say how many are done, of how many; the last one leaves nothing behind."""
    if sys.stderr.isatty():
        full = BAR * done // max(1, of)
        told = f"{'━' * full}{'╌' * (BAR - full)} {done} of {of} · {visible(what)}" if what else ""
        gone = ("\r" + " " * WIDTH + "\r") * (done >= of)
        print(f"\r{told[:WIDTH]:<{WIDTH}}{gone}", end="", file=sys.stderr, flush=True)

"""What is going on, on a terminal alone, in one line over the line before. Does not know: what it is."""

from __future__ import annotations

import sys

from agentcho.display.safe import visible


def tell(what: str, done: int, of: int) -> None:
    """Say how many are done, of how many; the last one leaves nothing behind."""
    if sys.stderr.isatty():
        told = f"{visible(what)} {done} of {of}" if what else ""
        print(f"\r{told:<60}" + ("\r" + " " * 60 + "\r") * (done >= of), end="", file=sys.stderr, flush=True)

"""Writes the kept files: `python -m tests.golden.make [PART...] [--changed WHY]`.

Existing files stay unless `--changed` says why they may change; the folder's README keeps the reason. Otherwise
differences are shown and nothing is written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from . import plays
from .files import HERE, difference, names, read, write
from .fixed import fixed
from .names import public, stored
from .options import options
from .reuse import keys

Made = Mapping[str, list[str]]


def _understudy() -> Made:
    from .understudy import agreed

    return agreed()


PARTS: dict[str, Callable[[], Made]] = {
    "fixed": lambda: {"fixed": fixed()},
    "transcripts": lambda: {name: plays.on_fake(name).transcript for name in plays.GAMES},
    "calls": lambda: {name: plays.on_fake(name).calls for name in plays.GAMES},
    "understudy": _understudy,
    "reuse": lambda: {"reuse": keys()},
    "names": lambda: {"public": public(), "stored": stored()},
    "options": lambda: {"options": options()},
}


def keep(folder: Path, part: str, now: Made, changed: str | None) -> bool:
    """Write a part if it differs and may be changed. False: it may not."""
    kept = names(folder, part)
    differing = {
        name: found
        for name in sorted(kept | now.keys())
        if (found := difference(read(folder, part, name), now.get(name, []))) or name not in kept
    }
    if not differing:
        print(f"{part}: as kept")
        return True
    if kept and not changed:
        for name, found in differing.items():
            print(f"{part} of {name}:\n{found}")
        print(f"{part}: nothing written; where this was meant, say --changed WHY", file=sys.stderr)
        return False
    write(folder, part, now, changed or "made for the first time")
    print(f"{part}: written, of {', '.join(differing)}")
    return True


def main(args: list[str] | None = None, folder: Path = HERE) -> int:
    """Exit code 0: all requested parts are kept now; 1: something differs and was left unchanged."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make", description="Writes what is kept.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--changed", metavar="WHY", help="why what is kept may be overwritten")
    asked = parser.parse_args(args)
    if unknown := sorted(set(asked.parts) - PARTS.keys()):
        parser.error(f"no part is called {', '.join(unknown)}; they are {', '.join(PARTS)}")
    if asked.changed is not None and not asked.changed.strip():
        parser.error("--changed needs a reason")
    kept = [keep(folder, part, PARTS[part](), asked.changed) for part in asked.parts or PARTS]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())

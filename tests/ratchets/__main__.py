"""`python -m tests.ratchets` prints the figures, and then every file and function that a step and a `say` go through.

With `--figures` it prints the figures alone, of what is gone through those that are committed, which a test holds to be
so; with `--lower` it commits those that have gone down.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from tests.test_layout import LAYERS, ROOT

from . import FILE, committed, lowered, source, write

if TYPE_CHECKING:
    from .flows import Flows


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(prog="python -m tests.ratchets", description="Numbers that may only go down.")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--figures", action="store_true", help="what is gone through as committed, without a look")
    only.add_argument("--lower", action="store_true", help="commit what has gone down")
    asked = parser.parse_args()
    counted = source.counts(ROOT, LAYERS)
    if asked.figures:
        print("\n".join(_table(committed() | counted)))
        return
    from . import flows

    if flows.INLINED:
        parser.error("frames of comprehensions are seen up to Python 3.11 alone: run it there")
    with flows.tiny() as engine:
        found = flows.measured(engine)
    counted |= flows.counts(found)
    if asked.lower:
        write(lowered(counted, committed()))
        print(f"{FILE.relative_to(ROOT)} is up to date")
        return
    print("\n".join([*_table(counted), *_gone_through(found)]))


def _gone_through(found: Flows) -> Iterator[str]:
    for name, flow in found.named().items():
        yield f"\n{name}"
        for file, functions in groupby(flow, key=lambda function: function.file):
            yield f"  {file}"
            yield from (f"    {function.line:4} {function.name}" for function in functions)


def _table(figures: Mapping[str, int]) -> Iterator[str]:
    width = max(map(len, figures))
    for name, number in figures.items():
        yield f"{name:<{width}}  {number:6,}"


if __name__ == "__main__":
    main()

"""`python -m tests.ratchets` prints the figures, then every file and function that a decode step and a `say` run
through.

`--figures` prints only the figures, with the committed ones for these flows (a test keeps them current); `--lower`
commits those that have gone down. `--graph` draws the imports, `--places` lists what is counted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from tests.test_layout import LAYERS, ROOT

from . import FILE, LIMITS, committed, graph, lowered, named, packing, size, source, write

if TYPE_CHECKING:
    from .flows import Flows


AIMS: Mapping[str, int] = {
    "root files": 10,
    "folders at the top": 18,
    "decode step: files": 10,
    "say to its first token: files": 30,
    "files that name an attention backend (flex)": 2,
    "files that name a leakage rule (AC019)": 2,
    "files that name a field of chat completions (min_p)": 3,
    "files that name a reuse method (KVCOMM)": 2,
    "files that name a run-wide option (kv_dtype)": 3,
}
"""The targets of some of the figures."""


def main() -> None:
    """Parse the command line and print what it asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.ratchets", description="Numbers that may only go down.")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--figures", action="store_true", help="what is gone through as committed, without a look")
    only.add_argument("--lower", action="store_true", help="commit what has gone down")
    only.add_argument(
        "--graph", action="store_true", help="draw which folder imports which, and fail where one may not"
    )
    only.add_argument("--places", action="store_true", help="list the places and files that are counted")
    asked = parser.parse_args()
    if asked.graph:
        sys.exit(_drawn())
    if asked.places:
        print("\n".join(_places()))
        return
    counted, limited = source.counts(ROOT, LAYERS), size.limited(ROOT)
    if asked.figures:
        print("\n".join(_table(committed() | counted | limited | size.shown(ROOT))))
        return
    from . import flows

    if flows.INLINED:
        parser.error("frames of comprehensions are seen up to Python 3.11 alone: run it there")
    with flows.tiny() as engine:
        found = flows.measured(engine)
    counted |= flows.counts(found)
    if asked.lower:
        write(lowered(counted, committed()))
        write(lowered(limited, committed(LIMITS)), LIMITS)
        print(f"{FILE.relative_to(ROOT)} and {LIMITS.relative_to(ROOT)} are up to date")
        return
    print("\n".join([*_table(counted | limited | size.shown(ROOT)), *_gone_through(found)]))


def _drawn() -> int:
    """Print the packages and their imports as a Graphviz drawing; imports only for types are dashed, forbidden ones
    red. Cycles and upward imports are listed on standard error; returns 1 if there are any."""
    arrows = graph.arrows(graph.modules(ROOT, "agentcho"))
    wrong = graph.upward(arrows, LAYERS)
    print("\n".join(graph.drawn(arrows, wrong, LAYERS)))
    for arrow in wrong:
        print(f"does not run down: {arrow}", file=sys.stderr)
    for circle in (circles := graph.circles(arrows)):
        print(f"circle: {', '.join(circle)}", file=sys.stderr)
    print(f"{len(arrows)} imports, {len(circles)} circles, {len(wrong)} that do not run down", file=sys.stderr)
    return int(bool(circles or wrong))


def _places() -> Iterator[str]:
    sources = size.read(ROOT)
    for what, names in size.EXAMPLES.items():
        yield f"\nfiles that name {what}"
        yield from (f"  {file}" for file in size.touched(sources, names))
    files = graph.modules(ROOT, "agentcho")
    yield "\ntypes that another of their folder is called like"
    yield from (f"  {each}" for each in graph.twice(files))
    yield "\nmodules that library calls reach and that import typer"
    yield from (f"  {each}" for each in size.of_the_command_line(files))
    yield "\noptions of a run and the files that declare them"
    yield from (f"  {name}: {', '.join(named.declaring(sources, name))}" for name in size.OPTIONS)
    yield "\nways of reuse and the files that name them"
    yield from (f"  {name}: {', '.join(size.touched(sources, (name,)))}" for name in size.METHODS)
    for kind, found in packing.places(sources).items():
        yield f"\n{kind}"
        yield from (f"  {each.file}:{each.line}  {each.what}" for each in found)


def _gone_through(found: Flows) -> Iterator[str]:
    for name, flow in found.named().items():
        yield f"\n{name}"
        for file, functions in groupby(flow, key=lambda function: function.file):
            yield f"  {file}"
            yield from (f"    {function.line:4} {function.name}" for function in functions)


def _table(figures: Mapping[str, int]) -> Iterator[str]:
    width = max(map(len, figures))
    for name, number in figures.items():
        aim = f"  (aim: {AIMS[name]})" if name in AIMS else ""
        yield f"{name:<{width}}  {number:6,}{aim}"


if __name__ == "__main__":
    main()

"""The page on the paper's tables, from result files: `python -m tools.pages.paper docs/results docs/paper.md`.

Does not know: how a table was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from agentcho.lab.paper.aligned import aligned
from agentcho.lab.paper.effects import effects
from agentcho.lab.paper.found import PaperFound
from agentcho.lab.paper.wording import BACK, EFFECTS, Grid, grids, heading, sampled, summary
from tools.pages.render import render, write

MAIN = "paper.json"


class Part(NamedTuple):
    """What the page shows of one file. `suffix` is behind the titles of its tables, `anchor` leads to its effects."""

    file: str
    found: PaperFound
    grids: tuple[Grid, ...]
    heading: str
    sampled: str
    summary: str
    suffix: str
    anchor: str
    hours: float


def page(results: Path) -> str:
    """The text of the page, from `paper.json` and the files `paper-*.json` in `results`."""
    files = [results / MAIN, *sorted(results.glob("paper-*.json"))]
    return text({file.name: PaperFound.model_validate_json(file.read_bytes()) for file in files})


def text(found: dict[str, PaperFound]) -> str:
    """The text of the page from the content of these files, by their names."""
    parts = [_part(name, each) for name, each in found.items()]
    back = [line for part in parts for line in _back(part)]
    return re.sub(r"\n{3,}", "\n\n", render("paper", parts=parts, back=back)).rstrip() + "\n"


def _part(file: str, found: PaperFound) -> Part:
    *shown, _ = grids(found)
    suffix = "" if file == MAIN else f", {found.games} games a row"
    return Part(
        file=file,
        found=found,
        grids=tuple(shown),
        heading=heading(found),
        sampled=sampled(found),
        summary=summary(effects(aligned(found))),
        suffix=suffix,
        anchor=re.sub(r"[^a-z0-9 -]", "", f"{EFFECTS}{suffix}".lower()).replace(" ", "-"),
        hours=sum(phase.seconds for phase in found.phases) / 3600,
    )


def _back(part: Part) -> Iterator[str]:
    """What tuning brings back, a sentence a row; Table 6 has the games of Table 4, and is not said twice."""
    shown: Sequence[Grid] = [grid for grid in part.grids if grid.title.endswith(BACK)]
    for grid in (each for each in shown if not each.title.startswith("Table 6")):
        for label, score, baseline, reused, tuned, share in grid.rows:
            told = f"{share} of what was lost" if share.endswith("%") else share
            yield (
                f"{grid.title.removesuffix(BACK)}{part.suffix}, {label}: {score} {baseline} in the baseline, {reused} "
                f"reused, {tuned} tuned ({told})"
            )


if __name__ == "__main__":
    write(page, "the paper's tables")

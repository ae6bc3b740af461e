"""The page on the paper's tables, from a result file: `python -m tools.pages.paper docs/results docs/paper.md`.

Does not know: how a table was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentcho.lab.paper.found import PaperFound
from agentcho.lab.paper.wording import BACK, Grid, grids, heading
from tools.pages.render import render, write


def page(results: Path) -> str:
    """The text of the page, from the file `paper.json` in `results`."""
    return text(PaperFound.model_validate_json((results / "paper.json").read_bytes()))


def text(found: PaperFound) -> str:
    """The text of the page from the content of that file."""
    *shown, _ = grids(found)
    hours = sum(phase.seconds for phase in found.phases) / 3600
    values = {"grids": shown, "heading": heading(found), "hours": hours, "back": list(_back(shown))}
    return re.sub(r"\n{3,}", "\n\n", render("paper", found=found, **values))


def _back(shown: Sequence[Grid]) -> Iterator[str]:
    """What tuning brings back, a sentence a row."""
    for grid in (each for each in shown if each.title.endswith(BACK)):
        for label, score, baseline, reused, tuned, share in grid.rows:
            told = f"{share} of what was lost" if share.endswith("%") else share
            yield (
                f"{grid.title.removesuffix(BACK)}, {label}: {score} {baseline} in the baseline, {reused} reused, "
                f"{tuned} tuned ({told})"
            )


if __name__ == "__main__":
    write(page, "the paper's tables")

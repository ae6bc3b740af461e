"""The page on the paper's tables, from result files: `python -m tools.pages.paper docs/results docs/paper.md`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from agentcho.lab.paper.aligned import aligned
from agentcho.lab.paper.effects import Effect, effects
from agentcho.lab.paper.found import PaperFound
from agentcho.lab.paper.wording import BACK, EFFECTS, Grid, grids, heading, sampled, summary
from agentcho.lab.plots import COLOURS, save
from tools.pages.render import arguments, render, rewrite

MAIN = "paper.json"
PICTURES = "paper"
"""The folder next to the page with a plot of the effects of each file."""


class Part(NamedTuple):
    """What the page shows of one file. `suffix` is appended to the titles of its tables, `anchor` links to its
    effects."""

    file: str
    found: PaperFound
    grids: tuple[Grid, ...]
    heading: str
    sampled: str
    summary: str
    suffix: str
    anchor: str
    hours: float
    drawn: bool

    @property
    def picture(self) -> str:
        """The path of the plot of its effects, relative to the page."""
        return f"{PICTURES}/{Path(self.file).with_suffix('.png').name}"


def page(results: Path) -> str:
    """The text of the page, from `paper.json` and the files `paper-*.json` in `results`."""
    return text(_read(results))


def _read(results: Path) -> dict[str, PaperFound]:
    files = [results / MAIN, *sorted(results.glob("paper-*.json"))]
    return {file.name: PaperFound.model_validate_json(file.read_bytes()) for file in files}


def draw(results: Path, folder: Path) -> None:
    """Plot the effects of each file."""
    folder.mkdir(exist_ok=True)
    for file, found in _read(results).items():
        if told := differences(effects(aligned(found))):
            plot_effects(told, folder / Path(file).with_suffix(".png").name)


def differences(told: Iterable[Effect]) -> list[Effect]:
    """The effects that were measured and are differences of shares, not ratios of times."""
    return [each for each in told if each.ours is not None and each.score not in ("first token", "end to end")]


def plot_effects(told: Sequence[Effect], file: Path) -> None:
    """Plot the paper's difference from its baseline and ours, one row per effect, with the verdict on the right."""
    figure = Figure(figsize=(9.6, 1.4 + 0.24 * len(told)), layout="constrained")
    axis, rows = figure.subplots(), range(len(told))
    for number, (values, label, sign) in enumerate(
        (
            ([each.paper for each in told], "the paper, Llama-3.1-8B", "D"),
            ([each.ours or 0.0 for each in told], "here, the understudy", "o"),
        )
    ):
        points = [100 * value for value in values]
        axis.plot(
            points, rows, sign, color=COLOURS[number], markerfacecolor=("none", COLOURS[number])[number], label=label
        )
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_yticks(rows, [f"{each.table}: {each.row}, {each.score}" for each in told], fontsize=7)
    verdicts = axis.secondary_yaxis("right")
    verdicts.set_yticks(
        rows, [f"{each.verdict}, {each.bound}" if each.bound else each.verdict for each in told], fontsize=7
    )
    axis.set_ylim(len(told) - 0.5, -0.5)
    axis.grid(axis="x", alpha=0.3)
    axis.set_title("difference from the baseline, in points: compare signs, not sizes", fontsize=9)
    figure.legend(fontsize=7, loc="outside lower center", ncols=2)
    save(figure, file)


def text(found: dict[str, PaperFound]) -> str:
    """The text of the page from the contents of these files, by name."""
    parts = [_part(name, each, found[MAIN]) for name, each in found.items()]
    back = [line for part in parts for line in _back(part)]
    return re.sub(r"\n{3,}", "\n\n", render("paper", parts=parts, back=back, effects=EFFECTS)).rstrip() + "\n"


def _part(file: str, found: PaperFound, main: PaperFound) -> Part:
    *shown, _ = grids(found)
    games = f"{found.games} games a row" if found.games != main.games else "measured again"
    suffix = "" if file == MAIN else f", {games}"
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
        drawn=bool(differences(effects(aligned(found)))),
    )


def _back(part: Part) -> Iterator[str]:
    """What tuning recovers, one sentence per row. Table 6 has the games of Table 4 and is not repeated."""
    shown: Sequence[Grid] = [grid for grid in part.grids if grid.title.endswith(BACK)]
    for grid in (each for each in shown if not each.title.startswith("Table 6")):
        for label, score, baseline, reused, tuned, share in grid.rows:
            told = f"{share} of what was lost" if share.endswith("%") else share
            yield (
                f"{grid.title.removesuffix(BACK)}{part.suffix}, {label}: {score} {baseline} in the baseline, {reused} "
                f"reused, {tuned} tuned ({told})"
            )


def main() -> None:
    """Draw the plots, and write the page that shows them."""
    given = arguments("the paper's tables").parse_args()
    draw(given.results, given.page.parent / PICTURES)
    rewrite(given.page, page(given.results))


if __name__ == "__main__":
    main()

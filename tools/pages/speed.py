"""The page on speed, the page with all its tables and plots, and the README's sentences on both, from result files:
`python -m tools.pages.speed docs/results docs/speed.md README.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from agentcho.lab.bench.aims import family, pairs
from agentcho.lab.bench.arms import AUDIT, BASELINE, CONTINUOUS, ENFORCE, GENERATE
from agentcho.lab.bench.plans import TRACE, UNNAMED
from agentcho.lab.bench.result import Kind, Result, read_result
from agentcho.lab.compare.comparison import Comparison
from agentcho.lab.display.bench import GUESSED, asked, digits, guessed, heads, row, served
from agentcho.lab.display.peers import ABOUT, heads_of, told
from agentcho.lab.display.peers import row as peer_row
from agentcho.lab.plots import COLOURS, plot_result, reach, save
from agentcho.lab.stats import Spread
from agentcho.lab.yardstick import Words
from tools.bench import PROGRAM, cost, society
from tools.bench.tables import TALK, shown, talk_row
from tools.bench.targets import Judged, combined, with_targets
from tools.pages.bars import BARS, plot_bars
from tools.pages.costs import TABLE, first_screen, gains, least, sentence, slower, timed, wrapped
from tools.pages.marks import put
from tools.pages.render import arguments, render, rewrite

DRAWN: tuple[Kind, ...] = ("workflows", "growth", "stall")
"""The benchmarks that are drawn like `agentcho bench --plot` does. Others get bar charts."""
SHIPPED: tuple[Kind, ...] = ("workflows", "serve", "peers")
"""The benchmarks of `agentcho bench`. All others need a checkout."""
ORDER: tuple[Kind, ...] = (
    "workflows",
    "cost",
    "step",
    "growth",
    "stall",
    "overhead",
    "room",
    "roofline",
    "serve",
    "talk",
    "peers",
)

ALT: Mapping[Kind, str] = {
    "step": "seconds of a decode step, by arm",
    "growth": "seconds to the first token",
    "stall": "seconds of the prefill over the time between tokens, by size of its parts",
    "room": "agents whose first tokens come in time, by arm",
}
"""What the plots of a section show."""
SPEED, COST = "speed", "cost"
"""Names of the marks in the README."""


GAINS = "gains"
"""The name of the plot of the first table."""
MODES = ("audit", "enforce")
SAME = "as good"
"""The word for texts that reuse does not change."""
STOCK = {GENERATE: "stock `generate` with caches kept by hand", CONTINUOUS: "transformers' continuous batching"}


class Gain(NamedTuple):
    """What a workflow gains under `audit` and under `enforce` (None: not measured), and whether its texts change."""

    subject: str
    first: tuple[Spread, Spread] | None
    whole: tuple[Spread, Spread] | None
    words: tuple[str, str]

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row in the table."""
        figures = [each.shown() for both in (self.first, self.whole) for each in both or ()]
        audit, enforce = self.words
        there = [*figures[:2]] if self.first else ["", ""]
        there += figures[-2:] if self.whole else ["", ""]
        return (self.subject, *there, audit if audit == enforce else f"`audit` {audit}, `enforce` {enforce}")


def gained(results: Path) -> list[Gain]:
    """What each workflow gains: the paper's first, then recorded ones."""
    flows, elsewhere = _flows(results), known(results)
    whole = [result for result in flows if result.stepwise]
    names = dict.fromkeys(family(subject) for result in flows for subject in result.subjects)
    table = timed(results, TABLE)

    def gain(flows: Sequence[Result], name: str, what: str) -> tuple[Spread, Spread] | None:
        rows = () if name.startswith(TRACE) else table
        audit, enforce = ([*gains(flows, rows, name, arm, what)] for arm in (AUDIT, ENFORCE))
        return (least(audit), least(enforce)) if audit and enforce else None

    return [
        Gain(name, gain(flows, name, "ttft"), gain(whole, name, "seconds"), _said(name, flows, elsewhere))
        for name in sorted(names, key=lambda name: name.startswith(TRACE))
    ]


def _flows(results: Path) -> list[Result]:
    """Benchmarks of workflows except sweeps. Those that timed only first tokens come before the others."""
    found = [each for each in _read(results).values() if each.bench == "workflows" and each.sweep is None]
    return sorted(found, key=lambda result: result.stepwise)


def summary(results: Path) -> str:
    """The text of the short page, from the same files."""
    found, flows, each = list(_read(results).values()), _flows(results), gained(results)
    swept = [result for result in found if result.sweep is not None]
    whole = [result for result in flows if result.stepwise]
    timed_first = [gain.first for gain in each if gain.first is not None]
    sooner = [sum(round(both[mode].middle, 2) > 1 for both in timed_first) for mode in (0, 1)]
    surely = [sum(both[mode].low > 1 for both in timed_first) for mode in (0, 1)]
    measured = [
        f"{result.model.removeprefix('shape:')} with texts of "
        f"{'full' if result.scale == 1 else format(result.scale, 'g') + ' of the full'} length"
        for result in whole
        if any(BASELINE in result.arms and not name.startswith(TRACE) for name in map(family, result.subjects))
    ]
    small = [gain.subject for gain in each if gain.subject.startswith(TRACE)]
    rooms = [
        result.ratio([subject], ENFORCE, BASELINE, "agents").shown()
        for result in found
        if result.bench == "room"
        for subject in result.chosen(ENFORCE, BASELINE)
    ]
    more = {
        "slower": slower(results),
        "stock": [*_stock(flows)],
        "rooms": rooms,
        "debates": [*_debates(swept)],
        "whole": measured,
        "small": small,
        "sooner": sooner,
        "surely": surely,
        "compared": len(timed_first),
    }
    return render("speed", gains=each, picture=GAINS, **more)


def _said(name: str, flows: Iterable[Result], elsewhere: Judged) -> tuple[str, str]:
    """Whether a workflow's texts change in both ways, according to its comparison, which also has scores, and to each
    result that judged them itself. They count as changed if one of these finds a change."""
    said = {"same": SAME, "changed": "changed", "unknown": "not judged"}

    def of(arm: str) -> str:
        own = [
            result.words(subject, arm) for result in flows for subject in result.chosen(arm) if family(subject) == name
        ]
        return said[combined(*own, elsewhere.get((name, arm), "unknown"))]

    return of(AUDIT), of(ENFORCE)


def _stock(flows: Iterable[Result]) -> Iterator[str]:
    """How the baseline compares with each stock way, over all workflows of a result that both have played to the end.
    For several results, the minimum and maximum."""
    measured = [result for result in flows if result.stepwise]
    for arm, name in STOCK.items():
        found = [(result, both) for result in measured if (both := result.chosen(BASELINE, arm))]
        if found:
            first, whole = (
                _from_to([result.ratio(both, arm, BASELINE, what) for result, both in found])
                for what in ("ttft", "seconds")
            )
            yield f"Compared with {name}, its first tokens are {first} times as fast and its workflows {whole} times."


def _from_to(ratios: Sequence[Spread]) -> str:
    """The minimum and maximum of several medians; for a single one, also its interval."""
    middles = [each.middle for each in ratios]
    return ratios[0].shown() if len(ratios) == 1 else f"{min(middles):.2f} to {max(middles):.2f}"


def page(results: Path) -> str:
    """The text of the page of all tables, from the files `bench-*.json` in `results`."""
    read = _read(results)
    names = {id(result): name for name, result in read.items()}
    found = sorted(read.values(), key=lambda result: ORDER.index(result.bench))
    return render(
        "speed-tables",
        results=found,
        of=lambda kind: [result for result in found if result.bench == kind],
        title=_title,
        heads=heads,
        row=row,
        pairs=pairs,
        guess_heads=GUESSED,
        guessed=guessed,
        cost=cost,
        asked=asked,
        digits=digits,
        shown=shown,
        ms=_ms,
        served=served,
        society_arm=society.ARM,
        talk_heads=TALK,
        talk_row=talk_row,
        peer_heads=heads_of,
        peer_row=peer_row,
        peer_has=told,
        peer_about=ABOUT,
        debates=list(_debates(found)),
        picture=lambda result: names[id(result)],
        tally=tally(found),
        drawn=ALT,
    )


def tally(results: Iterable[Result]) -> str:
    """How many targets are met, missed, and neither."""
    verdicts = [result.verdict(target) for result in results for target in result.targets]
    met, changed = verdicts.count("met"), verdicts.count("fast, but changed")
    missed = sum(verdict.startswith("missed") for verdict in verdicts)
    left = len(verdicts) - met - missed - changed
    return (
        f"Of {len(verdicts)} targets, {met} are met and {missed} are missed. {changed} are fast enough but change the "
        f"words. {left} are reached in too few repeats, or their words were not judged."
    )


def _read(results: Path) -> dict[str, Result]:
    """The results by file name, with the current targets and commands."""
    elsewhere = known(results)
    return {file.stem: _today(read_result(file), elsewhere) for file in sorted(results.glob("bench-*.json"))}


def known(results: Path) -> Judged:
    """The verdicts of comparisons on the understudy on the texts of each way of reading, by workflow and arm."""
    found = [Comparison.model_validate_json(file.read_bytes()) for file in sorted(results.glob("compare-*.json"))]
    known: dict[tuple[str, str], Words] = {}
    for each in found:
        for name in each.names[1:]:
            key = each.request.scenario, name
            known[key] = combined(each.words(name), known.get(key, "unknown"))
    return known


def _today(result: Result, elsewhere: Judged) -> Result:
    command = result.command if result.bench in SHIPPED else result.command.replace("agentcho bench", PROGRAM, 1)
    return with_targets(result, elsewhere).model_copy(update={"command": command})


def draw(results: Path, folder: Path) -> None:
    """Draw the plots of both pages: that of the first table, and one per result."""
    folder.mkdir(exist_ok=True)
    if found := gained(results):
        plot_gains(found, folder / f"{GAINS}.png")
    for name, result in _read(results).items():
        if result.bench in DRAWN:
            plot_result(result, folder / f"{name}.png")
        elif result.bench in BARS:
            plot_bars(result, folder / f"{name}.png")


def plot_gains(found: Sequence[Gain], file: Path) -> None:
    """Plot the first table: what each workflow gains, one bar per mode. A bar is filled if the texts stay the same."""
    figure = Figure(figsize=(10.4, 1.4 + 0.42 * len(found)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axis, title in ((left, "first token"), (right, "end to end")):
        for number, colour in enumerate(COLOURS[: len(MODES)]):
            both = [(place, gain, gain.first if axis is left else gain.whole) for place, gain in enumerate(found)]
            there = [(place, gain, ratios[number]) for place, gain, ratios in both if ratios is not None]
            at = [place + 0.4 * (number - 0.5) for place, _, _ in there]
            ratios = [ratio for _, _, ratio in there]
            middles = [ratio.middle for ratio in ratios]
            filled = [colour if gain.words[number] == SAME else "white" for _, gain, _ in there]
            axis.barh(at, middles, height=0.36, color=filled, edgecolor=colour)
            axis.errorbar(middles, at, xerr=reach(middles, ratios), fmt="none", ecolor="black", capsize=2)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_yticks(range(len(found)), [gain.subject for gain in found], fontsize=8)
        axis.set_title(f"{title}: baseline ÷ mode", fontsize=9)
        axis.tick_params(axis="x", labelsize=8)
    left.invert_yaxis()
    keys = [Patch(facecolor=colour, edgecolor=colour, label=mode) for mode, colour in zip(MODES, COLOURS, strict=False)]
    keys.append(Patch(facecolor="white", edgecolor="black", label="not filled: words changed, or not judged"))
    figure.legend(handles=keys, fontsize=8, loc="outside lower center", ncols=len(keys))
    figure.suptitle("right of the line, the mode is faster than the baseline", fontsize=10)
    save(figure, file)


def with_sentences(readme: str, results: Path) -> str:
    """The README with its sentences on time and on the cost of safety. Empty if nothing was measured."""
    return put(put(readme, SPEED, first_screen(results)), COST, wrapped(sentence(results)))


class Debate(NamedTuple):
    """A debate in which no two prompts share a beginning, and one in which all do, with the gain of each."""

    subject: str
    measured: str
    arm: str
    named: Spread
    unnamed: Spread


def _debates(results: Iterable[Result]) -> Iterator[Debate]:
    """The last debate of each result that has it with and without names; in a sweep, the one with the most agents."""
    for result in (each for each in results if each.bench == "workflows"):
        for arm in (AUDIT, ENFORCE):
            there = result.chosen(BASELINE, arm)
            if both := [subject for subject in there if subject + UNNAMED in there]:
                yield from _both_ways(result, both[-1], arm)


def _both_ways(result: Result, subject: str, arm: str) -> Iterator[Debate]:
    kinds = {"seconds": "end to end", "ttft": "first token"} if result.stepwise else {"ttft": "first token alone"}
    for kind, measured in kinds.items():
        named, unnamed = (result.ratio([one], BASELINE, arm, kind) for one in (subject, subject + UNNAMED))
        yield Debate(subject, measured, arm, named, unnamed)


def _title(result: Result) -> str:
    """The title of a result of workflows."""
    if result.sweep == "branches":
        what = "Trees of thoughts, branches by voters"
    elif result.sweep == "agents":
        what = "Parallel debates of three rounds"
    elif result.sweep == "readers":
        what = "Panels that read documents"
    elif result.subjects and result.subjects[0].startswith("trace "):
        what = "Recorded traces"
    else:
        what = "The paper's workflows"
    how = "token by token" if result.stepwise else "first tokens"
    return f"{what}: {how}, {result.model.removeprefix('shape:')}, {result.dtype}"


def _ms(result: Result, subject: str, arm: str, what: str) -> str:
    values = result.values(subject, arm, what)
    return f"{result.spread(subject, arm, what).shown(1, 1000)} ms" if values else ""


def main() -> None:
    """Write both pages."""
    parser = arguments("speed")
    parser.add_argument("readme", type=Path, nargs="?", help="whose sentences on speed are written anew")
    given = parser.parse_args()
    rewrite(given.page, summary(given.results))
    rewrite(given.page.with_stem(f"{given.page.stem}-tables"), page(given.results))
    if given.readme is not None:
        given.readme.write_text(with_sentences(given.readme.read_text(), given.results))
    draw(given.results, given.page.parent / given.page.stem)


if __name__ == "__main__":
    main()

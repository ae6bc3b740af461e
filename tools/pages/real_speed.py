"""The part on speed of the page on a real model: workflows that it sampled, on several engines, with equal words.

Every ratio is taken within one result, so each table of another program has an arm of ours beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from agentcho.audit.wording import many
from agentcho.lab.bench.arms import AUDIT, BASELINE, CONTINUOUS, ENFORCE, GENERATE
from agentcho.lab.bench.peers.targets import GUESSING, LLAMA
from agentcho.lab.bench.plans import TRACE
from agentcho.lab.bench.result import Result, read_result
from agentcho.lab.plots import reach, save
from agentcho.lab.reading.partitions import AGENTS, SALTS
from agentcho.lab.reading.result import read_fidelity
from tools.bench.vllm.names import OWN, PLAIN
from tools.pages.render import commit_of

SIGNS, MARKS = (
    ("o", "s", "^", "D", "v"),
    ("#8a8f98", "#228833", "#4477aa", "#ccbb44", "#ee6677", "#aa3377", "#66ccee", "black"),
)
TICKS = (0.2, 0.5, 1, 2, 5, 10, 20)
FIRST, END = "ttft", "seconds"
IN_PARTS = "real-partitions-sampled"
"""The result of `agentcho bench fidelity --modes baseline` on sampled games."""
TITLES = {END: "to the end", FIRST: "to the first token"}


class Beside(NamedTuple):
    """A result file, the other program in it, our arm, and the arms shown beside it with their headings."""

    file: str
    program: str
    ours: str
    arms: Mapping[str, str]


SHOWN = (
    Beside(
        "real-speed",
        "transformers",
        ENFORCE,
        {
            BASELINE: "baseline",
            AUDIT: "`audit`",
            GENERATE: "stock `generate`",
            CONTINUOUS: "continuous batching",
        },
    ),
    Beside("real-speed-llama", "llama.cpp", ENFORCE, {LLAMA: "llama.cpp", GUESSING: "llama.cpp, drafts"}),
    Beside("real-speed-vllm", "vLLM", next(iter(OWN)), {PLAIN: "vLLM", "vllm+enforce": "`enforce` on vLLM"}),
)


class Speed(NamedTuple):
    """What the page shows: the programs that results have beside ours, those that were timed on other games than the
    first, what caches in parts would encode, what made each result, a title and a table for each quantity, a sentence
    on each arm, and the size of each workflow."""

    beside: Sequence[str]
    apart: Sequence[str]
    parts: str
    about: Sequence[str]
    tables: Sequence[tuple[str, str]]
    told: Sequence[str]
    sizes: str


def speed(results: Path) -> Speed | None:
    """The part, from the results that exist; None if there are none."""
    there = _there(results)
    if not there:
        return None
    subjects = _subjects(there)
    tables = [(title, _table(there, subjects, what)) for what, title in TITLES.items()]
    return Speed(
        [each.program for each, _ in there],
        _apart(there, subjects),
        _parts(results),
        [_about(found) for _, found in there],
        tables,
        list(_told(there, subjects)),
        _sizes(there[0][1], subjects),
    )


def untimed(results: Path) -> list[str]:
    """The programs that were not timed."""
    there = [each.program for each, _ in _there(results)]
    return [each.program for each in SHOWN if each.program not in there]


def draw(results: Path, file: Path) -> None:
    """Draw both tables: a row for each workflow, a mark for each arm. Draws nothing without results."""
    there = _there(results)
    if not there:
        return
    subjects = _subjects(there)
    figure = Figure(figsize=(10.4, 1.8 + 0.62 * len(subjects)), layout="constrained")
    panels = figure.subplots(1, len(TITLES), sharey=True)
    columns = list(_columns(there))
    for axis, (what, title) in zip(panels, TITLES.items(), strict=True):
        for number, (found, arm, ours, head) in enumerate(columns):
            both = [place for place, subject in enumerate(subjects) if found.has(subject, arm, ours)]
            ratios = [found.ratio([subjects[place]], arm, ours, what) for place in both]
            middles = [ratio.middle for ratio in ratios]
            at = [place + 0.7 * (number / (len(columns) - 1) - 0.5) for place in both]
            how = {
                "fmt": SIGNS[number % len(SIGNS)],
                "color": MARKS[number % len(MARKS)],
                "markersize": 5,
                "capsize": 2,
            }
            axis.errorbar(middles, at, xerr=reach(middles, ratios), label=head.replace("`", ""), **how)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xticks([x for x in TICKS if axis.get_xlim()[0] <= x <= axis.get_xlim()[1]])
        axis.set_title(f"time {title} ÷ that of enforce", fontsize=9)
        axis.set_yticks(range(len(subjects)), [name_of(subject) for subject in subjects], fontsize=8)
        axis.grid(axis="x", linewidth=0.3)
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=len(columns))
    figure.suptitle("right of the line, enforce on our engine is faster", fontsize=10)
    save(figure, file)


def _there(results: Path) -> list[tuple[Beside, Result]]:
    """The results that exist."""
    return [(each, read_result(file)) for each in SHOWN if (file := results / f"{each.file}.json").is_file()]


def _subjects(there: Sequence[tuple[Beside, Result]]) -> list[str]:
    """The workflows, in the order of the first result."""
    return [name for name in there[0][1].subjects if name.startswith(TRACE)]


def _columns(there: Iterable[tuple[Beside, Result]]) -> Iterator[tuple[Result, str, str, str]]:
    """All arms: the result that has it, its name, our arm in that result, and its heading."""
    for each, found in there:
        yield from ((found, arm, each.ours, head) for arm, head in each.arms.items())


def _about(found: Result) -> str:
    """The command, the machine and the versions of a result."""
    machine = found.machine
    others = [f"vLLM {machine['vllm']}"] if "vllm" in machine else []
    others += [machine[what] for what in ("peer", "peer system") if what in machine]
    return (
        f"`{found.command}`: {found.model}, {found.dtype}; {machine['machine']}, torch {machine['torch']}, "
        f"{''.join(f'{each}, ' for each in others)}commit {commit_of(machine)}, seed {found.seed}, "
        f"{found.repeats} repeats."
    )


def _table(there: Iterable[tuple[Beside, Result]], subjects: Sequence[str], what: str) -> str:
    """Times of each arm divided by those of `enforce`, by workflow."""
    columns = list(_columns(there))
    lines = ["| | " + " | ".join(head for *_, head in columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for subject in subjects:
        cells = [
            found.ratio([subject], arm, ours, what).shown() if found.has(subject, arm, ours) else "not measured"
            for found, arm, ours, _ in columns
        ]
        lines.append(f"| {name_of(subject)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _told(there: Iterable[tuple[Beside, Result]], subjects: Sequence[str]) -> Iterator[str]:
    """For each arm, in how many workflows `enforce` ended sooner or later in every repeat, and the whole time of all
    workflows."""
    for found, arm, ours, head in _columns(there):
        if both := [subject for subject in subjects if found.has(subject, arm, ours)]:
            ratios = [found.ratio([subject], arm, ours, END) for subject in both]
            sooner, later = sum(ratio.low > 1 for ratio in ratios), sum(ratio.high < 1 for ratio in ratios)
            whole = found.ratio(both, arm, ours, END).shown()
            yield (
                f"Against {head}, `enforce` on agentcho's own engine ended sooner in every repeat in {sooner} of "
                f"{many(len(both), 'workflow')} and later in every repeat in {later}; over all of them, {head} took "
                f"{whole} times as long"
            )


def _apart(there: Sequence[tuple[Beside, Result]], subjects: Sequence[str]) -> list[str]:
    """The programs whose games are not those of the first result, because our arm encodes other numbers of tokens, and
    both numbers for each workflow."""
    first, told = there[0], []
    for each, found in there[1:]:
        sizes = {subject: [_encoded(*result, subject) for result in (first, (each, found))] for subject in subjects}
        if any(None not in size and size[0] != size[1] for size in sizes.values()):
            shown = (f"{name_of(subject)} {_shown(a)} and {_shown(b)}" for subject, (a, b) in sizes.items())
            told.append(f"{each.program} ({', '.join(shown)})")
    return told


def _encoded(beside: Beside, found: Result, subject: str) -> float | None:
    return found.values(subject, beside.ours, "encoded")[0] if found.has(subject, beside.ours) else None


def _shown(size: float | None) -> str:
    return "unknown" if size is None else f"{size:,.0f}"


def _parts(results: Path) -> str:
    """A sentence on what caches in parts would encode in sampled games; "" if that was not measured."""
    file = results / f"{IN_PARTS}.json"
    if not file.is_file():
        return ""
    found = read_fidelity(file)
    ratios = {name: [row.ratio for row in found.rows if row.column == name] for name in (SALTS, AGENTS)}
    if not all(ratios.values()):
        return ""
    salts, agents = (" to ".join(dict.fromkeys([f"{min(each):.2f}", f"{max(each):.2f}"])) for each in ratios.values())
    stands = ", as many as the baseline itself" if f"{max(ratios[SALTS]):.2f}" == "1.00" else ""
    return (
        f"In games that SmolLM2 sampled, a prefix cache with a salt for each audience would encode {salts} times the "
        f"baseline's tokens{stands}, and one for each agent {agents} times (`{found.command}`, commit "
        f"{commit_of(found.machine)})."
    )


def _sizes(found: Result, subjects: Sequence[str]) -> str:
    """How many tokens the baseline feeds in each workflow, those of prompts and those that are generated."""
    return ", ".join(f"{name_of(each)} {found.values(each, BASELINE, 'encoded')[0]:,.0f}" for each in subjects)


def name_of(subject: str) -> str:
    """The workflow's name, of "trace NAME ID"."""
    return subject.removeprefix(TRACE).partition(" ")[0]

"""The part on speed of the page on a real model: workflows that it sampled, on several engines, with equal words.

Every ratio is taken within one result, so each table of another program has an arm of ours beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agentcho.audit.wording import many
from agentcho.lab.bench.arms import AUDIT, BASELINE, CONTINUOUS, ENFORCE, GENERATE
from agentcho.lab.bench.peers.targets import GUESSING, LLAMA
from agentcho.lab.bench.plans import TRACE
from agentcho.lab.bench.result import Result, read_result
from tools.bench.vllm.names import OWN, PLAIN

FIRST, END = "ttft", "seconds"
TITLES = {END: "to the end", FIRST: "to the first token"}


class Beside(NamedTuple):
    """A result file, its arm of ours, and the arms shown beside it with their headings."""

    file: str
    ours: str
    arms: Mapping[str, str]


SHOWN = (
    Beside(
        "real-speed",
        ENFORCE,
        {
            BASELINE: "baseline",
            AUDIT: "`audit`",
            GENERATE: "stock `generate`",
            CONTINUOUS: "continuous batching",
        },
    ),
    Beside("real-speed-llama", ENFORCE, {LLAMA: "llama.cpp", GUESSING: "llama.cpp, drafts"}),
    Beside("real-speed-vllm", next(iter(OWN)), {PLAIN: "vLLM", "vllm+enforce": "`enforce` on vLLM"}),
)


class Speed(NamedTuple):
    """What the page shows: what made each result, a title and a table for each quantity, a sentence on each arm, and
    the size of each workflow."""

    about: Sequence[str]
    tables: Sequence[tuple[str, str]]
    told: Sequence[str]
    sizes: str


def speed(results: Path) -> Speed | None:
    """The part, from the results that exist; None if there are none."""
    there = [(each, read_result(file)) for each in SHOWN if (file := results / f"{each.file}.json").is_file()]
    if not there:
        return None
    subjects = [name for name in there[0][1].subjects if name.startswith(TRACE)]
    tables = [(title, _table(there, subjects, what)) for what, title in TITLES.items()]
    return Speed(
        [_about(found) for _, found in there], tables, list(_told(there, subjects)), _sizes(there[0][1], subjects)
    )


def _about(found: Result) -> str:
    """The command, the machine and the versions of a result."""
    machine = found.machine
    others = [f"vLLM {machine['vllm']}"] if "vllm" in machine else []
    others += [machine[what] for what in ("peer", "peer system") if what in machine]
    return (
        f"`{found.command}`: {found.model}, {found.dtype}; {machine['machine']}, torch {machine['torch']}, "
        f"{''.join(f'{each}, ' for each in others)}commit {machine['commit'][:10]}, seed {found.seed}, "
        f"{found.repeats} repeats."
    )


def _table(there: Iterable[tuple[Beside, Result]], subjects: Sequence[str], what: str) -> str:
    """Times of each arm divided by those of `enforce`, by workflow."""
    columns = [(found, arm, each.ours, head) for each, found in there for arm, head in each.arms.items()]
    lines = ["| | " + " | ".join(head for *_, head in columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for subject in subjects:
        cells = [
            found.ratio([subject], arm, ours, what).shown() if found.has(subject, arm, ours) else "not measured"
            for found, arm, ours, _ in columns
        ]
        lines.append(f"| {name_of(subject)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _told(there: Iterable[tuple[Beside, Result]], subjects: Sequence[str]) -> Iterator[str]:
    """For each arm, in how many workflows `enforce` ended sooner, and the whole time of all workflows."""
    for each, found in there:
        for arm, head in each.arms.items():
            both = [subject for subject in subjects if found.has(subject, arm, each.ours)]
            if not both:
                continue
            sooner = sum(found.ratio([subject], arm, each.ours, END).middle > 1 for subject in both)
            whole = found.ratio(both, arm, each.ours, END)
            yield (
                f"{head}: `enforce` ended sooner in {sooner} of {many(len(both), 'workflow')}; all together took "
                f"{whole.shown()} times as long as under `enforce`"
            )


def _sizes(found: Result, subjects: Sequence[str]) -> str:
    """How many tokens the baseline feeds in each workflow, those of prompts and those that are generated."""
    return ", ".join(f"{name_of(each)} {found.values(each, BASELINE, 'encoded')[0]:,.0f}" for each in subjects)


def name_of(subject: str) -> str:
    """The workflow's name, of "trace NAME ID"."""
    return subject.removeprefix(TRACE).partition(" ")[0]

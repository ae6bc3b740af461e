"""Times the paper's workflows on forced texts, with interleaved arms: its Table 5 on played games, its Figure 4 on
trees of thoughts of random words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from agentcho.lab.bench.arms import AUDIT, BASELINE, ENFORCE
from agentcho.lab.bench.arms import arm as arm_of
from agentcho.lab.bench.plans import branches
from agentcho.lab.paper.figures import GAIN
from agentcho.lab.paper.found import Timed, TimesFound
from agentcho.lab.stats import spread
from agentcho.lab.timing import in_turns
from agentcho.protocol.progress import ProgressCallback, counted
from agentcho.records.trace import Workflow

ARMS = (BASELINE, AUDIT, ENFORCE)


class Effort(NamedTuple):
    """The number of timed games per workflow, the repeats of each point of the sweep, and the scale of its texts."""

    problems: int = 30
    repeats: int = 3
    scale: float = 1.0


QUICK = Effort(problems=4, repeats=1, scale=0.1)


def by_workflow(
    here: Callable[[], Any], played: Mapping[str, Sequence[Workflow]], tell: ProgressCallback
) -> TimesFound:
    """Table 5: each workflow on the texts of its own games, each game once, after one to warm up."""
    rows: list[Timed] = []
    engine = here()
    for name, found in ((name, each) for name, each in played.items() if each):
        told = counted(tell, f"games timed ({name})", len(found))
        rows += _timed(engine=engine, subject=name, runs=[found[0], *found], seed=0, told=told)
    few = sorted({row.runs for row in rows if row.runs < Effort().problems})
    notes = [f"timed on {min(few)} games of a workflow, fewer than {Effort().problems}"] if few else []
    return TimesFound(name="5", title="Table 5: times on forced words", rows=tuple(rows), notes=tuple(notes))


def sweep(here: Callable[[], Any], effort: Effort, seed: int, tell: ProgressCallback) -> TimesFound:
    """Figure 4: trees of thoughts of random words, branches by voters."""
    rows: list[Timed] = []
    engine = here()
    subjects = branches(seed, effort.scale)
    for number, subject in enumerate(subjects):
        runs = [subject.warm, *effort.repeats * [subject.workflow]]
        rows += _timed(engine=engine, subject=subject.name, runs=runs, seed=seed, told=lambda done: None)
        tell("points of the sweep", number + 1, len(subjects))
    title = f"Figure 4: trees of thoughts, end to end, texts of {effort.scale:g} of their usual lengths"
    return TimesFound(name="f4", title=title, rows=tuple(rows), notes=reached(rows))


def reached(rows: Sequence[Timed]) -> tuple[str, ...]:
    """A note for each arm of ours: where it is `GAIN` times faster end to end than the baseline, where not, and why."""
    baseline = {row.subject: row for row in rows if row.arm == BASELINE}
    found = []
    for arm in dict.fromkeys(row.arm for row in rows if row.arm != BASELINE):
        own = [row for row in rows if row.arm == arm]
        best = max(own, key=lambda row: row.seconds_ratio.middle)
        there = _points(row for row in own if row.seconds_ratio.middle >= GAIN)
        short = _points(row for row in own if row.seconds_ratio.middle < GAIN)
        where = f"at {there}{', and' if short else ''}" if there else "at no point:"
        rest = f" not at {short}" if short else ""
        found.append(f"{arm}: {GAIN} times sooner end to end {where}{rest}; {_why(baseline[best.subject], best)}")
    return tuple(found)


def _points(rows: Iterable[Timed]) -> str:
    return ", ".join(f"{row.subject} ({row.seconds_ratio.middle:.2f})" for row in rows)


def _why(baseline: Timed, best: Timed) -> str:
    """Explain the bound of the largest gain: the time that the baseline spends while no call waits for its first
    token."""
    decoding = 1 - baseline.waiting.middle
    most = "without bound" if decoding <= 0 else f"{1 / decoding:.2f} times"
    return (
        f"the largest gain is {best.seconds_ratio.middle:.2f}, at {best.subject}. There the baseline spends "
        f"{decoding:.0%} of its time while no call waits for a first token, and reuse does not shorten that: if all "
        f"first tokens came at once, it would be {most} sooner"
    )


def _timed(engine: Any, subject: str, runs: Sequence[Workflow], seed: int, told: Any) -> list[Timed]:
    """Time all arms on these workflows, interleaved; the first workflow is the warm-up."""
    takes = {name: partial(_take, engine, name) for name in ARMS}
    taken = in_turns(takes, runs, told)
    first = taken[BASELINE]
    return [_row(subject=subject, arm=name, own=own, first=first, seed=seed) for name, own in taken.items()]


def _take(engine: Any, name: str, workflow: Workflow) -> Mapping[str, float]:
    return arm_of(name)(engine, workflow, True).figures()


def _row(
    subject: str, arm: str, own: Sequence[Mapping[str, float]], first: Sequence[Mapping[str, float]], seed: int
) -> Timed:
    def column(what: str) -> list[float]:
        return [one[what] for one in own]

    def ratio(what: str) -> list[float]:
        return [before[what] / one[what] for before, one in zip(first, own, strict=True)]

    return Timed(
        subject=subject,
        arm=arm,
        runs=len(own),
        first=spread(column("ttft"), seed),
        seconds=spread(column("seconds"), seed),
        waiting=spread(column("prefill"), seed),
        first_ratio=spread(ratio("ttft"), seed),
        seconds_ratio=spread(ratio("seconds"), seed),
    )

"""Measures arms in turns: a warm-up of each, then repeats in a rotating order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from agentcho.lab.bench.arms import Arm, is_guessing
from agentcho.lab.bench.arms import arm as arm_of
from agentcho.lab.bench.bound import with_new
from agentcho.lab.bench.partial import PartialWorkflows, Repeat, Subject, figures
from agentcho.lab.bench.plans import Workload
from agentcho.lab.bench.played import ArmUnavailable
from agentcho.lab.bench.result import Figures
from agentcho.lab.bench.words import with_words
from agentcho.lab.timing import turns
from agentcho.protocol.progress import ProgressCallback, part
from agentcho.records.trace import Workflow

Take = Callable[[], Mapping[str, float]]
"""Runs once and returns its figures by name."""
STEADY = 4.0
"""Seconds. A shorter run is repeated until they have passed, because one short run is noisy."""


class Timed(NamedTuple):
    """One arm: its warm-up, and its measured run."""

    warm: Take
    take: Take


def measure(
    subject: str, arms: Mapping[str, Timed], repeats: int, tell: ProgressCallback, kept: PartialWorkflows | None = None
) -> list[Figures]:
    """The figures of all arms on one subject, `repeats` times each; repeats already in `kept` are not run again. An arm
    that is not available is left out, with the reason. `tell` receives the progress out of `runs_of` runs."""
    kept = kept or PartialWorkflows()
    known, of = kept.subject(subject), runs_of(arms, repeats)
    if len(known.repeats) < repeats:
        _warm(subject=subject, arms=arms, known=known, of=of, tell=tell)
    for number in range(len(known.repeats), repeats):
        taken: Repeat = {}
        there = [name for name in arms if name not in known.unavailable]
        for place, name in enumerate(turns(there, number)):
            tell(f"runs ({subject}: {name})", (number + 1) * len(arms) + place, of)
            try:
                taken[name] = dict(arms[name].take())
            except ArmUnavailable as error:
                known.unavailable[name] = str(error)
        known.repeats.append(taken)
        kept.save()
    return figures(subject, arms, known)


def _warm(subject: str, arms: Mapping[str, Timed], known: Subject, of: int, tell: ProgressCallback) -> None:
    """Warm up each available arm."""
    for number, (name, arm) in enumerate(arms.items()):
        if name not in known.unavailable:
            tell(f"runs ({subject}: warming up {name})", number, of)
            try:
                arm.warm()
            except ArmUnavailable as error:
                known.unavailable[name] = str(error)


def runs_of(arms: Collection[str], repeats: int) -> int:
    """The number of runs of all arms on one subject, warm-ups included."""
    return len(arms) * (repeats + 1)


def steady(take: Take) -> Take:
    """Wrap a run: repeat it until `STEADY` seconds have passed, and return the medians."""

    def again() -> Mapping[str, float]:
        began, taken = perf_counter(), [take()]
        while perf_counter() - began < STEADY:
            taken.append(take())
        return {what: median(one[what] for one in taken) for what in taken[0]}

    return again


def workflows(
    engine: Any,
    subjects: Sequence[Workload],
    named: Sequence[str],
    repeats: int,
    stepwise: bool,
    tell: ProgressCallback,
    kept: PartialWorkflows | None = None,
) -> list[Figures]:
    """Measure every subject in all named arms, interleaved, then how far the words of our arms are from the baseline's.
    `kept` holds earlier measurements and saves new ones. `ConfigError`: unknown arm."""
    kept, known = kept or PartialWorkflows(), {name: arm_of(name) for name in named}
    if any(map(is_guessing, named)):
        kept.costs(engine)
    found: list[Figures] = []
    each = runs_of(named, repeats)
    for number, subject in enumerate(subjects):
        timed = {name: _timed(engine, known[name], subject, stepwise) for name in named}
        told, of_it = part(tell, number * each, len(subjects) * each), kept.subject(subject.name)
        if of_it.figures is None:
            timed_so = measure(subject=subject.name, arms=timed, repeats=repeats, tell=told, kept=kept)
            of_it.figures = with_words(engine, subject.workflow, with_new(subject.workflow, engine.framing, timed_so))
            kept.save()
        found += of_it.figures
    return found


def _timed(engine: Any, played: Arm, subject: Workload, stepwise: bool) -> Timed:
    def take(workflow: Workflow) -> dict[str, float]:
        return played(engine, workflow, stepwise).figures()

    return Timed(partial(take, subject.warm), steady(partial(take, subject.workflow)))

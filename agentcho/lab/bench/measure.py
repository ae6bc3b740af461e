"""Measures arms in turns: a warm-up of each, then repeats in an order that changes.

Does not know: what arms do, how figures are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from agentcho.lab.bench.arms import Arm
from agentcho.lab.bench.arms import arm as arm_of
from agentcho.lab.bench.plans import Workload
from agentcho.lab.bench.played import ArmUnavailable
from agentcho.lab.bench.result import Figures
from agentcho.lab.bench.words import with_words
from agentcho.lab.timing import turns
from agentcho.progress import Tell, part
from agentcho.records.trace import Workflow

Take = Callable[[], Mapping[str, float]]
"""Runs once and returns figures by their names."""
STEADY = 4.0
"""Seconds. A shorter run is repeated until they have passed, for one short run says little."""


class Timed(NamedTuple):
    """One arm: how it is warmed up, and how it is measured."""

    warm: Take
    take: Take


def measure(subject: str, arms: Mapping[str, Timed], repeats: int, tell: Tell) -> list[Figures]:
    """All arms on one subject, `repeats` times each. An arm that is not available is left out, with the reason. `tell`
    is told of `runs_of` runs."""
    taken: dict[str, list[Mapping[str, float]]] = {}
    reasons: dict[str, str] = {}
    of = runs_of(arms, repeats)
    for number, (name, arm) in enumerate(arms.items()):
        tell(f"runs ({subject}: warming up {name})", number, of)
        try:
            arm.warm()
            taken[name] = []
        except ArmUnavailable as error:
            reasons[name] = str(error)
    for number in range(repeats):
        for place, name in enumerate(turns(list(taken), number)):
            tell(f"runs ({subject}: {name})", (number + 1) * len(arms) + place, of)
            try:
                taken[name].append(arms[name].take())
            except ArmUnavailable as error:
                reasons[name] = str(error)
                del taken[name]
    return [Figures.of(subject, name, taken.get(name, []), reasons.get(name)) for name in arms]


def runs_of(arms: Collection[str], repeats: int) -> int:
    """The number of runs of all arms on one subject, warm-ups included."""
    return len(arms) * (repeats + 1)


def steady(take: Take) -> Take:
    """Repeats a run until `STEADY` seconds have passed, and returns the medians."""

    def again() -> Mapping[str, float]:
        began, taken = perf_counter(), [take()]
        while perf_counter() - began < STEADY:
            taken.append(take())
        return {what: median(one[what] for one in taken) for what in taken[0]}

    return again


def workflows(
    engine: Any, subjects: Sequence[Workload], named: Sequence[str], repeats: int, stepwise: bool, tell: Tell
) -> list[Figures]:
    """Every subject in all named arms, which take turns; then how far the words of our own are from the baseline's.
    `ConfigError`: a name that there is not."""
    known = {name: arm_of(name) for name in named}
    found: list[Figures] = []
    each = runs_of(named, repeats)
    for number, subject in enumerate(subjects):
        timed = {name: _timed(engine, known[name], subject, stepwise) for name in named}
        timed_so = measure(subject.name, timed, repeats, part(tell, number * each, len(subjects) * each))
        found += with_words(engine, subject.workflow, timed_so)
    return found


def _timed(engine: Any, played: Arm, subject: Workload, stepwise: bool) -> Timed:
    def take(workflow: Workflow) -> dict[str, float]:
        return played(engine, workflow, stepwise).figures()

    return Timed(partial(take, subject.warm), steady(partial(take, subject.workflow)))

"""Times workflows in all arms, which take turns. Does not know: engines, how figures are shown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from agentcho.errors import ConfigError
from agentcho.lab.bench.arms import Arm, arms
from agentcho.lab.bench.measure import Timed, measure, runs_of, steady
from agentcho.lab.bench.plans import Workload
from agentcho.lab.bench.result import Figures
from agentcho.progress import Tell, part
from agentcho.records.trace import Workflow


def workflows(
    engine: Any, subjects: Sequence[Workload], named: Sequence[str], repeats: int, stepwise: bool, tell: Tell
) -> list[Figures]:
    """Every subject in all named arms, which take turns. `ConfigError`: a name that there is not."""
    known = arms()
    for name in named:
        if name not in known:
            raise ConfigError(f"no arm {name!r}; give one of {', '.join(known)}")
    found: list[Figures] = []
    each = runs_of(named, repeats)
    for number, subject in enumerate(subjects):
        timed = {name: _timed(engine, known[name], subject, stepwise) for name in named}
        found += measure(subject.name, timed, repeats, part(tell, number * each, len(subjects) * each))
    return found


def _timed(engine: Any, arm: Arm, subject: Workload, stepwise: bool) -> Timed:
    def take(workflow: Workflow) -> dict[str, float]:
        return arm(engine, workflow, stepwise).figures()

    return Timed(partial(take, subject.warm), steady(partial(take, subject.workflow)))

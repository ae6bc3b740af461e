"""Plays the paper's six workflows, token by token, in the engine's three ways of reading: once each, after a short
warm-up.
"""

from __future__ import annotations

from agentcho.lab.bench.arms import AUDIT, BASELINE, ENFORCE
from agentcho.lab.bench.arms import arm as arm_of
from agentcho.lab.bench.plans import UNNAMED, paper
from agentcho.lab.bench.recorded import KINDS
from tools.bench.gpu_day.day import Day
from tools.bench.gpu_day.traced import counting_replays

ARMS = (BASELINE, AUDIT, ENFORCE)


def workflows(day: Day) -> None:
    """Seconds to first tokens and to the end, tokens fed, and forwards."""
    for subject in paper(list(KINDS), day.asked.seed, day.sizes.scale):
        if subject.name.endswith(UNNAMED):
            continue
        for name in ARMS:
            arm = arm_of(name)
            arm(day.engine, subject.warm, True)
            with counting_replays() as replays:
                figures = arm(day.engine, subject.workflow, True).figures()
            day.keep(f"{subject.name}, {name}", figures | {"replays": replays[0]})

"""The targets of the comparison with vLLM, with what was reached."""

from __future__ import annotations

from collections.abc import Iterator

from agentcho.lab.bench.result import Result, Target
from agentcho.lab.stats import spread
from tools.bench.vllm.names import FIRST, ON_VLLM, PLAIN, ROWS, step_of

SOONER, OF_DILEMMAS = 2.0, 1.5
"""First tokens under enforce, plain vLLM with its prefix cache divided by ours; and the same in games of two agents."""
MEAN, EACH = 1.0, 0.97
"""End to end: for the mean over workflows, and for each."""
STEP, COPIED = 1.05, 0.15
"""A decode step in CPU seconds, ours divided by plain vLLM's; and the share of a first token spent on copying."""
DILEMMA = "prisoners-dilemma"


def targets(result: Result) -> Iterator[Target]:
    """All targets that the result has figures for."""
    audit, enforce = ON_VLLM
    played = [subject for subject in result.chosen(PLAIN, enforce) if result.values(subject, PLAIN, "seconds")]
    for subject in played:
        bound = OF_DILEMMAS if DILEMMA in subject else SOONER
        reached = result.ratio([subject], PLAIN, enforce, "ttft")
        yield Target(what=f"first token, {subject}: {PLAIN} ÷ {enforce}", bound=bound, reached=reached)
    for arm in (audit, enforce):
        found = {subject: result.ratio([subject], PLAIN, arm, "seconds") for subject in played}
        if found:
            mean = spread(
                [sum(each) / len(each) for each in zip(*(_ratios(result, s, arm) for s in found), strict=True)]
            )
            yield Target(what=f"end to end, mean of workflows: {PLAIN} ÷ {arm}", bound=MEAN, reached=mean)
            least = min(found, key=lambda subject: found[subject].middle)
            what = f"end to end, the least: {PLAIN} ÷ {arm}"
            yield Target(what=what, bound=EACH, reached=found[least], note=least)
    for rows in ROWS:
        if result.has(subject := step_of(rows), PLAIN, audit):
            reached = result.ratio([subject], audit, PLAIN, "step")
            yield Target(
                what=f"{subject}, processor seconds: {audit} ÷ {PLAIN}", bound=STEP, most=True, reached=reached
            )
    if copied := result.values(FIRST, audit, "copied"):
        what = f"{FIRST} tokens: the share of copying and turning"
        yield Target(what=what, bound=COPIED, most=True, reached=spread(copied))


def _ratios(result: Result, subject: str, arm: str) -> list[float]:
    both = (result.values(subject, name, "seconds") for name in (PLAIN, arm))
    return [plain / ours for plain, ours in zip(*both, strict=True)]

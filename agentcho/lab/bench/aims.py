"""The targets of `agentcho bench workflows --speculate`, beside the measured figures: the gain of speculation, and the
gain of our reading modes over the baseline when both speculate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from agentcho.lab.bench.arms import BASELINE, guessing, is_guessing, policy
from agentcho.lab.bench.plans import TRACE, UNNAMED
from agentcho.lab.bench.result import Result, Target
from agentcho.lab.stats import Spread
from agentcho.lab.yardstick import Words

FEWER = {f"{TRACE}tree-of-thoughts": 1.25, f"{TRACE}prisoners-dilemma": 1.05, f"{TRACE}agentleak": 1.05}
"""The least speedup (seconds to the end without speculation / with it) on recorded texts, over all its workflows."""
NO_SLOWER = 0.98
"""The least value of the same ratio for any single workflow and reading mode."""
SOONER = ("tree-of-thoughts", "branch-solve-merge", "debate", "parallel-debate")
MUCH_SOONER, NEVER_BELOW = 1.2, 1.0
"""The least speedup of our mode over the baseline, both with speculation: on the workflows above, and on any."""
Judge = Callable[[Iterable[str], str], Words]
"""Judges whether an arm keeps the baseline's words on these subjects."""


class Pair(NamedTuple):
    """One of our arms without and with speculation."""

    plain: str
    guessed: str


def pairs(result: Result) -> list[Pair]:
    """All pairs of which a result has both arms."""
    found = (Pair(arm, guessing(arm)) for arm in result.arms if policy(arm) is not None and not is_guessing(arm))
    return [pair for pair in found if pair.guessed in result.arms]


def aims(result: Result, judge: Judge) -> Iterator[Target]:
    """The targets of a result that was timed to the end; none if no arm speculated."""
    if not result.stepwise:
        return
    for pair in pairs(result):
        yield from _fewer(result, pair)
    guessed = guessing(BASELINE)
    for arm in result.arms:
        if is_guessing(arm) and arm != guessed and (there := result.chosen(guessed, arm)):
            yield from _sooner(result, arm, there, judge)


def _fewer(result: Result, pair: Pair) -> Iterator[Target]:
    there = result.chosen(*pair)
    for name, bound in FEWER.items():
        if own := [subject for subject in there if family(subject) == name]:
            reached = result.ratio(own, *pair, "seconds")
            what = f"end to end, {name}: {pair.plain}, without ÷ with guesses"
            yield Target(what=what, bound=bound, reached=reached, note=counted(own))
    if there:
        yield _least(result, *pair, there, NO_SLOWER)


def _sooner(result: Result, arm: str, there: list[str], judge: Judge) -> Iterator[Target]:
    guessed = guessing(BASELINE)
    names = {f"{before}{name}": None for name in SOONER for before in ("", TRACE)}
    for name in names:
        own = [subject for subject in there if family(subject) == name]
        parts = [[each for each in own if each.endswith(UNNAMED) == unnamed] for unnamed in (False, True)]
        found = [(result.ratio(part, guessed, arm, "seconds"), part) for part in parts if part]
        if found:  # of prompts with a common beginning and prompts without, the smaller gain counts
            reached, part = min(found, key=lambda each: each[0].middle)
            what, note = f"end to end, {name}: {guessed} ÷ {arm}", counted(part)
            yield Target(what=what, bound=MUCH_SOONER, reached=reached, note=note, words=judge(own, arm))
    yield _least(result=result, arm=guessed, to=arm, there=there, bound=NEVER_BELOW).model_copy(
        update={"words": judge(there, arm)}
    )


def _least(result: Result, arm: str, to: str, there: list[str], bound: float) -> Target:
    """The target for the subject with the smallest ratio."""
    found: dict[str, Spread] = {subject: result.ratio([subject], arm, to, "seconds") for subject in there}
    least = min(found, key=lambda subject: found[subject].middle)
    return Target(what=f"end to end, the least of all: {arm} ÷ {to}", bound=bound, reached=found[least], note=least)


def family(subject: str) -> str:
    """The workflow of a subject: "trace NAME" for a game of a trace file, otherwise its own name."""
    if subject.startswith(TRACE):
        return " ".join(subject.split(" ")[:2])
    return subject.removesuffix(UNNAMED)


def counted(subjects: list[str]) -> str:
    """A single subject by name, several by their count."""
    return subjects[0] if len(subjects) == 1 else f"{len(subjects)} workflows together"

"""What guessing tokens is to gain, and what reading messages is to gain where both ways guess: the targets of `agentcho
bench workflows --speculate`, beside what was reached.

Does not know: how anything was measured.
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
"""End to end without guesses over with them, by whose recorded words are forced; all its workflows together."""
NO_SLOWER = 0.98
"""The same of each workflow and each way of reading, whatever it is."""
SOONER = ("tree-of-thoughts", "branch-solve-merge", "debate", "parallel-debate")
MUCH_SOONER, NEVER_BELOW = 1.2, 1.0
"""End to end, the baseline over a way of ours, both with guesses: of these workflows, and of each."""
Judge = Callable[[Iterable[str], str], Words]
"""What an arm makes of the baseline's words in these subjects."""


class Pair(NamedTuple):
    """One of our arms, and the same with guesses."""

    plain: str
    guessed: str


def pairs(result: Result) -> list[Pair]:
    """All of which a result has both."""
    found = (Pair(arm, guessing(arm)) for arm in result.arms if policy(arm) is not None and not is_guessing(arm))
    return [pair for pair in found if pair.guessed in result.arms]


def aims(result: Result, judge: Judge) -> Iterator[Target]:
    """The targets of a result that was timed to the end; none where nothing was guessed."""
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
        if found:  # of prompts that begin alike and others that do not the lesser counts
            reached, part = min(found, key=lambda each: each[0].middle)
            what, note = f"end to end, {name}: {guessed} ÷ {arm}", counted(part)
            yield Target(what=what, bound=MUCH_SOONER, reached=reached, note=note, words=judge(own, arm))
    yield _least(result=result, arm=guessed, to=arm, there=there, bound=NEVER_BELOW).model_copy(
        update={"words": judge(there, arm)}
    )


def _least(result: Result, arm: str, to: str, there: list[str], bound: float) -> Target:
    """The target of the worst of these."""
    found: dict[str, Spread] = {subject: result.ratio([subject], arm, to, "seconds") for subject in there}
    least = min(found, key=lambda subject: found[subject].middle)
    return Target(what=f"end to end, the least of all: {arm} ÷ {to}", bound=bound, reached=found[least], note=least)


def family(subject: str) -> str:
    """Of which workflow a subject is: "trace NAME" of one game of a trace file, and else its own name."""
    if subject.startswith(TRACE):
        return " ".join(subject.split(" ")[:2])
    return subject.removesuffix(UNNAMED)


def counted(subjects: list[str]) -> str:
    """One by its name, several by how many they are."""
    return subjects[0] if len(subjects) == 1 else f"{len(subjects)} workflows together"

"""Attack by asking the model: Bob, after the public sentence as he reads it, is asked for each symbol of the secret.

The best question is selected on secrets that are not tested; the mean likelihood of each answer, whatever the secret,
is estimated there and subtracted. Options with the same first token get the same score.
"""

from __future__ import annotations

import numpy as np

from agentcho.lab.leaks.guesses import Case, Guess, Scores, Sharpened, answered, sharpened
from agentcho.lab.leaks.scene import answer
from agentcho.lab.measure.play import Play
from agentcho.lab.measure.stage import Stage


def asked(case: Case) -> Guess:
    """Ask all questions about some secrets, and the best one about those that are tested."""
    some = case.split.check[: case.effort.asked]
    truth, plays = case.of(some), case.plays(some)
    best: tuple[Sharpened, int, list[Scores]] | None = None
    told = [_told(case, play, range(case.effort.templates)) for play in plays]
    for template in range(case.effort.templates):
        scores = _by_slot(told, template)
        usual = [each.mean(axis=0, keepdims=True) for each in scores]
        sharp = sharpened([each - mean for each, mean in zip(scores, usual, strict=True)], truth)
        if best is None or sharp.bits < best[0].bits:
            best = sharp, template, usual
    assert best is not None
    sharp, template, usual = best
    tested = [_told(case, play, [template]) for play in case.plays(case.split.test)]
    scores = [each - mean for each, mean in zip(_by_slot(tested, template), usual, strict=True)]
    return answered(case, scores, sharp, f"question {template + 1} of {case.effort.templates}")


def _told(case: Case, play: Play, templates: range | list[int]) -> dict[tuple[int, int], Scores]:
    """The log-probability of each option's first token, by template and slot."""
    found = {}
    with Stage(case.engine, play, case.way.policy) as stage:
        for template in templates:
            for slot, choices in enumerate(case.scene.choices):
                row = stage.rows(answer(template, slot))[0]
                found[template, slot] = row[list(choices)].astype(np.float64)
    case.told("questions")
    return found


def _by_slot(told: list[dict[tuple[int, int], Scores]], template: int) -> list[Scores]:
    slots = sorted(slot for number, slot in told[0] if number == template)
    return [np.stack([each[template, slot] for each in told]) for slot in slots]

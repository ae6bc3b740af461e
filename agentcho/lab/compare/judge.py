"""A model as judge of pairs of texts: which of two does its task better, asked in both orders.

A text wins if it is preferred in both orders; otherwise the pair is a tie. Independent of columns and scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from agentcho.lab.compare.comparison import Preference
from agentcho.lab.stats import clopper_pearson, mcnemar
from agentcho.lab.timing import stoppable
from agentcho.protocol.call import Decode, EncodingId, EnginePort, Prefill, Sampling
from agentcho.scenario import Judged

RULES = (
    "You compare two texts that were written for the same task. Say which of them is better: A or B. Judge how well "
    "each does what the task asks, and how well it reads. The order in which they stand means nothing."
)
ASKED = "The task:\n{task}\n\nText A:\n{a}\n\nText B:\n{b}\n\nWhich text is better, A or B?"


class JudgePort(EnginePort, Protocol):
    """An engine whose calls block until they are done."""

    def prefill(self, calls: Sequence[Prefill]) -> list[EncodingId]: ...
    def decode(self, calls: Sequence[Decode]) -> list[EncodingId]: ...


class TextPair(NamedTuple):
    """Two texts for the same task: that of the first column, and that of another."""

    first: Judged
    other: Judged


def prefer(engine: JudgePort, pairs: Sequence[TextPair], told: Callable[[int], None], at_once: int = 16) -> Preference:
    """Count how often the second text of a pair is preferred to the first. Greedy: the same texts give the same
    verdicts. Ctrl-C ends it after the current pairs."""
    return stoppable(
        lambda check: _preferred(_verdicts(engine=engine, pairs=pairs, told=told, at_once=at_once, check=check))
    )


def _verdicts(
    engine: JudgePort, pairs: Sequence[TextPair], told: Callable[[int], None], at_once: int, check: Callable[[], None]
) -> list[int]:
    """For each pair, 1 if the second text is preferred in both orders, -1 if the first is, else 0."""
    verdicts: list[int] = []
    for start in range(0, len(pairs), at_once):
        check()
        some = pairs[start : start + at_once]
        straight = _chosen(engine, [ASKED.format(task=p.first.task, a=p.first.text, b=p.other.text) for p in some])
        swapped = _chosen(engine, [ASKED.format(task=p.first.task, a=p.other.text, b=p.first.text) for p in some])
        for one, two in zip(straight, swapped, strict=True):
            verdicts.append(1 if (one, two) == ("B", "A") else -1 if (one, two) == ("A", "B") else 0)
        told(len(verdicts))
    return verdicts


def _preferred(verdicts: Sequence[int]) -> Preference:
    wins, losses = verdicts.count(1), verdicts.count(-1)
    decided = wins + losses
    return Preference(
        games=len(verdicts),
        wins=wins,
        losses=losses,
        ties=verdicts.count(0),
        share=wins / decided if decided else 0.5,
        span=clopper_pearson(wins, decided),
        p=mcnemar(wins, losses),
    )


def _chosen(engine: JudgePort, questions: Sequence[str]) -> list[str]:
    """ "A" or "B" to each question."""
    rules = Prefill(RULES, role="system")
    told, *asked = engine.prefill([rules, *(Prefill(question, parents=[rules]) for question in questions)])
    choosing = Sampling(temperature=0, choices=("A", "B"))
    answers = engine.decode([Decode(parents=[told, question], sampling=choosing) for question in asked])
    said = [engine.message(id).text for id in answers]
    engine.release([told, *asked, *answers])
    return said

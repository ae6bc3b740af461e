"""The whole corpus: an endless, seeded stream of samples, and its held-out counterpart.

Every sentence is written by this project's own rules. The held-out split uses wordings, names and syllables that the
training split never uses (every fifth of each list).
"""

from __future__ import annotations

from collections.abc import Iterator

from .chat import arithmetic, chat, memory
from .debate import debate
from .dilemma import dilemma
from .discussion import discussion
from .grammar import Split, Writer
from .merging import merging
from .questions import questions
from .thoughts import thoughts
from .views import Sample

WRITERS = {
    "dilemma": dilemma,
    "debate": debate,
    "discussion": discussion,
    "thoughts": thoughts,
    "questions": questions,
    "merging": merging,
    "chat": chat,
    "sums": arithmetic,
    "recall": memory,
}
MIXTURE = {
    "dilemma": 0.12,
    "debate": 0.06,
    "discussion": 0.08,
    "thoughts": 0.25,
    "questions": 0.13,
    "merging": 0.09,
    "chat": 0.12,
    "sums": 0.10,
    "recall": 0.05,
}
FIRST = {"questions": 0.12, "merging": 0.08, "chat": 0.25, "sums": 0.20, "recall": 0.35}
SCHOOL = 14_000


def corpus(split: Split = "train", seed: int = 0, start: int = 0) -> Iterator[Sample]:
    """All samples of a split, without end, starting with workflow number `start`.

    Workflow n depends only on (split, seed, n), so a stream can resume anywhere.
    """
    number = start
    while True:
        yield from workflow(split, seed, number)
        number += 1


def workflow(split: Split, seed: int, number: int) -> list[Sample]:
    """The views of one workflow, one or more per agent.

    Training begins with `SCHOOL` workflows, most of them short, because copying is learned sooner from these.
    """
    mixture = FIRST if split == "train" and number < SCHOOL else MIXTURE
    writer = Writer(split, f"{seed}/{number}")
    kind = writer.random.choices(list(mixture), list(mixture.values()))[0]
    return WRITERS[kind](writer)

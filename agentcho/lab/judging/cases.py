"""Draws choices for judges: four close candidates in shuffled order, of which a judge has to pick one.

Candidates depend only on a seed, never on a model. As votes over a tree of thoughts: solutions of which one is right
and three have a slip each, chosen by number (`votes`) or by their answer (`answers`); or all four have a slip, chosen
by number (`slips`). As merges: four drafts with the same words, each with one sentence of its own, chosen by which of
them is repeated (`merges`). Independent of engines and reading modes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from agentcho.lab.bench.workflows import line, spoken, whole
from agentcho.records.trace import Workflow
from agentcho.tasks.arithmetic import Step, Story, draw_story
from agentcho.tasks.concepts import draw_concepts, nouns

CANDIDATES = 4
VOTER = (
    "You judge solutions of a question of arithmetic. Say the answer, go through the solutions, and end with your vote "
    "for one that is right."
)
SOLVER = "You solve a question of arithmetic. Work in short steps and end with your answer."
MERGER = "You merge the texts into one text that keeps every sentence of both."
WRITER = "You write a short text that uses every word of group 1."
THINGS = (
    "There is a {a}.",
    "She has a {a}.",
    "He looks for the {a}.",
    "The {a} is new.",
    "They talk about the {a}.",
)
ACTS = (
    "They {a} in the morning.",
    "We {a} every day.",
    "You can {a} here.",
    "They like to {a}.",
    "I {a} with my friends.",
)
OFF = (1, -1, 2, -2)
"""By how much a slip is off."""
TRIES = 20
"""The number of attempts after which slips get larger: a short story allows too few small ones."""


class Candidate(NamedTuple):
    """The message of one author, and the words by which it is chosen."""

    author: str
    header: str
    text: str
    chosen: str


class Case(NamedTuple):
    """One choice. `by`: the judge's name in the workflow. `before`: the messages that authors read; the judge reads
    those in `shown`. `candidates` are in the order in which the judge reads them; `header`: what the judge says before
    it chooses."""

    by: str
    authors: str
    judge: str
    before: tuple[tuple[str, str], ...]
    shown: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    header: str


class Written(NamedTuple):
    """Some choices as one workflow. `ballots`: for each choice, the decodes that say each candidate's words, in order;
    `read`: the messages that each judge reads, without its system prompt."""

    workflow: Workflow
    ballots: tuple[tuple[str, ...], ...]
    read: tuple[tuple[str, ...], ...]


def votes(dice: random.Random) -> Case:
    """Solutions chosen by number."""
    return _solutions(dice, "I vote for solution ", lambda number, answer: f"{number}.")


def slips(dice: random.Random) -> Case:
    """Solutions chosen by number, none of which is right."""
    return _solutions(dice, "I vote for solution ", lambda number, answer: f"{number}.", right=False)


def answers(dice: random.Random) -> Case:
    """Solutions chosen by answer."""
    return _solutions(dice, "The answer is ", lambda number, answer: f"{answer}.")


def merges(dice: random.Random) -> Case:
    """Drafts chosen by their text."""
    words = draw_concepts(dice, "words", 8).words
    group = words[:CANDIDATES]
    frames = [dice.sample(THINGS if word in nouns() else ACTS, 2) for word in group]
    sentences = [[frame.format(a=word) for frame in pair] for word, pair in zip(group, frames, strict=True)]
    drafts = list[Candidate]()
    for other, name in enumerate(("eva", "finn", "ida", "joe")):
        text = " ".join(pair[place == other] for place, pair in enumerate(sentences))
        drafts.append(Candidate(name, "Text 1: ", text, text))
    plan = f"Group 1: {', '.join(group)}\nGroup 2: {', '.join(words[4:])}"
    before = (("words", f"The words are: {', '.join(words)}."), ("plan", plan))
    return Case(
        by="gus",
        authors=WRITER,
        judge=MERGER,
        before=before,
        shown=(),
        candidates=_shuffled(dice, drafts),
        header="Merged: ",
    )


TASKS: Mapping[str, Callable[[random.Random], Case]] = {
    "votes": votes,
    "slips": slips,
    "answers": answers,
    "merges": merges,
}
"""All tasks by name."""


def _solutions(dice: random.Random, header: str, chosen: Callable[[int, int], str], right: bool = True) -> Case:
    story = draw_story(dice)
    works = {story.answer: " ".join(f"{step}." for step in story.steps)}
    for tries in count():
        sums, answer = _slip(dice, story, 1 + tries // TRIES)
        if "= -" not in sums:
            works.setdefault(answer, sums)
        if len(works) == CANDIDATES + (not right):
            break
    worked = list(works.items())[-CANDIDATES:]
    dice.shuffle(worked)
    found = [
        Candidate(f"solver-{n}", f"Solution {n}: ", f"{sums} The answer is {answer}.", chosen(n, answer))
        for n, (answer, sums) in enumerate(worked, start=1)
    ]
    asked = (("question", f"The question is: {story.question}"),)
    return Case(
        by="voter-1",
        authors=SOLVER,
        judge=VOTER,
        before=asked,
        shown=("question",),
        candidates=_shuffled(dice, found),
        header=header,
    )


def _slip(dice: random.Random, story: Story, times: int) -> tuple[str, int]:
    """All sums of a story with one wrong result, off by `times` a small amount, from which the rest follows; and the
    final result, which may be negative."""
    wrong = dice.randrange(len(story.steps))
    value = story.steps[0].left
    sums = list[str]()
    for place, step in enumerate(story.steps):
        now = Step(value, step.sign, step.right)
        value = abs(now.result + times * dice.choice(OFF)) if place == wrong else now.result
        sums.append(f"{now.left} {now.sign} {now.right} = {value}.")
    return " ".join(sums), value


def _shuffled(dice: random.Random, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    return tuple(dice.sample(candidates, len(candidates)))


def drawn(task: str, number: int, seed: int) -> Case:
    """Choice `number` of a task, independent of the other options."""
    return TASKS[task](random.Random(f"judge/{seed}/{task}/{number}"))


def written(task: str, cases: Sequence[Case], judging: bool) -> Written:
    """These choices side by side. `judging`: the judges' views are marked as such, so that the policy repairs them."""
    lines = list[dict[str, Any]]()
    ballots = list[tuple[str, ...]]()
    read = list[tuple[str, ...]]()
    for number, case in enumerate(cases):
        written_here, voted, heard = _lines(case, f"{number}.", judging)
        lines += written_here
        ballots.append(voted)
        read.append(heard)
    agents = sorted({name for case in cases for name in (case.by, *(each.author for each in case.candidates))})
    return Written(whole(f"judge-{task}", len(cases), agents, lines), tuple(ballots), tuple(read))


def _lines(case: Case, at: str, judging: bool) -> tuple[list[dict[str, Any]], tuple[str, ...], tuple[str, ...]]:
    """The messages of one choice; their ids begin with `at`."""
    scenario, known = {"author": None}, [f"{at}authors", *(f"{at}{name}" for name, _ in case.before)]
    lines = [line(f"{at}{name}", case.by, (), text, role="user") | scenario for name, text in case.before]
    for name, text in (("authors", case.authors), ("rules", case.judge)):
        lines.append(line(f"{at}{name}", case.by, (), text) | scenario)
    for each in case.candidates:
        words = {"header": each.header, "name": each.author}
        lines.append(spoken(f"{at}{each.author}", each.author, known, each.text, **words))
    heard = (*(f"{at}{name}" for name in case.shown), *(f"{at}{each.author}" for each in case.candidates))
    more = {"header": case.header, "name": case.by} | ({"reuse": "judge"} if judging else {})
    voted = tuple(f"{at}vote{place}" for place in range(len(case.candidates)))
    for id, each in zip(voted, case.candidates, strict=True):
        lines.append(spoken(id, case.by, (f"{at}rules", *heard), each.chosen, **more))
    return lines, voted, heard

"""Writes the generators' tasks in the form of the published sets, to test the sets' loaders end to end on a model that
only knows these tasks: a game has to say the same with and without a loader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentcho.lab.collect import Games
from agentcho.lab.paper.found import LoadedFound
from agentcho.lab.paper.sets import PUBLISHED, sets
from agentcho.records.files import replace_whole, write_errors
from agentcho.tasks import Concepts, Problem, Task, TaskSet

SOME, FEW = 20, 5
"""The number of games of a workflow on which a loader is tried, and the number with `--quick`."""
A_ROW = 5
"""Words of a row in CommonGen's form; rows are joined as those of the set itself are."""


def formed(scenario: str, tasks: TaskSet, count: int, folder: Path) -> str:
    """Write the first `count` tasks of a scenario into `folder`, in the form of the set that the paper uses for it.
    Returns the task specification that loads them."""
    loader = PUBLISHED[scenario].partition(":")[0]
    file = folder / f"{scenario}-{tasks.digest[:12]}-{count}.{loader}.jsonl"
    rows = (row for number in range(count) for row in _rows(loader, number, tasks[number]))
    with write_errors(file):
        folder.mkdir(parents=True, exist_ok=True)
    replace_whole(file, "".join(f"{json.dumps(row)}\n" for row in rows))
    return sets("published", folder, {scenario: f"{loader}:{file}"}, {scenario})[scenario].compared


def _rows(loader: str, number: int, task: Task) -> Iterator[dict[str, Any]]:
    """A task as rows of a published set."""
    assert isinstance(task, Problem | Concepts)
    if isinstance(task, Concepts):
        for at in range(0, len(task.words), A_ROW):
            some = list(task.words[at : at + A_ROW])
            yield {"concept_set_idx": number * len(task.words) + at, "concepts": some, "target": ""}
    elif loader == "triviaqa":
        answer = {"value": task.answers[0], "aliases": list(task.answers)}
        yield {"question_id": str(number), "question": task.question, "answer": answer}
    else:
        solution = f"It is $\\boxed{{{task.answers[0]}}}$."
        row = {"unique_id": f"{number}.json", "problem": task.question, "solution": solution}
        yield row | {"answer": task.answers[0]}


def compared(loader: str, score: str, games: int, without: Games, through: Games) -> LoadedFound:
    """Compare the same games without and through a loader: how many are the same in every text, and means of a
    score."""
    numbers = range(games)
    same = sum(_said(without, number) == _said(through, number) for number in numbers)
    means = [_mean(each, score, numbers) for each in (without, through)]
    return LoadedFound(loader=loader, games=games, same=same, score=score, without=means[0], through=means[1])


def _said(games: Games, number: int) -> Sequence[str]:
    return [message.text for message in games.workflows[number].whole.messages if message.author is not None]


def _mean(games: Games, score: str, numbers: range) -> float | None:
    """The mean of a score; None: no game ended with an outcome."""
    scores: list[Mapping[str, float]] = [games.finished[number].score for number in numbers]
    values = [each[score] for each in scores if score in each]
    return sum(values) / len(values) if values else None

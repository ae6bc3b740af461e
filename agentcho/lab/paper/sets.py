"""The tasks of the paper's workflows: generators for the understudy, the published sets for other models.

Compared and trained tasks are disjoint: a generator uses another seed, the facts another half; a published set uses the
tasks after the compared ones.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from agentcho.errors import TaskError
from agentcho.records.files import replace_whole, write_errors
from agentcho.tasks import Concepts, Problem, Task, TaskSet, task_set

Data = Literal["generators", "published"]
WORDS = 30
"""Words per task of Branch-Solve-Merge."""


class Sets(NamedTuple):
    """The specifications of one workflow's tasks: to compare on, and to train on."""

    compared: str
    trained: str


GENERATORS = {
    "multi-qa": Sets("facts:half=2", "facts:half=1"),
    "branch-solve-merge": Sets(f"concepts:size={WORDS}", f"concepts:size={WORDS}"),
    **dict.fromkeys(("direct", "tree-of-thoughts", "debate", "parallel-debate"), Sets("arithmetic", "arithmetic")),
}
PUBLISHED = {
    "multi-qa": "triviaqa",
    "branch-solve-merge": "commongen:@train",
    **dict.fromkeys(("direct", "tree-of-thoughts", "debate", "parallel-debate"), "math"),
}
"""CommonGen's word sets are joined up to `WORDS`; only its training split has enough of them."""


def sets(data: Data, folder: Path, given: Mapping[str, str], named: Collection[str]) -> dict[str, Sets]:
    """The task specifications of the `named` workflows. `given` overrides some, by workflow: files of a published set,
    for a machine without a network. `TaskError`: a set cannot be obtained. Joined words are written into `folder`."""
    if data == "generators":
        known = {name: two for name, two in GENERATORS.items() if name in named}
        return {name: Sets(given[name], given[name]) if name in given else two for name, two in known.items()}
    specs = {name: given.get(name, spec) for name, spec in PUBLISHED.items() if name in named}
    words = "branch-solve-merge"
    if words in specs and specs[words].startswith("commongen"):
        specs[words] = _joined(specs[words], folder)
    return {name: Sets(spec, spec) for name, spec in specs.items()}


def _joined(spec: str, folder: Path) -> str:
    """Join the words of a set into tasks of `WORDS` words, written as a file of our own."""
    tasks = task_set(spec, Concepts)
    found = list[tuple[str, ...]]()
    words = dict[str, None]()
    for number in range(tasks.size or 0):
        task = tasks[number]
        assert isinstance(task, Concepts)
        words |= dict.fromkeys(word.lower() for word in task.words)
        if len(words) >= WORDS:
            found.append(tuple(words)[:WORDS])
            words = {}
    if not found:
        raise TaskError(spec, None, f"has fewer than {WORDS} different words in all")
    file = folder / f"words-{tasks.digest[:12]}.jsonl"
    with write_errors(file):
        folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"id": f"{WORDS}/{number}", "words": each}) for number, each in enumerate(found))
    replace_whole(file, "".join(f"{line}\n" for line in lines))
    return str(file)


def texts(tasks: TaskSet, count: int) -> list[str]:
    """The texts of the first `count` tasks, as games are told them."""
    return [_asked(tasks[number]) for number in range(count)]


def _asked(task: Task) -> str:
    assert isinstance(task, Problem | Concepts)
    return task.question if isinstance(task, Problem) else ", ".join(task.words)

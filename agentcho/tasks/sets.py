"""Task sets: an immutable sequence of tasks by its specification.

Does not know: games, scenarios, models.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from agentcho.errors import BadTasks
from agentcho.tasks.arithmetic import draw_problem
from agentcho.tasks.concepts import draw_concepts
from agentcho.tasks.facts import draw_fact
from agentcho.tasks.task import Concepts, Problem, Task

Draw = Callable[..., Task]


class Generator(NamedTuple):
    """A built-in source of tasks: what they are, how one is drawn, its option with bounds, if it has one."""

    kind: type[Task]
    draw: Draw
    option: str | None = None
    bounds: tuple[int, int] = (0, 0)


def generators() -> dict[str, Generator]:
    """The built-in generators by name."""
    return {
        "arithmetic": Generator(Problem, draw_problem, "steps", (1, 6)),
        "facts": Generator(Problem, draw_fact),
        "concepts": Generator(Concepts, draw_concepts, "size", (2, 60)),
    }


class TaskSet:
    """Tasks by number, the same each time. `size` None: without end. `digest` is of what they are: of the text of a
    file, or of a generator's name, options, seed and words."""

    def __init__(self, name: str, kind: type[Task], size: int | None, digest: str, at: Callable[[int], Task]) -> None:
        self.name, self.kind, self.size, self.digest = name, kind, size, digest
        self._at = at

    def __getitem__(self, number: int) -> Task:
        if number < 0 or (self.size is not None and number >= self.size):
            raise IndexError(number)
        return self._at(number)


def task_set(spec: str, kind: type[Task], seed: int = 0) -> TaskSet:
    """The tasks of a specification: a generator, as `arithmetic` or `arithmetic:steps=4`.

    `BadTasks`: there is no such set, or its tasks are of another kind.
    """
    name, _, options = spec.partition(":")
    generator = generators().get(name)
    if generator is None:
        raise BadTasks(spec, None, f"no such generator; there are {', '.join(generators())}")
    if not issubclass(generator.kind, kind):
        raise BadTasks(spec, None, f"its tasks are of the kind {generator.kind.__name__}, not {kind.__name__}")
    return _generated(spec, generator, _options(spec, generator, options), seed)


def _options(spec: str, generator: Generator, given: str) -> dict[str, int]:
    if not given:
        return {}
    key, _, value = given.partition("=")
    if key != generator.option or not value.isdecimal():
        wanted = f"{generator.option}=NUMBER" if generator.option else "none"
        raise BadTasks(spec, None, f"{given!r} is no option of it; its options: {wanted}")
    low, high = generator.bounds
    if not low <= int(value) <= high:
        raise BadTasks(spec, None, f"{key} is a number from {low} to {high}")
    return {key: int(value)}


def _generated(spec: str, generator: Generator, options: dict[str, int], seed: int) -> TaskSet:
    draw = partial(generator.draw, **options)

    def at(number: int) -> Task:
        return draw(random.Random(f"task/{spec}/{seed}/{number}"), f"{spec}/{seed}/{number}")

    first = "\n".join(at(number).model_dump_json() for number in range(8))
    return TaskSet(spec, generator.kind, None, hashlib.sha256(first.encode()).hexdigest(), at)

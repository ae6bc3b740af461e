"""Task sets: immutable sequences of tasks, found by their specification.

A specification is one line, so that a record can name the tasks exactly. Independent of games, scenarios and models.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from agentcho.errors import TaskError, asking
from agentcho.tasks.arithmetic import draw_problem
from agentcho.tasks.concepts import draw_concepts
from agentcho.tasks.facts import draw_fact
from agentcho.tasks.formats import Format, Merge, Read, formats, own, same
from agentcho.tasks.private import Vault, Vignette
from agentcho.tasks.rows import HubDataset, Row, RowError, of_dataset, of_file
from agentcho.tasks.task import Concepts, Problem, Task
from agentcho.tasks.vaults import draw_vault, draw_vignette
from agentcho.tasks.word_lists import lists

Draw = Callable[..., Task]


class Generator(NamedTuple):
    """A built-in source of tasks: their kind, how one is drawn, and its option with bounds, if it has one."""

    kind: type[Task]
    draw: Draw
    option: str | None = None
    bounds: tuple[int, int] = (0, 0)


def generators() -> dict[str, Generator]:
    """Return the built-in generators by name."""
    return {
        "arithmetic": Generator(Problem, draw_problem, "steps", (1, 6)),
        "facts": Generator(Problem, draw_fact, "half", (1, 2)),
        "concepts": Generator(Concepts, draw_concepts, "size", (2, 60)),
        "vaults": Generator(Vault, draw_vault),
        "vignettes": Generator(Vignette, draw_vignette),
    }


class TaskSet:
    """Tasks by number, from 0, the same each time.

    Attributes:
        name: The specification.
        kind: The class of the tasks.
        size: Number of tasks. None if there is no last one.
        digest: Digest of the tasks, or, for a generator, of its first tasks and its words.
    """

    def __init__(self, name: str, kind: type[Task], size: int | None, digest: str, at: Callable[[int], Task]) -> None:
        self.name = name
        self.kind = kind
        self.size = size
        self.digest = digest
        self._at = at

    def __getitem__(self, number: int) -> Task:
        if number < 0 or (self.size is not None and number >= self.size):
            raise IndexError(number)
        return self._at(number)


def task_set(spec: str, kind: type[Task], seed: int = 0) -> TaskSet:
    """Return the tasks of a specification.

    Args:
        spec: A generator, such as `arithmetic` or `arithmetic:steps=4`; a .json or .jsonl file; or a published format,
            such as `gsm8k` (from the Hugging Face hub), `gsm8k:test.jsonl`, or `gsm8k:someone/theirs` with another
            repository, where `@SPLIT` names a split.
        kind: The class of tasks that is wanted: `Problem`, `Concepts`, `Vault` or `Vignette`.
        seed: Seed of a generator.

    Returns:
        The tasks. `tasks[number]` is one of them, and `tasks.size` is their number, None if there is no last one.

    Raises:
        TaskError: There is no such set, its tasks are of another kind, or a file is broken. The error names the line.
    """
    name, _, rest = spec.partition(":")
    if (generator := generators().get(name)) is not None:
        _check_kind(spec, generator.kind, kind)
        return _generated(spec, generator, _options(spec, generator, rest), seed)
    if (published := formats().get(name)) is not None:
        _check_kind(spec, published.kind, kind)
        rows, source = _rows(name, rest, published)
        return _listed(
            spec=spec, kind=published.kind, read=published.read, rows=rows, source=source, merge=published.merge
        )
    if Path(spec).suffix in {".json", ".jsonl"}:
        return _listed(spec=spec, kind=kind, read=own(kind), rows=of_file(Path(spec)), source=spec)
    known = (*generators(), *formats())
    raise TaskError(spec, None, f"is neither a .jsonl or .json file nor one of {', '.join(known)}{asking(name, known)}")


def _check_kind(spec: str, found: type[Task], wanted: type[Task]) -> None:
    if found is not wanted:
        raise TaskError(
            spec,
            None,
            (
                f"has tasks of the kind {found.__name__}, but the scenario needs {wanted.__name__}; give "
                "another task set"
            ),
        )


def _rows(name: str, rest: str, published: Format) -> tuple[list[Row], str]:
    """Return the rows of a published set, from a file or from the hub, and where they come from."""
    if Path(rest).suffix in {".json", ".jsonl"}:
        return of_file(Path(rest)), rest
    id, _, split = rest.partition("@")
    home = published.hosted
    if not id and home is None:
        raise TaskError(name, None, f"has no known location on a hub; give its file, as {name}:FILE.jsonl")
    known = home is not None and id in ("", home.id)
    hosted = home if home is not None and known else HubDataset(id, None, home.split if home else "train")
    hosted = hosted._replace(split=split or hosted.split)
    return of_dataset(hosted), hosted.id


def _listed(spec: str, kind: type[Task], read: Read, rows: list[Row], source: str, merge: Merge = same) -> TaskSet:
    """Return the tasks of rows. Rows with the same task count once (CommonGen has one row per sentence)."""
    tasks: dict[str, Task] = {}
    places: dict[str, int] = {}
    for row in rows:
        task = _read(source, kind, read, row)
        merged = merge(tasks.get(task.id, task), task)
        if merged is None:
            raise TaskError(
                source,
                row.place,
                f"repeats the id {task.id!r} of entry {places[task.id]}; give each task an id of its own",
            )
        tasks[task.id] = merged
        places.setdefault(task.id, row.place)
    listed = tuple(tasks.values())
    lines = "\n".join(task.model_dump_json() for task in listed)
    return TaskSet(
        name=spec, kind=kind, size=len(listed), digest=hashlib.sha256(lines.encode()).hexdigest(), at=listed.__getitem__
    )


def _read(source: str, kind: type[Task], read: Read, row: Row) -> Task:
    try:
        return read(row.fields, str(row.place))
    except RowError as error:
        raise TaskError(source, row.place, str(error)) from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = first["loc"]
        if place == ("answers", 0) and "answer" in row.fields:  # the first of them
            place = ("answer",)
        if first["type"] == "extra_forbidden":
            told = f"there is no field {place[-1]!r}{asking(str(place[-1]), kind.model_fields)}"
        elif first["type"] == "missing":
            told = f"has no field {place[-1]!r}"
        else:
            told = ": ".join([*filter(None, [_place(place)]), first["msg"].removeprefix("Value error, ")])
        raise TaskError(source, row.place, told) from None


def _place(place: tuple[int | str, ...]) -> str:
    """Return a place in a row: the name of a field, and the number of an item in it, from 1."""
    return ", ".join(f"item {each + 1}" if isinstance(each, int) else each for each in place)


def _options(spec: str, generator: Generator, given: str) -> dict[str, int]:
    if not given:
        return {}
    key, _, value = given.partition("=")
    if key != generator.option or not value.isdecimal():
        wanted = f"{generator.option}=NUMBER" if generator.option else "none"
        raise TaskError(spec, None, f"{given!r} is not one of its options: {wanted}")
    low, high = generator.bounds
    if not low <= int(value) <= high:
        raise TaskError(spec, None, f"{key} must be a number from {low} to {high}")
    return {key: int(value)}


def _generated(spec: str, generator: Generator, options: dict[str, int], seed: int) -> TaskSet:
    name, draw = spec.partition(":")[0], partial(generator.draw, **options)

    def at(number: int) -> Task:
        return draw(random.Random(f"task/{spec}/{seed}/{number}"), f"{spec}/{seed}/{number}")

    first = "\n".join(at(number).model_dump_json() for number in range(8))
    told = json.dumps([first, {key: list(words) for key, words in lists(name).items()}])
    return TaskSet(name=spec, kind=generator.kind, size=None, digest=hashlib.sha256(told.encode()).hexdigest(), at=at)

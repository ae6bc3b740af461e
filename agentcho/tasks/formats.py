"""Reads rows of a file as tasks: agentcho's own format, and those of MATH, GSM8K, TriviaQA, CommonGen, AgentLeak and
PrivacyLens.

Each format turns the fields of one row into a task. Independent of files and the hub.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agentcho.tasks.disclosure import agentleak, privacylens
from agentcho.tasks.private import Vault, Vignette
from agentcho.tasks.rows import Fields, HubDataset, RowError
from agentcho.tasks.task import Concepts, Problem, Task

Read = Callable[[Fields, str], Task]
Merge = Callable[[Task, Task], Task | None]
"""Joins two tasks with the same id. None: they are different tasks."""


def same(first: Task, second: Task) -> Task | None:
    """The task, if both are equal."""
    return first if first == second else None


class Format(NamedTuple):
    """The kind of its tasks, the function that reads a row (its fields, and an id for rows without one), the location
    of the published set on the hub, or None if there is no known one, and the function that joins tasks with the same
    id."""

    kind: type[Task]
    read: Read
    hosted: HubDataset | None
    merge: Merge = same


def formats() -> dict[str, Format]:
    """The published formats by name."""
    return {
        "math": Format(Problem, _math, HubDataset("HuggingFaceH4/MATH-500", None, "test")),
        "gsm8k": Format(Problem, _gsm8k, HubDataset("openai/gsm8k", "main", "test")),
        "triviaqa": Format(
            Problem, _triviaqa, HubDataset("mandarjoshi/trivia_qa", "rc.nocontext", "validation"), _with_all_answers
        ),
        "commongen": Format(Concepts, _commongen, HubDataset("allenai/common_gen", None, "validation")),
        "agentleak": Format(Vault, agentleak, None),
        "privacylens": Format(Vignette, privacylens, HubDataset("SALT-NLP/PrivacyLens", None, "train")),
    }


def own(kind: type[Task]) -> Read:
    """A row of agentcho's own files: the fields of `Problem` (`answer` may stand for one of `answers`) or `Concepts`. A
    `Vault` is a row in AgentLeak's format, a `Vignette` one in PrivacyLens's.

    Raises pydantic's ValidationError, or `RowError`.
    """
    published: dict[type[Task], Read] = {Vault: agentleak, Vignette: privacylens}
    if kind in published:
        return published[kind]

    def read(fields: Fields, id: str) -> Task:
        given: Fields = {"id": id} | fields
        if kind is Problem and "answer" in given:
            given["answers"] = [given.pop("answer"), *_list(given, "answers")]
        if kind is Problem and not given.get("answers"):
            raise RowError("has no field 'answer' (or 'answers')")
        return kind.model_validate(given)

    return read


def _math(fields: Fields, id: str) -> Problem:
    answer = fields.get("answer") or boxed(_text(fields, "solution"))
    named, question = str(fields.get("unique_id") or id), _text(fields, "problem")
    return Problem(id=named, question=question, answers=(answer,), check="math")


def boxed(solution: str) -> str:
    """What the last \\boxed{...} of a solution holds."""
    start = solution.rfind("\\boxed")
    if start < 0:
        raise RowError("its solution has no \\boxed{...}")
    if bare := re.match(r"\\boxed\s+([^\s{$.]+)", solution[start:]):
        return bare[1]
    opened = solution.find("{", start)
    if opened < 0:
        raise RowError("its solution has no \\boxed{...}")
    depth = 0
    for place in range(opened, len(solution)):
        depth += {"{": 1, "}": -1}.get(solution[place], 0)
        if depth == 0:
            return solution[opened + 1 : place]
    raise RowError("the \\boxed{ of its solution is never closed")


def _gsm8k(fields: Fields, id: str) -> Problem:
    found = re.search(r"####\s*(-?[\d.,]+)\s*$", _text(fields, "answer"))
    if found is None:
        raise RowError("its answer does not end in '#### NUMBER'")
    return Problem(id=id, question=_text(fields, "question"), answers=(found[1],), check="number")


def _triviaqa(fields: Fields, id: str) -> Problem:
    plain = {key.lower().replace("_", ""): value for key, value in fields.items()}
    answer = plain.get("answer")
    if not isinstance(answer, dict):
        raise RowError("has no field 'answer' with 'value' and 'aliases'")
    known = {key.lower().replace("_", ""): value for key, value in answer.items()}
    accepted = [known.get("value"), *_list(known, "aliases"), *_list(known, "normalizedaliases")]
    if others := [each for each in accepted if each is not None and not isinstance(each, str)]:
        raise RowError(f"its answer has {others[0]!r}, which is not a text")
    comparable = [each for each in accepted if each and re.search(r"\w", each)]
    if not comparable:
        raise RowError("its answer has neither 'value' nor 'aliases' with a word to compare")
    named, question = str(plain.get("questionid", id)), _text(plain, "question")
    return Problem(id=named, question=question, answers=_ordered(comparable))


def _ordered(answers: Sequence[str]) -> tuple[str, ...]:
    """The first answer, then the others in alphabetical order, each once."""
    return (answers[0], *sorted(set(answers) - {answers[0]}))


def _with_all_answers(first: Task, second: Task) -> Task | None:
    """The question with the answers of both tasks. The published set lists a question once for the Web and once for
    Wikipedia, with different answers."""
    if not (isinstance(first, Problem) and isinstance(second, Problem)) or first.question != second.question:
        return None
    return first.model_copy(update={"answers": _ordered((*first.answers, *second.answers))})


def _commongen(fields: Fields, id: str) -> Concepts:
    words = fields.get("concepts")
    if words is None and isinstance(fields.get("concept_set"), str):
        words = [word.partition("_")[0] for word in fields["concept_set"].split("#")]
    if not isinstance(words, list) or not words:
        raise RowError("has neither 'concepts' nor 'concept_set'")
    return Concepts(id=str(fields.get("concept_set_idx", id)), words=tuple(words))


def _list(fields: Fields, name: str) -> list[Any]:
    """A field that may be missing or null."""
    value: Any = fields.get(name)
    if value is not None and not isinstance(value, list):
        raise RowError(f"its field {name!r} is not a list; give a list of texts, or leave it out")
    return value or []


def _text(fields: Fields, name: str) -> str:
    value: Any = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RowError(f"has no text in its field {name!r}")
    return value.strip()

"""What a task is: a question with accepted answers, or words that a text must use; and when it is solved.

Does not know: where tasks come from, who works at them.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentcho.tasks.inflection import forms

Check = Literal["text", "number", "math"]
ARTICLE = re.compile(r"^(?:a|an|the) ")
SAID = re.compile(r"answer(?: is|:)\s*((?:(?!answer(?: is|:))[^\n])*?)(?:[.!?](?=\s|$)|\n|$)", re.IGNORECASE)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


class Problem(BaseModel):
    """A question. `answers` are accepted, the first is the one to print; `check` says how an answer is compared:
    as words ("text"), by the last number said ("number"), or as mathematics ("math", by math-verify)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(min_length=1)]
    question: Annotated[str, Field(min_length=1)]
    answers: tuple[str, ...] = ()
    check: Check = "text"

    def right(self, said: str) -> bool:
        """Whether what was said is, or ends in, an accepted answer."""
        if self.check == "math":
            from agentcho.tasks.mathematics import equal

            return any(equal(said, answer) for answer in self.answers)
        return self.answer_in(said) in {self._plain(answer) for answer in self.answers}

    def answer_in(self, said: str) -> str:
        """The answer that a text ends on, in the form in which answers are compared: what stands after its last
        "answer is", or else all of it; of a number its last one. Empty: it has none."""
        found = SAID.findall(said)
        return self._plain(found[-1] if found else said)

    def _plain(self, answer: str) -> str:
        if self.check == "math":
            return answer.strip()
        if self.check == "number":
            found = NUMBER.findall(answer)
            return _number(found[-1]) if found else ""
        words = re.sub(r"[^\w\s]", " ", answer.casefold())
        return ARTICLE.sub("", " ".join(words.split()))


def _number(digits: str) -> str:
    """A number without commas, and without zeros that say nothing."""
    plain = digits.replace(",", "")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


class Concepts(BaseModel):
    """Words that a text must use, in any regular or known irregular form."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(min_length=1)]
    words: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]

    def covered(self, text: str) -> frozenset[str]:
        """Those of the words that the text uses."""
        said = set(re.findall(r"\w+", text.casefold()))
        return frozenset(word for word in self.words if said & forms(word.casefold()))


Task = Problem | Concepts

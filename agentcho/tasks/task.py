"""Tasks: a question with accepted answers, or words that a text must use, and when they are solved.

Tasks with secrets are in `private`. Independent of where tasks come from.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from agentcho.tasks.inflection import forms
from agentcho.tasks.private import Vault, Vignette

Check = Literal["text", "number", "math"]
ARTICLE = re.compile(r"^(?:a|an|the) ")
SAID = re.compile(r"answer(?: is|:)[\s*:]*((?:(?!answer(?: is|:))[^\n])*)", re.IGNORECASE)
ENDED = re.compile(r"[.!?](?=\s|$)|$")
WORD = re.compile(r"[^\W_]+")
NUMBER = re.compile(r"(?:(?<![\w.)])[-\u2212])?\d[\d,]*(?:\.\d+)?")


class Problem(BaseModel):
    """A question with accepted answers.

    Args:
        id: Id of the task.
        question: The question.
        answers: Accepted answers. The first is the one to print.
        check: How an answer is compared: as words ("text"), by the last number in it ("number"), or as mathematics
            ("math", by math-verify).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(min_length=1)]
    question: Annotated[str, Field(min_length=1)]
    answers: tuple[str, ...] = ()
    check: Check = "text"

    @model_validator(mode="after")
    def _comparable(self) -> Problem:
        """Refuse an answer with nothing to compare, because it would equal a text without any answer."""
        for answer in self.answers:
            if not self._plain(answer):
                wanted = "a number" if self.check == "number" else "a word"
                raise ValueError(
                    f"the answer {answer!r} does not contain {wanted}, which its check needs ({self.check})"
                )
        return self

    def right(self, said: str) -> bool:
        """Return whether a text is, or ends in, an accepted answer.

        Args:
            said: The text.

        Returns:
            True if it does.
        """
        if self.check == "math":
            from agentcho.tasks.mathematics import equal

            return any(equal(said, answer) for answer in self.answers)
        accepted = {self._plain(answer) for answer in self.answers}
        return any(self._plain(each) in accepted for each in self._readings(said))

    def answer_in(self, said: str) -> str:
        """Return the final answer of a text, in the form in which answers are compared.

        That is the sentence after its last "answer is" or "answer:", or else the whole text; for "number" the last
        number in it. All right answers have one form, so that they count together in a vote.

        Args:
            said: The text.

        Returns:
            The answer. Empty if there is none.
        """
        readings = [self._plain(each) for each in self._readings(said)]
        if self.check == "math":
            return self._plain(self.answers[0]) if self.right(said) else readings[0]
        accepted = [self._plain(answer) for answer in self.answers]
        return accepted[0] if any(each in accepted for each in readings) else readings[0]

    def _readings(self, said: str) -> list[str]:
        """Return the possible answers of a text: what follows its last "answer is", up to the end of each sentence
        after it.

        A dot may belong to a name such as St. Petersburg. A text without "answer is" is its own answer.
        """
        if not (found := SAID.findall(said)):
            return [said]
        ends = [end.start() for end in ENDED.finditer(found[-1])]
        return [found[-1][:end] for end in (ends[:1] if self.check == "number" else ends)]

    def _plain(self, answer: str) -> str:
        if self.check == "math":
            return answer.strip()
        if self.check == "number":
            found = NUMBER.findall(answer)
            return _number(found[-1]) if found else ""
        words = re.sub(r"[^\w\s]", " ", answer.casefold())
        return ARTICLE.sub("", " ".join(words.split()))


def _number(digits: str) -> str:
    """Return a number with an ASCII minus sign, without commas and without trailing zeros after the point."""
    plain = digits.replace(",", "").replace("\u2212", "-")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


class Concepts(BaseModel):
    """Words that a text must use, in any regular or known irregular form.

    Args:
        id: Id of the task.
        words: The words, each only once. "ice cream" counts as one, whose last word is inflected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(min_length=1)]
    words: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]

    @field_validator("words")
    @classmethod
    def _different(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        plain = [_words(word) for word in words]
        if again := [word for place, word in enumerate(words) if plain[place] in plain[:place]]:
            raise ValueError(f"{again[0]!r} is listed twice")
        if empty := [word for word, said in zip(words, plain, strict=True) if not said.strip()]:
            raise ValueError(f"{empty[0]!r} is not a word")
        return words

    def covered(self, text: str) -> frozenset[str]:
        """Return which of the words a text uses, in any form.

        Args:
            text: The text.

        Returns:
            The words.
        """
        said = _words(text)
        return frozenset(word for word in self.words if any(form in said for form in _forms(word)))


def _words(text: str) -> str:
    """Return a text in lower case without punctuation, with one space between words and at both ends."""
    return f" {' '.join(WORD.findall(text.casefold()))} "


def _forms(word: str) -> set[str]:
    *before, last = _words(word).split()
    return {_words(" ".join((*before, form))) for form in forms(last)}


Task = Problem | Concepts | Vault | Vignette

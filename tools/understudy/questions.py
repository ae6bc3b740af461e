"""Writes numbered questions, and one message that answers them all."""

from __future__ import annotations

from agentcho.tasks.facts import draw_fact

from .grammar import Writer
from .views import Sample, own, prompt
from .wordings import rules

NAMES = ("ann", "sam", "ida", "joe", "lea")


def questions(writer: Writer) -> list[Sample]:
    """One to four facts, all asked for at once."""
    asked = [draw_fact(writer.random, "fact") for _ in range(writer.random.choice((1, 2, 2, 2, 2, 3, 4)))]
    numbered = writer.wording(rules("work"), "canon.numbered")
    turns = [prompt("system", writer.write(rules("work"), "canon.answerer"))]
    turns += [prompt("user", numbered.format(n=n, question=each.question)) for n, each in enumerate(asked, 1)]
    said = "\n".join(f"{number}: {each.answers[0]}" for number, each in enumerate(asked, 1))
    turns.append(own(writer.random.choice(NAMES), said, weight=2.0))
    return [Sample("questions", turns[-1].name or "", tuple(turns), {"answers": said})]

"""Writes tasks in which words are split into two groups, used in two texts, and merged."""

from __future__ import annotations

from typing import NamedTuple

from agentcho.tasks.concepts import draw_concepts, nouns

from .grammar import Writer
from .views import Sample, Turn, heard, own, prompt
from .wordings import rules


class Group(NamedTuple):
    """The words of one writer, and its text."""

    words: tuple[str, ...]
    text: str


def draw_words(writer: Writer) -> tuple[str, ...]:
    """Four to twelve words, mostly eight."""
    return draw_concepts(writer.random, "words", writer.random.choice((4, 6, 8, 8, 8, 10, 12))).words


def write_text(writer: Writer, words: tuple[str, ...]) -> str:
    """A sentence for each word, or for two adjacent words of one kind."""
    sentences, left = [], list(words)
    while left:
        first = left.pop(0)
        noun = first in nouns()
        if left and (left[0] in nouns()) == noun and writer.chance(0.6):
            slots = {"a": first, "b": left.pop(0)}
            sentences.append(writer.write(rules("work"), "both" if noun else "twice", **slots))
        else:
            sentences.append(writer.write(rules("work"), "thing" if noun else "act", a=first))
    return " ".join(sentences)


def merging(writer: Writer) -> list[Sample]:
    """One task, in the views of the planner, of each writer and of the merger."""
    words = draw_words(writer)
    half = len(words) // 2
    groups = [Group(part, write_text(writer, part)) for part in (words[:half], words[half:])]
    split = "\n".join(f"Group {number}: {', '.join(group.words)}" for number, group in enumerate(groups, 1))
    listed = prompt("user", writer.write(rules("work"), "canon.words", words=", ".join(words)))
    plan = _seat(writer, "canon.planner", [listed, own("dan", split)])
    written, texts = list[Sample](), list[Turn]()
    for n, (name, group) in enumerate(zip(("eva", "finn"), groups, strict=True), 1):
        said = own(name, group.text, f"Text {n}: ")
        written.append(_seat(writer, "canon.writer", [listed, heard("dan", split), said], n=n))
        texts.append(heard(name, group.text, f"Text {n}: "))
    merged = own("gus", " ".join(group.text for group in groups), "Merged: ")
    return [plan, *written, _seat(writer, "canon.merger", [*texts, merged])]


def _seat(writer: Writer, symbol: str, turns: list[Turn], **slots: object) -> Sample:
    """One agent's view: its system prompt, followed by what it reads and says."""
    system = prompt("system", writer.write(rules("work"), symbol, **slots))
    return Sample("merging", turns[-1].name or "", (system, *turns), {"said": turns[-1].text})

"""Writes parallel solutions, votes for right ones, and immediate answers."""

from __future__ import annotations

from agentcho.tasks.arithmetic import Story

from .grammar import Writer
from .stories import draw_task
from .views import Sample, Turn, heard, own, prompt
from .wordings import rules
from .working import Working, work


def thoughts(writer: Writer) -> list[Sample]:
    """One question, in the views of a solver, a voter, the finisher and an agent that answers immediately."""
    story = draw_task(writer)
    asked = prompt("user", writer.write(rules("work"), "canon.asked", question=story.question))
    solver = writer.random.randint(1, 8)
    return [
        _seat(writer, "canon.solver", [asked, solution(solver, work(writer, story), True)]),
        judged(writer, story, asked),
        judged(writer, story, asked),
        judged(writer, story, asked),
        _seat(writer, "canon.helped", [asked, solution(solver, work(writer, story), False), answer("finisher", story)]),
        _seat(writer, "canon.responder", [asked, answer("sam", story)]),
    ]


def judged(writer: Writer, story: Story, asked: Turn) -> Sample:
    """A voter's view of solutions, some of them wrong."""
    solutions = draw_solutions(writer, story)
    shown = [solution(number, each, False) for number, each in enumerate(solutions, 1)]
    return _seat(writer, "canon.voter", [asked, *shown, vote(writer.random.randint(1, 4), solutions, story)])


def draw_solutions(writer: Writer, story: Story) -> list[Working]:
    """Two to eight solutions, at least one of which is usually right."""
    count, good = writer.random.choice((2, 3, 4, 4, 5, 6, 8, 8)), writer.random.uniform(0.1, 0.6)
    found = [work(writer, story, not writer.chance(good)) for _ in range(count)]
    if all(each.answer != story.answer for each in found) and writer.chance(0.8):
        found[writer.random.randrange(count)] = work(writer, story)
    return found


def solution(number: int, worked: Working, mine: bool) -> Turn:
    """A numbered solution. One with a slip is read but never trained on."""
    name, header = f"solver-{number}", f"Solution {number}: "
    text = f"{worked.sums} The answer is {worked.answer}."
    if mine:
        return own(name, text, header)
    return heard(name, text, header, weight=0.0 if worked.slip else 0.1)


def vote(judge: int, solutions: list[Working], story: Story) -> Turn:
    """One vote: the answer, a comment on each solution up to the first right one, and the number of that one."""
    says = [f"{story.answer}."]
    for number, each in enumerate(solutions, 1):
        says.append(f"Solution {number} says {each.answer}.")
        if each.answer == story.answer:
            says.append(f"I vote for solution {number}.")
            break
    else:
        says.append("None is right.")
    return own(f"voter-{judge}", " ".join(says), "The answer is ", weight=2.0)


def answer(name: str, story: Story) -> Turn:
    """The answer alone."""
    return own(name, f"{story.answer}.", "The answer is ", weight=2.0)


def _seat(writer: Writer, symbol: str, turns: list[Turn]) -> Sample:
    """One agent's view: its system prompt, followed by what it reads and says."""
    system = prompt("system", writer.write(rules("work"), symbol))
    return Sample("thoughts", turns[-1].name or "", (system, *turns), {"said": turns[-1].text})

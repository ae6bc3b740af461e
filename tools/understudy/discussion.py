"""Writes rounds in which several agents solve one question in parallel and read each other's last round."""

from __future__ import annotations

from agentcho.tasks.arithmetic import Story

from .grammar import Writer
from .stories import draw_task
from .views import Sample, Turn, heard, own, prompt
from .wordings import rules
from .working import Working, work

NAMES = ("ada", "ben", "cleo", "dan", "eli", "fay", "gil", "hana")


def discussion(writer: Writer) -> list[Sample]:
    """One agent's first turn, and a later turn after a round in which some turns may have slips."""
    story, count = draw_task(writer), writer.random.choice((2, 3, 3, 3, 4, 5))
    names = NAMES[:count] if writer.chance(0.6) else tuple(writer.random.sample(NAMES, count))
    slips = writer.random.choice((0.05, 0.3, 0.5))
    round_ = [work(writer, story, writer.chance(slips)) for _ in names]
    me = writer.random.randrange(count)
    asked = prompt("user", writer.write(rules("work"), "canon.asked", question=story.question))
    read = [heard(name, spoken(each), weight=0.0) for name, each in zip(names, round_, strict=True)]
    first = own(names[me], spoken(work(writer, story)))
    later = own(names[me], _again(writer, story, names, round_, me))
    return [_seat(writer, [asked, first]), _seat(writer, [asked, *read, later])]


def spoken(worked: Working) -> str:
    """A first turn."""
    return f"{worked.sums} The answer is {worked.answer}."


def _again(writer: Writer, story: Story, names: tuple[str, ...], round_: list[Working], me: int) -> str:
    """A later turn: always the right sums, in words that depend on who was right."""
    right = [number for number, each in enumerate(round_) if each.answer == story.answer and number != me]
    wrong = [number for number, each in enumerate(round_) if each.answer != story.answer and number != me]
    if round_[me].answer != story.answer:
        symbol, others = "again.mine", right
    else:
        symbol, others = ("again.other", wrong) if wrong else ("again.same", right)
    you = names[writer.random.choice(others)].capitalize() if others else "Nobody"
    worked = work(writer, story)
    return writer.write(rules("work"), symbol, you=you, sums=worked.sums, x=worked.answer)


def _seat(writer: Writer, turns: list[Turn]) -> Sample:
    """One agent's view: its system prompt, followed by what it reads and says."""
    me = turns[-1].name or ""
    system = prompt("system", writer.write(rules("work"), "canon.among", me=me.capitalize()))
    return Sample("discussion", me, (system, *turns), {"said": turns[-1].text})

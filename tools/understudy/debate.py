"""Writes debates over arithmetic stories, and each agent's own view of them."""

from __future__ import annotations

from typing import NamedTuple

from agentcho.tasks.arithmetic import Story

from .grammar import Writer
from .stories import draw_task
from .views import Sample, Turn, heard, own, prompt
from .wordings import rules
from .working import Working, work


class Speech(NamedTuple):
    """One debater's turn. A turn with a slip is read but never trained on."""

    speaker: int
    text: str
    answer: int
    slip: bool
    sums: str


class Debate(NamedTuple):
    """A whole debate: the names of the two debaters and the moderator, the question, and the turns by round."""

    names: tuple[str, str, str]
    story: Story
    rounds: tuple[tuple[Speech, Speech], ...]


def draw_names(writer: Writer) -> tuple[str, str, str]:
    """Two debaters and a moderator. One time in four they have the shipped scenario's names."""
    if writer.split == "train" and writer.chance(0.25):
        return "Ada", "Ben", "Mod"
    first = writer.name()
    second = writer.name(first)
    return (
        first,
        second,
        "Mod" if writer.split == "train" and writer.chance(0.3) else writer.name(first, second),
    )


def draw_debate(writer: Writer) -> Debate:
    """A debate that ends when both agree, after three rounds at most."""
    names, story = draw_names(writer), draw_task(writer)
    rounds: list[tuple[Speech, Speech]] = []
    slips = (writer.chance(0.35), writer.chance(0.08))
    stubborn = writer.chance(0.2)
    while len(rounds) < 3 and not (rounds and agreed(rounds[-1])):
        last = rounds[-1] if rounds else None
        first = speak(writer, names, story, 0, last[1] if last else None, last[0] if last else None, slips[0], stubborn)
        rounds.append((first, speak(writer, names, story, 1, first, last[1] if last else None, slips[1], stubborn)))
    return Debate(names, story, tuple(rounds))


def agreed(pair: tuple[Speech, Speech]) -> bool:
    """Whether a round ended on one answer."""
    return pair[0].answer == pair[1].answer


def speak(
    writer: Writer,
    names: tuple[str, str, str],
    story: Story,
    number: int,
    other: Speech | None,
    mine: Speech | None,
    slips: bool,
    stubborn: bool,
) -> Speech:
    """One turn: solve, check, concede or hold. A first turn may have a slip, which a stubborn debater sticks to."""
    again = mine is not None and mine.slip and stubborn and writer.chance(0.6)
    slip = again or (slips and mine is None)
    worked = Working(mine.sums, mine.answer, True) if again and mine else work(writer, story, slip)
    symbol = react(worked.answer, other, mine)
    slots = {"sums": worked.sums, "x": worked.answer, "wrong": other.answer if other else "", "things": story.things}
    text = writer.write(rules("debate"), symbol, me=names[number], you=names[1 - number], **slots)
    return Speech(number, text, worked.answer, worked.slip, worked.sums)


def react(value: int, other: Speech | None, mine: Speech | None) -> str:
    """What a turn does: solve first, later agree, correct, concede, hold or confirm."""
    if other is None:
        return "solve"
    if mine is None:
        return "agree" if value == other.answer else "correct"
    if value != other.answer:
        return "hold"
    return "concede" if mine.answer != value else "still"


def view(writer: Writer, debate: Debate, number: int) -> Sample:
    """What one debater reads and says."""
    me, you, mod = debate.names[number], debate.names[1 - number], debate.names[2]
    role = ("canon.first", "canon.second")[number]
    turns = [prompt("system", writer.write(rules("debate"), role, me=me, you=you, mod=mod))]
    turns.append(prompt("user", writer.write(rules("debate"), "canon.question", question=debate.story.question)))
    for pair in debate.rounds:
        turns += [turn(debate, speech, speech.speaker == number) for speech in pair]
    return Sample("debate", me.lower(), tuple(turns), {"answer": str(debate.story.answer)})


def turn(debate: Debate, speech: Speech, mine: bool) -> Turn:
    """A speech as its speaker or as another one reads it."""
    name = debate.names[speech.speaker]
    if mine:
        return own(name, speech.text, weight=0.0 if speech.slip else 1.0)
    return heard(name, speech.text, weight=0.0 if speech.slip else 0.2)


def moderated(writer: Writer, debate: Debate) -> Sample:
    """What the moderator reads and says."""
    first, second, mod = debate.names
    turns = [prompt("system", writer.write(rules("debate"), "canon.moderator", mod=mod, first=first, second=second))]
    turns.append(prompt("user", writer.write(rules("debate"), "canon.question", question=debate.story.question)))
    for number, pair in enumerate(debate.rounds, 1):
        turns += [turn(debate, speech, False) for speech in pair]
        ruling = "finish" if agreed(pair) else "continue"
        turns += ruled(writer, mod, "verdict", f'"{ruling}"', {"n": number})
    final = debate.rounds[-1][0].answer if agreed(debate.rounds[-1]) else debate.story.answer
    turns += ruled(writer, mod, "answer", str(final), {})
    return Sample("debate", mod.lower(), tuple(turns), {"answer": str(debate.story.answer)})


def ruled(writer: Writer, mod: str, key: str, value: str, slots: dict[str, int]) -> list[Turn]:
    """A private question to the moderator, and its answer as JSON, the beginning of which is usually in the header."""
    asked = prompt("user", writer.write(rules("debate"), f"canon.ask.{key}", mod=mod, **slots))
    opening, rest = f'{{"{key}": ', f"{value}}}"
    if writer.chance(0.1):
        return [asked, own(mod, opening + rest, weight=2.0)]
    return [asked, own(mod, rest, opening, weight=3.0)]


def debate(writer: Writer) -> list[Sample]:
    """One debate, as each of its agents sees it."""
    held = draw_debate(writer)
    return [view(writer, held, 0), view(writer, held, 1), moderated(writer, held)]

"""Games, debates and questions that test the model, which speaks in them.

Prompts have the shipped wording and names, or held-out ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from agentcho.tasks.arithmetic import Story

from .grammar import Writer, canonical
from .player import Player, Seat
from .stories import draw_task
from .wordings import rules
from .working import work

FOUND = re.compile(r"answer is (\d+)")
VOTED = re.compile(r"I vote for solution ([1-8])\b")
PAYOFFS = {"T": 5, "R": 3, "P": 1, "S": 0}


class Case(NamedTuple):
    """One trial: who plays, and how the prompts are worded."""

    names: tuple[str, ...]
    held_out: bool
    writer: Writer

    def prompt(self, file: str, symbol: str, **slots: object) -> str:
        """A prompt in this case's wording."""
        if self.held_out:
            return self.writer.write(rules(file), symbol, **slots)
        return canonical(rules(file), symbol, **slots)


def cases(count: int, seed: int, held_out: bool, shipped: tuple[str, ...]) -> list[Case]:
    """Trials with the shipped names, or with names that training never used."""
    found = []
    for number in range(count):
        writer = Writer("held-out", f"trial/{seed}/{number}")
        names: tuple[str, ...] = shipped
        if held_out:
            names = ()
            for _ in shipped:
                names += (writer.name(*names),)
        found.append(Case(names, held_out, writer))
    return found


class Dilemma:
    """Many prisoner's dilemma games at once. The first player is tested, the second may follow a script."""

    def __init__(self, player: Player, played: Sequence[Case], strategy: str, script: str | None, seed: int) -> None:
        self.player, self.cases, self.script, self.seed = player, played, script, seed
        self.seats = [tuple(Seat(name) for name in case.names) for case in played]
        for case, pair in zip(played, self.seats, strict=True):
            for number, seat in enumerate(pair):
                seat.read("system", self._system(case, number, strategy if number == 0 else "none"))

    def _slots(self, case: Case, number: int) -> dict[str, object]:
        return {"me": case.names[number], "you": case.names[1 - number], "rounds": "two rounds", **PAYOFFS}

    def _system(self, case: Case, number: int, strategy: str) -> str:
        slots, kind = self._slots(case, number), strategy.removeprefix("always-")
        told = "" if kind == "none" else case.prompt("dilemma", f"canon.{kind}", **slots)
        return case.prompt("dilemma", "canon.system", instruction=told, **slots)

    def _ask(self, number: int, symbol: str, header: str, limit: int) -> list[str]:
        seats = [pair[number] for pair in self.seats]
        for case, seat in zip(self.cases, seats, strict=True):
            seat.read("user", case.prompt("dilemma", symbol, **self._slots(case, number)))
        self.seed += 1
        return self.player.say(seats, [header] * len(seats), limit, 0.7, self.seed)

    def _talk(self, number: int) -> None:
        headers = [f"To {case.names[1 - number]}: " for case in self.cases]
        self.seed += 1
        if number == 1 and self.script:
            texts = [self._scripted(case, pair) for case, pair in zip(self.cases, self.seats, strict=True)]
        else:
            texts = self.player.say([pair[number] for pair in self.seats], headers, 80, 0.7, self.seed)
        for pair, header, text in zip(self.seats, headers, texts, strict=True):
            pair[1 - number].hear(pair[number].name, header, text)

    def _scripted(self, case: Case, pair: tuple[Seat, ...]) -> str:
        begun = any(turn.name == pair[1].name.lower() for turn in pair[0].turns)
        return case.writer.write(rules("talk"), f"{'next' if begun else 'reply'}.{self.script}", **self._slots(case, 1))

    def play(self) -> list[tuple[str, ...]]:
        """The decisions of each game. A scripted player makes none."""
        live = (0,) if self.script else (0, 1)
        for number in live:
            self._ask(number, "canon.ask.plan", "", 96)
        for turn in range(4):
            self._talk(turn % 2)
        decided = [self._ask(number, "canon.ask.decision", '{"decision": ', 16) for number in live]
        return [tuple(each) for each in zip(*decided, strict=True)]


class Debates:
    """Many debates at once. The model speaks for all three agents."""

    def __init__(self, player: Player, played: Sequence[Case], slip: bool, seed: int) -> None:
        self.player, self.cases, self.slip, self.seed = player, played, slip, seed
        self.stories: list[Story] = [draw_task(case.writer) for case in played]
        self.seats = [tuple(Seat(name) for name in case.names) for case in played]
        for case, story, seats in zip(played, self.stories, self.seats, strict=True):
            self._open(case, story, seats)

    def _open(self, case: Case, story: Story, seats: tuple[Seat, ...]) -> None:
        first, second, mod = case.names
        you = {"me": first, "you": second, "mod": mod}
        seats[0].read("system", case.prompt("debate", "canon.first", **you))
        seats[1].read("system", case.prompt("debate", "canon.second", **{**you, "me": second, "you": first}))
        seats[2].read("system", case.prompt("debate", "canon.moderator", mod=mod, first=first, second=second))
        question = case.prompt("debate", "canon.question", question=story.question)
        for seat in seats:
            seat.read("user", question)

    def turn(self, number: int) -> list[str]:
        """One debater speaks in every debate, and all agents read it. Returns the answers, empty if none was given."""
        self.seed += 1
        seats = [each[number] for each in self.seats]
        if self.slip and number == 0 and len(seats[0].turns) == 2:
            texts = [self._slip(case, story) for case, story in zip(self.cases, self.stories, strict=True)]
            for seat, text in zip(seats, texts, strict=True):
                seat.hear(seat.name, "", text)
        else:
            texts = self.player.say(seats, [""] * len(seats), 96, 0.7, self.seed)
        for each, text in zip(self.seats, texts, strict=True):
            for other in (seat for seat in each if seat is not each[number]):
                other.hear(each[number].name, "", text)
        return [found[-1] if (found := FOUND.findall(text)) else "" for text in texts]

    def _slip(self, case: Case, story: Story) -> str:
        worked = work(case.writer, story, slip=True)
        return f"{worked.sums} The answer is {worked.answer}."

    def rule(self, key: str, symbol: str, **slots: object) -> list[str]:
        """The moderator's ruling in every debate."""
        self.seed += 1
        seats = [each[2] for each in self.seats]
        for case, seat in zip(self.cases, seats, strict=True):
            seat.read("user", case.prompt("debate", symbol, mod=case.names[2], **slots))
        return self.player.say(seats, [f'{{"{key}": '] * len(seats), 16, 0.0, self.seed)


class Ballot(NamedTuple):
    """A question with eight solutions, and which of them are right."""

    seat: Seat
    right: tuple[bool, ...]


def ballots(count: int, seed: int) -> list[Ballot]:
    """Questions with right and wrong solutions, in the shipped wording."""
    found = []
    for number in range(count):
        writer = Writer("held-out", f"ballot/{seed}/{number}")
        story = draw_task(writer)
        slips = writer.random.sample([True] * 4 + [False] * 4, 8)
        solutions = [work(writer, story, slip) for slip in slips]
        seat = Seat(f"voter-{number % 4 + 1}")
        seat.read("system", canonical(rules("work"), "canon.voter"))
        seat.read("user", canonical(rules("work"), "canon.asked", question=story.question))
        for place, each in enumerate(solutions, 1):
            seat.hear(f"solver-{place}", f"Solution {place}: ", f"{each.sums} The answer is {each.answer}.")
        found.append(Ballot(seat, tuple(each.answer == story.answer for each in solutions)))
    return found


def voted(player: Player, asked: Sequence[Ballot], seed: int) -> list[int | None]:
    """The solution that each voter votes for, numbered from 1. None: no vote was found."""
    said = player.say([each.seat for each in asked], ["The answer is "] * len(asked), 96, 0.7, seed)
    return [int(found[-1]) if (found := VOTED.findall(text)) else None for text in said]


def answers(player: Player, asked: Sequence[tuple[Seat, str]], keys: Sequence[str], seed: int) -> int:
    """How many agents answer a user's question with a text that contains the key, at temperature 0.7."""
    seats = []
    for seat, question in asked:
        seat.read("user", question)
        seats.append(seat)
    texts = player.say(seats, [""] * len(seats), 64, 0.7, seed)
    return sum(key in text for key, text in zip(keys, texts, strict=True))

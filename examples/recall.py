"""Recall: witnesses say where they live, and a recorder, who has read them all, is asked about each of them.

agentcho run examples/recall.py --model smollm2
agentcho compare examples/recall.py --model smollm2 -n 24 --set n=2 --temperature 0
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal

from pydantic import Field

import agentcho

NAMES = (
    *("ann", "bob", "cleo", "dan", "eve", "fred", "gina", "hugo", "iris", "jack", "kate", "liam"),
    *("mary", "nick", "olga", "paul", "rosa", "sam", "tess", "ugo", "vera", "walt", "yara", "zoe"),
)
TOWNS = (
    *("Athens", "Berlin", "Cairo", "Dublin", "Lima", "London", "Madrid", "Oslo", "Paris", "Prague", "Rome", "Tokyo"),
    *(
        "Boston",
        "Brussels",
        "Delhi",
        "Geneva",
        "Havana",
        "Kiev",
        "Lisbon",
        "Milan",
        "Moscow",
        "Sydney",
        "Turin",
        "Vienna",
    ),
)
HALF = 12


class Witness(agentcho.Agent):
    """Says where it lives. What it says is for everyone."""

    role = "witness"
    audience = "everyone"

    async def testify(self, town: str) -> agentcho.Message:
        """Say the town, in fixed words."""
        return await self.say(choices=(f"{self.name.capitalize()} lives in {town}.",))


class Recorder(agentcho.Agent):
    """Reads what the witnesses said, and names the town of one of them. Its answers are for everyone.

    `side_by_side` True: all statements begin at the same position, right after the system prompt. False: they stand one
    after another.
    """

    role = "recorder"
    audience = "everyone"
    system = "You read what witnesses say, and answer questions about it."
    side_by_side: bool = False

    async def recall(self, name: str, said: Sequence[str], towns: Sequence[str]) -> str:
        """The town of a witness. It reads its system prompt and the statements, given by id, and no other answer."""
        view = agentcho.View.of([self.brief, *said])
        if self.side_by_side and self.brief is not None:
            placed = (agentcho.Read(each, agentcho.After(self.brief)) for each in said)
            view = agentcho.View((agentcho.Read(self.brief), *placed), "rightmost")
        header = f"{name.capitalize()} lives in"
        return await self.choose(towns, to=self.audience, opening=" ", header=header, view=view)


class Recall(agentcho.Scenario):
    """Witnesses say at the same time where they live, and a recorder is asked about each of them.

    Cast: witnesses, whose private system prompts name their own town and that of a friend, and rec, the recorder.
    Statements and answers are for everyone. Explored: does a reader find what others said in encodings that it did not
    make? Guessing gets one witness per game right, on average.
    """

    name = "recall"

    class Options(agentcho.Scenario.Options):
        """The number of witnesses, the positions of their statements, and which names and towns there are."""

        n: int = Field(6, ge=2, le=HALF, description="witnesses")
        layout: Literal["parallel", "serial"] = Field("serial", description="where statements stand for the recorder")
        informed: bool = Field(True, description="whether a witness's private prompt names its own town")
        half: Literal[1, 2] | None = Field(None, description="only one half of the names and towns; none: all")

    class Outcome(agentcho.Scenario.Outcome):
        """For each witness, the town that the recorder named, and whether it is right."""

        answers: tuple[str, ...]
        right: tuple[bool, ...]

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        names, towns = self.people(Random(f"{game.seed} towns"))
        friends = (*towns[1:], towns[0])
        prompts = (
            f"You are {name.capitalize()}. You live in {town}, and a friend of yours in {other}."
            if self.options.informed
            else f"You are {name.capitalize()}. You have a friend in {other}."
            for name, town, other in zip(names, towns, friends, strict=True)
        )
        witnesses = [game.cast(Witness, name, system=prompt) for name, prompt in zip(names, prompts, strict=True)]
        rec = game.cast(Recorder, "rec", side_by_side=self.options.layout == "parallel")
        said = await game.together(*(each.testify(town) for each, town in zip(witnesses, towns, strict=True)))
        ids = [message.id for message in said]
        answers = await game.together(*(rec.recall(name, ids, sorted(towns)) for name in names))
        right = tuple(answer == town for answer, town in zip(answers, towns, strict=True))
        return self.Outcome(answers=tuple(answers), right=right)

    def people(self, dice: Random) -> tuple[list[str], list[str]]:
        """Names, and a town for each."""
        half = (
            slice(None)
            if self.options.half is None
            else slice(HALF * (self.options.half - 1), HALF * self.options.half)
        )
        return dice.sample(NAMES[half], self.options.n), dice.sample(TOWNS[half], self.options.n)

    def score(self, outcome: Outcome) -> dict[str, float]:
        """The share of witnesses whose town was named, and 1 each if it was for the first witness, and for the last."""
        first, last = outcome.right[0], outcome.right[-1]
        share = sum(outcome.right) / len(outcome.right)
        return {"right": share, "first right": float(first), "last right": float(last)}

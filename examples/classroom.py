"""A teacher and pupils: only the teacher knows the answers, and pupils cannot see each other's work.

agentcho run examples/classroom.py --model smollm2
"""

from __future__ import annotations

import agentcho

SHEET = {"What is 3 + 4?": "7", "Which is the capital of France?": "Paris"}
PUPILS = ("mia", "noah", "olga")


class Classroom(agentcho.Scenario):
    """A lesson for everyone, a test that each pupil takes alone, and private marks for each pupil."""

    name = "classroom"

    class Outcome(agentcho.Scenario.Outcome):
        """Number of right answers per pupil."""

        marks: dict[str, int]

    async def play(self, game: agentcho.Game) -> Outcome:
        answers = "; ".join(f"{question} {answer}" for question, answer in SHEET.items())
        teacher = game.cast(agentcho.Agent, "teacher", audience="everyone", system=f"You teach. Answers: {answers}")
        pupils = [game.cast(agentcho.Agent, name, role="pupil", system=f"You are {name}.") for name in PUPILS]
        await teacher.say(prompt="Open the lesson in one sentence. Do not tell answers.", max_tokens=40)
        marks = dict.fromkeys(PUPILS, 0)
        for question, answer in SHEET.items():
            await game.announce(question)
            written = await game.together(*(pupil.say(to="teacher", max_tokens=20) for pupil in pupils))
            for pupil, message in zip(pupils, written, strict=True):
                right = answer.casefold() in message.text.casefold()
                marks[pupil.name] += right
                await game.announce("Right." if right else "Not right.", to=["teacher", pupil.name])
        return self.Outcome(marks=marks)

    def score(self, outcome: Outcome) -> dict[str, float]:
        """The share of right answers."""
        return {"right": sum(outcome.marks.values()) / (len(SHEET) * len(outcome.marks))}

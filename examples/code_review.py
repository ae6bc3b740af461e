"""A code review: the author keeps the ticket secret, reviewers write in parallel, the author answers, a lead decides.

agentcho run examples/code_review.py --model smollm2
"""

from __future__ import annotations

import agentcho

DIFF = "def mean(xs):\n-    return sum(xs) / len(xs)\n+    return sum(xs) / max(1, len(xs))"
FOCUS = {"correctness": "whether it is right", "style": "whether it reads well", "tests": "what a test would show"}


class CodeReview(agentcho.Scenario):
    """Three reviewers of one diff, each with a different focus, and a lead who decides."""

    name = "code-review"

    class Outcome(agentcho.Scenario.Outcome):
        """The lead's decision."""

        merged: bool

    async def play(self, game: agentcho.Game) -> Outcome:
        author = game.cast(
            agentcho.Agent,
            "author",
            audience="everyone",
            system="You wrote the diff. The ticket is confidential: a customer's report crashed on an empty list.",
        )
        reviewers = [
            game.cast(agentcho.Agent, name, audience="everyone", system=f"You review code. Look at {focus}.")
            for name, focus in FOCUS.items()
        ]
        lead = game.cast(agentcho.Agent, "lead", system="You decide whether a diff is merged.")
        await game.announce(f"Review this diff.\n{DIFF}")
        await game.together(*(reviewer.say(max_tokens=60) for reviewer in reviewers))
        await author.say(prompt="Answer your reviewers.", max_tokens=60)
        decision = await lead.choose(("merge", "request changes"), "What do you decide?", to="everyone")
        return self.Outcome(merged=decision == "merge")

    def score(self, outcome: Outcome) -> dict[str, float]:
        """Whether the diff was merged."""
        return {"merged": float(outcome.merged)}

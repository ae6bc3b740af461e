"""Words split into two groups, a text for each group, and the two texts merged into one."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

import agentcho


class BranchSolveMerge(agentcho.Scenario):
    """A planner splits words into two groups, two writers use a group each, and a merger joins their texts.

    Cast: dan plans, eva and finn write, gus merges. Words, groups and texts are for everyone; the merger reads only the
    two texts. Explored: does a merger find both separately encoded texts, side by side or one after another?
    """

    name = "branch-solve-merge"
    tasks = "concepts"
    kind = agentcho.Concepts

    class Options(agentcho.Scenario.Options):
        """Where the two texts stand."""

        layout: Literal["parallel", "serial"] = Field("parallel", description="where the texts stand for the merger")

    class Outcome(agentcho.Scenario.Outcome):
        """The words, their groups, the texts, and the words that the merged text uses."""

        words: tuple[str, ...]
        groups: tuple[tuple[str, ...], tuple[str, ...]]
        texts: tuple[str, str]
        merged: str
        covered: tuple[str, ...]

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        (concepts,) = game.draw()
        dan = game.cast("planner", name="dan")
        writers = [game.cast("writer", name=name, group=number) for number, name in enumerate(("eva", "finn"), 1)]
        gus = game.cast("merger", name="gus", side_by_side=self.options.layout == "parallel")
        await game.announce(f"The words are: {', '.join(concepts.words)}.")
        groups = await dan.split(concepts.words)
        texts = await game.together(*(writer.write() for writer in writers))
        merged = await gus.merge([text.id for text in texts])
        written, covered = tuple(text.text for text in texts), tuple(sorted(concepts.covered(merged.text)))
        return self.Outcome(words=concepts.words, groups=groups, texts=written, merged=merged.text, covered=covered)

    def judged(self, outcome: Outcome) -> agentcho.Judged:
        """The merged text."""
        return agentcho.Judged(
            f"Write one short text that uses all of these: {', '.join(outcome.words)}.", outcome.merged
        )

    def score(self, outcome: Outcome) -> dict[str, float]:
        """The shares of all words and of each group's words that the merged text uses, and the difference between the
        first and the second group's share; nothing for a group without words."""
        one, two = outcome.groups
        groups = {"covered": outcome.words, "covered of group 1": one, "covered of group 2": two}
        shares = {name: self.share(words, outcome.covered) for name, words in groups.items() if words}
        return shares | ({"group 1 over group 2": self.lead(shares)} if one and two else {})

    @staticmethod
    def lead(shares: dict[str, float]) -> float:
        """The first group's share minus the second's."""
        return shares["covered of group 1"] - shares["covered of group 2"]

    @staticmethod
    def share(words: tuple[str, ...], covered: tuple[str, ...]) -> float:
        """The share of the words that are covered, from 0 to 1."""
        return sum(word in covered for word in words) / len(words)

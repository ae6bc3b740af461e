"""Splits a list of words into two groups, for two writers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import agentcho

GROUP = re.compile(r"group\s*([12])\s*:(.*?)(?=group\s*[12]\s*:|$)", re.IGNORECASE | re.DOTALL)


class Planner(agentcho.Agent):
    """Says which words each of two writers should use. What it says is for everyone."""

    role = "planner"
    audience = "everyone"
    system = "You split the words in two groups of the same size, one for each of two writers."

    async def split(self, words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The two groups as the planner named them. Each word of `words` is in the group where it was named first; a
        word that was left out is in neither."""
        said = await self.say()
        groups: dict[str, list[str]] = {"1": [], "2": []}
        left = {word.lower(): word for word in words}
        for number, listed in GROUP.findall(said.text):
            for word in re.findall(r"\w+", listed.lower()):
                if word in left:
                    groups[number].append(left.pop(word))
        return tuple(groups["1"]), tuple(groups["2"])

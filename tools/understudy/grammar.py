"""Writes sentences from rules, holding out a share of all wordings and names."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Literal, TypeVar

from .wordings import Rules, rules

Split = Literal["train", "held-out"]
Item = TypeVar("Item")
SYMBOL = re.compile(r"\[([a-z.]+)\]")


def share(options: Sequence[Item], split: Split) -> Sequence[Item]:
    """The options that a split may use. Every fifth is held out, unless there are fewer than five."""
    if len(options) < 5:
        return options
    return [item for index, item in enumerate(options) if (index % 5 == 4) == (split == "held-out")]


class Writer:
    """A seeded source of choices for one workflow. The same split and seed write the same text."""

    def __init__(self, split: Split, seed: str) -> None:
        self.split: Split = split
        self.random = random.Random(f"{split}/{seed}")
        self.said: set[str] = set()

    def pick(self, options: Sequence[Item]) -> Item:
        """One of the options that this split may use."""
        return self.random.choice(share(options, self.split))

    def other(self, options: Sequence[str], *taken: str) -> str:
        """One of the options that this split may use and that is not taken."""
        return self.random.choice([each for each in share(options, self.split) if each not in taken])

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.random.random() < probability

    def write(self, wordings: Rules, symbol: str, **slots: object) -> str:
        """Expand `[symbol]` until only text is left, then fill the `{slots}`.

        The first wording of a symbol named `canon.…` is used four times in ten in training. Of other symbols no wording
        is used twice in one workflow, as long as another is left.
        """
        return self._expand(wordings, symbol).format_map(slots)

    def wording(self, wordings: Rules, symbol: str) -> str:
        """One wording of `[symbol]` with its slots unfilled, to be used several times."""
        return self._expand(wordings, symbol)

    def _expand(self, wordings: Rules, symbol: str) -> str:
        chosen = self._choose(symbol, wordings[symbol])
        return SYMBOL.sub(lambda found: self._expand(wordings, found.group(1)), chosen)

    def _choose(self, symbol: str, options: Sequence[str]) -> str:
        if symbol.startswith("canon."):
            first = self.split == "train" and self.chance(0.4)
            return options[0] if first else self.pick(options)
        allowed = share(options, self.split)
        chosen = self.random.choice([each for each in allowed if each not in self.said] or allowed)
        if len(options) >= 5:
            self.said.add(chosen)
        return chosen

    def coin(self) -> str:
        """A made-up word, capitalised, of two or three syllables that this split may use."""
        names, count = rules("names"), self.random.choice((1, 1, 2))
        return self.pick(names["onsets"]) + "".join(self.pick(names["rhymes"]) for _ in range(count))

    def name(self, *taken: str) -> str:
        """A first name, capitalised, that is not taken. More than half are made up."""
        names = rules("names")
        while True:
            name = self.coin() if self.chance(0.55) else self.pick(names["hers"] + names["his"])
            if name not in taken:
                return name


def canonical(wordings: Rules, symbol: str, **slots: object) -> str:
    """The first wording of a symbol, which the shipped scenarios use."""
    return wordings[symbol][0].format_map(slots)


def pronoun(name: str) -> str:
    """The pronoun for a first name: she, he, or they for a made-up one."""
    names = rules("names")
    return "she" if name in names["hers"] else "he" if name in names["his"] else "they"

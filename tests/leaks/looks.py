"""Random views in random workflows: some of the readable messages, sometimes reordered or at other positions.

Independent of audiences and encodings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple


@dataclass(frozen=True)
class Look:
    """One message of a view, by its act's number. `after` and `plus` place it after another of the same view, `at` at a
    constant position, `rightmost` after the rightmost token before it."""

    number: int
    after: int | None = None
    plus: int = 0
    at: int | None = None
    rightmost: bool = False


class Odds(NamedTuple):
    """Probabilities of reading a message, and of its placements: behind a gap of up to `plus`, at a position in `at`,
    or rightmost."""

    read: float
    gap: float
    plus: int
    constant: float
    at: tuple[int, int]
    rightmost: float = 0.0


def looks(random: Random, readable: Sequence[int], odds: Odds) -> tuple[Look, ...]:
    """A random view of these messages; empty only if there are none."""
    numbers = [number for number in readable if random.random() < odds.read] or [*readable]
    if random.random() < 0.4:
        random.shuffle(numbers)
    return tuple(_placed(random, numbers, odds))


def _placed(random: Random, numbers: Sequence[int], odds: Odds) -> Iterator[Look]:
    for place, number in enumerate(numbers):
        chance = random.random()
        if place and chance < odds.gap:
            yield Look(number, after=numbers[place - 1], plus=random.randint(0, odds.plus))
        elif chance > 1 - odds.constant:
            yield Look(number, at=random.randint(*odds.at))
        else:
            yield Look(number, rightmost=bool(place) and chance > 1 - odds.constant - odds.rightmost)

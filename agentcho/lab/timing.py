"""Runs arms in turns, so that other load on the machine affects all arms alike.

Does not know: what arms do, what comes of the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import ParamSpec, TypeVar

from agentcho.games.replay import Replayed

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def turns(names: Sequence[T], number: int) -> list[T]:
    """The names in an order that changes from repeat to repeat."""
    first = number % len(names) if names else 0
    return [*names[first:], *names[:first]]


def in_turns(
    arms: Mapping[str, Callable[[S], T]], subjects: Sequence[S], tell: Callable[[int], object]
) -> dict[str, list[T]]:
    """What each arm made of each subject, subject by subject. The first subject is there to warm up, and what comes of
    it is dropped. `tell` hears how many subjects are done, the first one aside."""
    found: dict[str, list[T]] = {name: [] for name in arms}
    for number, subject in enumerate(subjects):
        for name in turns(list(arms), number):
            found[name].append(arms[name](subject))
        tell(number)
    return {name: taken[1:] for name, taken in found.items()}


def alone(work: Callable[P, T]) -> Callable[P, T]:
    """The same in a thread that ends with it, as an engine's steps are done: torch keeps a pool of compute threads for
    each thread that calls it, and a second pool halves the speed of the first."""

    @wraps(work)
    def done(*args: P.args, **options: P.kwargs) -> T:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(work, *args, **options).result()

    return done


def first_token(replayed: Replayed) -> float:
    """Mean seconds to a first token over all messages that were said."""
    return sum(said.ttft for said in replayed.values()) / len(replayed)

"""Runs arms in turns, so that other load on the machine affects all arms alike, and work in threads that end with it,
so that what comes after is as fast as before.

Does not know: what arms do, what comes of the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import wraps
from threading import Event, Thread
from typing import ParamSpec, TypeVar

from agentcho.games.runs.replay import Replayed

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


def stoppable(work: Callable[[Callable[[], None]], T]) -> T:
    """What `work` gives, done in a thread that ends with it, as by `alone`. What it is called with raises
    `KeyboardInterrupt` there once Ctrl-C has come here: work that takes long calls that now and then, and Ctrl-C waits
    until it does."""
    stopped, found = Event(), Future[T]()

    def check() -> None:
        if stopped.is_set():
            raise KeyboardInterrupt

    def run() -> None:
        try:
            found.set_result(work(check))
        except BaseException as error:
            found.set_exception(error)

    thread = Thread(target=run)
    try:
        thread.start()
        return found.result()
    except KeyboardInterrupt:
        stopped.set()
        raise
    finally:
        with suppress(RuntimeError):  # Ctrl-C came before it was started
            thread.join()


def first_token(replayed: Replayed) -> float:
    """Mean seconds to a first token over all messages that were said."""
    return sum(said.ttft for said in replayed.values()) / len(replayed)

"""Interleaves the arms of a measurement, so that other load on the machine affects all arms alike, and runs work in
short-lived threads, so that it does not slow down what follows. Independent of what arms do.
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
    """The names, rotated by the number of the repeat."""
    first = number % len(names) if names else 0
    return [*names[first:], *names[:first]]


def in_turns(
    arms: Mapping[str, Callable[[S], T]], subjects: Sequence[S], tell: Callable[[int], object]
) -> dict[str, list[T]]:
    """What each arm returns for each subject, subject by subject. The first subject is the warm-up, and its results are
    dropped. `tell` receives the number of finished subjects, not counting the first."""
    found: dict[str, list[T]] = {name: [] for name in arms}
    for number, subject in enumerate(subjects):
        for name in turns(list(arms), number):
            found[name].append(arms[name](subject))
        tell(number)
    return {name: taken[1:] for name, taken in found.items()}


def alone(work: Callable[P, T]) -> Callable[P, T]:
    """Run `work` in a thread of its own that ends with it, as engine steps run: torch keeps a pool of compute threads
    for each calling thread, and a second pool halves the speed of the first."""

    @wraps(work)
    def done(*args: P.args, **options: P.kwargs) -> T:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(work, *args, **options).result()

    return done


def stoppable(work: Callable[[Callable[[], None]], T]) -> T:
    """The result of `work`, run in a thread that ends with it, as by `alone`. `work` receives a function that raises
    `KeyboardInterrupt` once Ctrl-C has arrived in the main thread; long work has to call it now and then, because
    Ctrl-C waits until it does."""
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
        with suppress(RuntimeError):  # Ctrl-C came before the thread was started
            thread.join()


def first_token(replayed: Replayed) -> float:
    """Mean seconds to the first token over all decoded messages."""
    return sum(said.ttft for said in replayed.values()) / len(replayed)

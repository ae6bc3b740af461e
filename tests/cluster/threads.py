"""Workers in threads of this process, which can be killed, frozen, or made to answer differently."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from threading import RLock
from typing import Any

import pytest

from agentcho.integrations.ray.work import Answer, WorkerLost, WorkerReport
from agentcho.integrations.ray.worker import Worker

PARSE, PARSING = ast.parse, RLock()
Heard = Callable[[int, Answer], Answer | None]
"""Maps a worker's answer to what the driver receives; None: the worker hangs."""


class Threads:
    """A pool of real workers, one thread each. Everything sent between them and the driver is pickled."""

    def __init__(self, hear: Heard = lambda worker, answer: answer) -> None:
        self._hear = hear
        self._threads: dict[int, tuple[Worker, ThreadPoolExecutor]] = {}
        self._calls: dict[Future[Answer], int] = {}
        self.started: list[int] = []
        self.stopped: list[int] = []
        self.played: list[tuple[int, int]] = []

    def start(self) -> int:
        self.started.append(len(self.started))
        self._threads[self.started[-1]] = Worker(), ThreadPoolExecutor(1)
        return self.started[-1]

    def call(self, worker: int, method: str, *given: Any) -> None:
        assert worker not in self._calls.values(), "one call at a time"
        told = pickle.loads(pickle.dumps(given))
        if method == "exchange":
            self.played += [(worker, deal.game) for deal in told[0]]
        one, thread = self._threads[worker]
        self._calls[thread.submit(getattr(one, method), *told)] = worker

    def answers(self, seconds: float) -> Sequence[tuple[int, Answer]]:
        done, _ = wait_for(self._calls, seconds, "FIRST_COMPLETED")
        found = [(self._calls.pop(call), call) for call in sorted(done, key=self._calls.__getitem__)]
        heard = [(id, self._hear(id, _answer(call))) for id, call in found]
        return [(id, answer) for id, answer in heard if answer is not None]

    def stop(self, worker: int) -> None:
        self.stopped.append(worker)
        self._calls = {call: id for call, id in self._calls.items() if id != worker}
        if worker in self._threads:
            one, thread = self._threads.pop(worker)
            thread.submit(one.end)
            thread.shutdown(wait=False)

    def close(self) -> None:
        for worker in list(self._threads):
            self.stop(worker)


def _parse(*source: Any, **how: Any) -> Any:
    """Serializes `ast.parse`: CPython 3.11 confuses concurrent calls."""
    with PARSING:
        return PARSE(*source, **how)


def _answer(call: Future[Answer]) -> Answer:
    error = call.exception()
    return WorkerLost(str(error)) if error is not None else pickle.loads(pickle.dumps(call.result()))


@contextmanager
def threads(hear: Heard = lambda worker, answer: answer) -> Iterator[Threads]:
    """A pool that stops its workers at the end."""
    pool = Threads(hear)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ast, "parse", _parse)
        try:
            yield pool
        finally:
            pool.close()


def dying(*deaths: int) -> Heard:
    """Makes these workers die with their first report of a finished game, which is lost."""
    left = set(deaths)

    def hear(worker: int, answer: Answer) -> Answer:
        if worker in left and isinstance(answer, WorkerReport) and answer.done:
            left.remove(worker)
            return WorkerLost("killed")
        return answer

    return hear

"""A driver against simulated workers that randomly die, hang, are refused or take down games, in simulated time."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentcho.errors import AgentchoError
from agentcho.events import GameOver
from agentcho.integrations.ray.driver import Driver, Timeouts
from agentcho.integrations.ray.work import (
    Answer,
    Assignment,
    GameDone,
    WorkerHello,
    WorkerLost,
    WorkerReady,
    WorkerRefused,
    WorkerReport,
)
from agentcho.records.environment import versions

VERSIONS = versions()
NEVER, FOR_EVER = 1e12, 1e6


@dataclass
class Simulated:
    """One worker: its games, and the time at which it answers its current call."""

    games: list[int] = field(default_factory=list)
    method: str = ""
    at: float = NEVER


class Pool:
    """Workers in simulated time. `deadly` games kill half of the workers that play them."""

    def __init__(self, seed: int, games: int) -> None:
        self.dice = dice = random.Random(seed)
        self.now, self._started = 0.0, 0
        self._workers: dict[int, Simulated] = {}
        self.deadly = set(dice.sample(range(games), dice.choice((0, 0, 0, 1))))
        self._dies, self._hangs = dice.choice((0, 0, 0.02, 0.1)), dice.choice((0, 0, 0.02))
        self._refuses, self._slow = dice.choice((0, 0, 0.2)), dice.choice((0.1, 3.0))

    def start(self) -> int:
        self._started += 1
        self._workers[self._started] = Simulated()
        return self._started

    def call(self, worker: int, method: str, *given: Any) -> None:
        called = self._workers[worker]
        assert not called.method, "one call at a time"
        called.method, called.at = method, self.now + self.dice.random() * self._slow
        if method == "exchange":
            called.games += [deal.game for deal in given[0]]
        if self.dice.random() < self._hangs:
            called.at = NEVER

    def stop(self, worker: int) -> None:
        self._workers.pop(worker, None)

    def answers(self, seconds: float) -> list[tuple[int, Answer]]:
        at, worker = min(((each.at, id) for id, each in self._workers.items() if each.method), default=(NEVER, 0))
        self.now = max(self.now, min(at, self.now + seconds))
        assert self.now < FOR_EVER, "nobody is waited for that long"
        return [(worker, self._answer(worker, self._workers[worker]))] if at <= self.now else []

    def _answer(self, id: int, worker: Simulated) -> Answer:
        method, worker.method, dice = worker.method, "", self.dice
        if dice.random() < self._dies or (self.deadly & set(worker.games) and dice.random() < 0.5):
            return WorkerLost("it died")
        if method == "hello":
            return WorkerHello(f"machine {id % 2}", id, VERSIONS)
        if method == "begin":
            return (
                WorkerRefused("ModelNotFound", "no such model")
                if dice.random() < self._refuses
                else WorkerReady({}, {})
            )
        over = dice.sample(worker.games, dice.randrange(len(worker.games) + 1))
        worker.games = [game for game in worker.games if game not in over]
        done = tuple(GameDone(GameOver(game, {}, {}, None, 0.0)) for game in over)
        return WorkerReport(done, dice.randrange(5) if worker.games else 1)


class Book:
    """Counts how often each game ends, and notes which were given up."""

    def __init__(self) -> None:
        self.ended, self.given_up = Counter[int](), set[int]()

    def open(self, begun: WorkerReady) -> None:
        """No comparison is made."""

    def deal(self, game: int) -> Assignment:
        return Assignment(game)

    def over(self, done: GameDone) -> bool:
        self.ended[done.over.game] += 1
        return True

    def lost(self, game: int, why: str) -> bool:
        self.given_up.add(game)
        return True


@pytest.mark.parametrize(
    "seed", [*range(150, 190), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1000, 1400))]
)
def test_every_game_ends_once_whatever_becomes_of_workers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    games = random.Random(seed).randrange(1, 40)
    pool, book = Pool(seed, games), Book()
    monkeypatch.setattr("agentcho.integrations.ray.driver.monotonic", lambda: pool.now)
    driver = Driver(pool, 1 + seed % 4, seed % 3, lambda what: None, Timeouts())
    whole = True
    try:
        driver.play(None, range(games), book)  # type: ignore[arg-type]
    except AgentchoError:  # no worker is left
        whole = False
    assert set(book.ended.values()) <= {1}
    assert not set(book.ended) & book.given_up
    assert not whole or set(book.ended) | book.given_up == set(range(games))

"""The number of threads a network uses: by the user's choice, by size, and by the times of forwards (made up here)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agentcho.config import RunConfig
from agentcho.errors import ModelError, ResumeMismatch
from agentcho.games.runs.resume import check_engine, loading_config
from agentcho.protocol.call import Decode
from agentcho.runner.engine import Engine
from agentcho.runner.model import threads
from agentcho.runner.model.threads import SMALL, WINDOW, ComputeThreads
from tests.engines import Engines

LARGE = SMALL + 1


class Pretended:
    """A CPU with 8 cores, and forwards whose times by number of threads are `takes`."""

    def __init__(self) -> None:
        self.now, self.number = 0.0, 8
        self.takes = {1: 1.0, 8: 1.0}
        self.forwards = 0

    def forward(self) -> None:
        """One forward on the current number of threads."""
        self.forwards += 1
        self.now += self.takes[self.number]

    def set(self, number: int) -> None:
        """Replaces `torch.set_num_threads`."""
        self.number = number


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    """No number of threads is configured."""
    made = Pretended()
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: made.number)
    monkeypatch.setattr(torch, "set_num_threads", made.set)
    monkeypatch.setattr(threads, "perf_counter", lambda: made.now)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(8), raising=False)
    return made


def settled(cpu: Pretended, wish: Any = "auto", weights: int = LARGE) -> ComputeThreads:
    made = ComputeThreads()
    made.settle(wish, weights, cpu.forward)
    return made


def test_a_small_network_takes_one_thread_and_nothing_is_timed(cpu: Pretended) -> None:
    found = settled(cpu, weights=SMALL)
    assert (found.number, found.watched, cpu.forwards, cpu.number) == (1, False, 0, 8)
    assert "MiB of weights" in found.why


@pytest.mark.parametrize(("one", "all_", "number"), [(1.0, 3.0, 1), (3.0, 1.0, 8), (1.0, 1.0, 8)])
def test_of_any_other_the_better_number_is_taken(cpu: Pretended, one: float, all_: float, number: int) -> None:
    cpu.takes = {1: one, 8: all_}
    found = settled(cpu)
    assert (found.number, found.watched, cpu.number) == (number, True, 8)
    assert f"{1e3 * one:.3g} ms on one, {1e3 * all_:.3g} ms on 8" in found.why


@pytest.mark.parametrize("name", threads.VARIABLES)
@pytest.mark.parametrize("weights", [SMALL, LARGE])
def test_what_the_user_said_holds(cpu: Pretended, monkeypatch: pytest.MonkeyPatch, name: str, weights: int) -> None:
    monkeypatch.setenv(name, "8")
    found = settled(cpu, weights=weights)
    assert (found.number, found.count, found.why, cpu.forwards) == (None, 8, f"as {name} says", 0)


@pytest.mark.parametrize("number", [3, 9])
def test_a_number_that_torch_never_takes_of_itself_is_the_users(cpu: Pretended, number: int) -> None:
    cpu.number = number
    found = settled(cpu, weights=SMALL)
    assert (found.number, found.count, found.why) == (None, number, "as torch.set_num_threads says")


def test_a_number_that_was_asked_for_is_taken_whatever_the_environment_says(
    cpu: Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert settled(cpu, 3).number == 3
    assert settled(cpu, 3, SMALL).number == 3


def test_by_size_alone_nothing_is_timed(cpu: Pretended) -> None:
    assert [settled(cpu, "size", weights).number for weights in (SMALL, LARGE)] == [1, 8]
    assert cpu.forwards == 0


@pytest.mark.parametrize("broken", [False, True])
def test_other_code_of_the_process_keeps_its_number(cpu: Pretended, broken: bool) -> None:
    found = settled(cpu, 2)
    with pytest.raises(ZeroDivisionError) if broken else nullcontext(), found.using():
        assert cpu.number == 2
        if broken:
            raise ZeroDivisionError
    assert cpu.number == 8


def test_it_is_looked_at_again_when_steps_become_much_slower(cpu: Pretended) -> None:
    cpu.takes = {1: 2.0, 8: 1.0}
    found = settled(cpu)
    timed = cpu.forwards
    for _ in range(3 * WINDOW):
        found.took(1.0)
    for _ in range(WINDOW // 2 - 1):
        found.took(100.0)  # a pause does not count as a change
    for _ in range(WINDOW // 2 + 1):
        found.took(1.0)
    assert (found.number, cpu.forwards) == (8, timed)
    cpu.takes = {1: 2.0, 8: 20.0}
    for _ in range(WINDOW):
        found.took(20.0)
    assert (found.number, cpu.number) == (1, 8)
    timed = cpu.forwards
    for _ in range(WINDOW):
        found.took(20.0)  # as slow as when it was last measured
    assert cpu.forwards == timed


@pytest.mark.parametrize("wish", [0, -1, True, 1.5, "all", None])
def test_what_is_no_number_of_threads_is_refused(wish: Any) -> None:
    with pytest.raises(ModelError, match=r"is not a number of threads; give 1 or more"):
        Engine.load("understudy", device="cpu", threads=wish)


@pytest.fixture
def three(engines: Engines) -> Iterator[Engine]:
    """An engine of its own whose network uses three threads."""
    engine = Engine.load(engines.folder(), device="cpu", dtype="float32", store_tokens=1 << 10, threads=3)
    with engine:
        yield engine


def test_every_forward_of_an_engine_takes_its_number(three: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = torch.get_num_threads(), set[int]()
    forward = three._model.forward

    def counted(*args: Any) -> Any:
        seen.add(torch.get_num_threads())
        return forward(*args)

    monkeypatch.setattr(three._model, "forward", counted)
    first = three.prefill("one")
    three.decode("two", parents=[first], forced=(5, 6))
    three.score("three", parents=[first])
    assert (seen, torch.get_num_threads(), three.threads) == ({3}, before, (3, "as asked for"))


def test_the_deterministic_profile_keeps_what_it_began_with(three: Engine) -> None:
    found = three._model.threads
    found.watched = True
    three.decode("hello", forced=(5, 6))
    assert found.watched
    assert len(found._recent) > 0
    three.submit([Decode(forced=(5, 6))])
    while not three.idle:
        three.step(deterministic=True)
    assert not found.watched


def test_a_run_in_that_profile_chooses_by_size_alone() -> None:
    asked = {"threads": 3}, {"deterministic": True}, {"deterministic": True, "threads": 3}
    assert [RunConfig(**each).threading for each in ({}, *asked)] == ["auto", 3, "size", 3]


def recorded(config: RunConfig, **engine: str) -> Any:
    """A run with this configuration and engine on record."""
    return SimpleNamespace(info=SimpleNamespace(config=config, engine=engine, engines={"b": engine}, id="run"))


def test_a_deterministic_run_goes_on_with_as_many_threads() -> None:
    config = RunConfig(deterministic=True)
    run = recorded(config, threads="2")
    assert loading_config(run, config).threads == 2
    told = r"the model's threads \(2, not 4\); the model b's threads \(2, not 4\)\."
    with pytest.raises(ResumeMismatch, match=told):
        check_engine(run, {"threads": "4"}, {"b": {"threads": "4"}})
    check_engine(run, {"threads": "2"}, {"b": {"threads": "2"}})
    check_engine(recorded(config), {"threads": "2"}, {"b": {"threads": "2"}})  # recorded by an earlier version


def test_any_other_run_goes_on_with_what_is_chosen_then() -> None:
    run = recorded(RunConfig(), threads="2")
    assert loading_config(run, RunConfig()).threads is None
    check_engine(run, {"threads": "4"}, {"b": {"threads": "4"}})

"""A reuse method declared in this file and registered with one line works everywhere: in its text form, configuration,
command line, the lab's lists, documentation, engine and stored keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import pytest
import torch
from torch import Tensor

from agentcho import Ape, Decode, Engine, FirstK, Prefill, Repair, RunConfig, Sampling
from agentcho.errors import RequestError
from agentcho.events import Ended, Event
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.lab.compare.columns import columns
from agentcho.provenance.labels import EncodingRecord
from agentcho.reuse import registry
from agentcho.reuse.method import ByPlace, Weighing
from agentcho.reuse.parameters import whole, whole_in
from agentcho.runner.reuse import kernels
from agentcho.testing import FakeEngine
from tools.pages.reuse import with_methods

from .conftest import Command, one_line


@dataclass(frozen=True)
class Every(ByPlace):
    """Every n-th token of a message."""

    step: int

    name = "every"
    form = "every:STEP"
    limits = "STEP is at least 1"
    usual = "every:3"
    examples = ("every:3",)
    about = "every third token"

    @classmethod
    def parsed(cls, value: str | None) -> Self | None:
        step = whole_in(value)
        return cls(step) if step else None

    @classmethod
    def checked(cls, given: Self) -> Self:
        step = whole(given.step, "the step of Every")
        if step < 1:
            raise RequestError(f"Every({step}) repairs nothing; give at least 1")
        return cls(step)

    def places(self, length: int) -> tuple[int, ...]:
        return tuple(range(0, length, self.step))

    @property
    def tag(self) -> str:
        return f"Every({self.step})"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    registry.SELECTIONS.append(Every)
    yield
    registry.SELECTIONS.remove(Every)


def test_a_game_is_played_with_it() -> None:
    made = list[EncodingRecord]()

    def hear(event: Event) -> None:
        if isinstance(event, Ended):
            made.extend(record for record in event.entry.made if record.recipe == "repaired")

    config = RunConfig(model="fake", repair="every:2", leakage="audit", max_tokens=8)
    assert config.policy.repair == Every(2)
    scenario = library.scenario("branch-solve-merge")()
    assert play(RunRequest(scenario, config, engine=FakeEngine(), sink=hear)).error is None
    assert made
    assert all(record.receipt.base is not None for record in made)


def test_the_command_line_takes_it_and_says_what_it_is_where_its_parameter_is_wrong(agentcho: Command) -> None:
    words = ("run", "branch-solve-merge", "--model", "fake", "--max-tokens", "4")
    assert agentcho(*words, "--repair", "every:2").code == 0
    told = one_line(agentcho(*words, "--repair", "every:0"))
    assert "'every:0' is none of first-k:TOKENS" in told
    assert "every:STEP (" in told
    assert "STEP is at least 1" in told


def test_help_comparisons_and_documentation_list_it() -> None:
    assert registry.repairs_help().endswith("full, or every:STEP.")
    names = [column.name for column in columns("baseline,choreographed:audit", "all")]
    assert "choreographed:audit+every:3" in names
    assert "| `every:3` | every third token |" in with_methods("<!-- repairs -->\n<!-- end of repairs -->\n")


def test_its_tokens_are_encoded_anew_under_keys_of_its_own(llama: Engine) -> None:
    secret, message = llama.prefill([Prefill("who is it that asks"), Prefill("me and you and the sea")])
    length = len(llama.message(message).tokens)
    repairs = [Repair(message, choose, [secret]) for choose in (Every(2), Every(1), FirstK(length))]
    every, all_of_them, first = llama.repair(repairs)
    keys = {llama.debug.entry(id).key for id in (every, all_of_them, first)}
    assert len(keys) == 3
    kept, anew = (llama.cached(id)[-1][1] for id in (every, all_of_them))
    base = llama.cached(message)[-1][1]
    odd = [place for place in range(length) if place % 2]
    assert torch.equal(kept[:, odd], base[:, odd])
    assert not torch.equal(kept[:, ::2], base[:, ::2])
    assert torch.allclose(anew, llama.cached(first)[-1][1], atol=1e-5)
    said = llama.decode([Decode(parents=[secret, every], sampling=Sampling(max_tokens=3, temperature=0))])
    assert [entry.id for entry in llama.receipt(said[0]).context] == [secret, every]


def test_a_wrong_parameter_is_refused_by_the_engine_too(llama: Engine) -> None:
    message = llama.prefill("me and you")
    for wrong in (Every(0), Every("2")):  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="Every"):
            llama.repair(Repair(message, wrong))


def test_a_method_that_is_not_registered_is_refused_and_a_subclass_does_not_reach_the_engine(llama: Engine) -> None:
    class Mine(Every):
        def places(self, length: int) -> tuple[int, ...]:
            raise AssertionError("a class of the caller's reached a step")

    message = llama.prefill("me and you")
    assert llama.repair(Repair(message, Mine(2))) == llama.repair(Repair(message, Every(2))) - 1
    registry.SELECTIONS.remove(Every)
    try:
        with pytest.raises(RequestError, match=r"choose is a value of type Every; give one of FirstK\(tokens\)"):
            llama.repair(Repair(message, Every(2)))
    finally:
        registry.SELECTIONS.append(Every)


@dataclass(frozen=True)
class Doubled(Weighing):
    """Multiplies the scores of spans that were encoded in parallel by a factor."""

    factor: float = 2.0

    name = usual = form = "doubled"
    examples = ("doubled",)
    about = "scores of what was encoded side by side doubled"

    @classmethod
    def parsed(cls, value: str | None) -> Self | None:
        return cls() if value is None else None

    @classmethod
    def checked(cls, given: Self) -> Self:
        return cls(given.factor)

    @property
    def key(self) -> bytes:
        return b"doubled%f" % self.factor


class Times:
    """The kernel of `Doubled`."""

    def __init__(self, rows: kernels.Rows, count: int, width: int, device: torch.device) -> None:
        self.factors = torch.ones(count, 1, 1, width)
        for row, parallel in rows:
            assert isinstance(parallel.ape, Doubled)
            for start, stop in parallel.spans:
                self.factors[row, :, :, start:stop] = parallel.ape.factor

    def weigh(self, scores: Tensor) -> Tensor:
        return scores * self.factors


def test_a_reading_that_weighs_is_found_with_its_kernel(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "READINGS", [*registry.READINGS, Doubled])
    assert RunConfig(reuse="doubled").policy == RunConfig(reuse="ape").policy._replace(ape=Doubled())
    both = llama.prefill([Prefill("me and you"), Prefill("who is it that asks")])
    plain = llama.score(" yes", parents=both)
    with pytest.raises(NotImplementedError, match="doubled has no kernel; add one in agentcho"):
        llama.score(" yes", parents=both, ape=Doubled())
    monkeypatch.setitem(kernels.WEIGH, "doubled", Times)
    assert torch.allclose(llama.score(" yes", parents=both, ape=Doubled(1.0)), plain, atol=1e-5)
    assert not torch.allclose(llama.score(" yes", parents=both, ape=Doubled()), plain, atol=1e-5)


def test_rows_of_two_methods_that_weigh_go_through_one_forward(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "READINGS", [*registry.READINGS, Doubled])
    monkeypatch.setitem(kernels.WEIGH, "doubled", Times)
    both = llama.prefill([Prefill("me and you"), Prefill("who is it that asks")])
    greedy = Sampling(max_tokens=6, temperature=0)
    ways = (Ape(0.5, 0.5), Doubled(3.0), None)
    calls = [Decode(parents=both, sampling=greedy, ape=way) for way in ways]
    together = [llama.message(id).tokens for id in llama.decode(calls)]
    alone = [llama.message(llama.decode([call])[0]).tokens for call in calls]
    assert together == alone

"""Commands that run on a cluster, with threads of this process as workers: what they run, and what they refuse."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentcho.errors import WorkersLost
from agentcho.integrations.ray.config import ClusterConfig
from agentcho.integrations.ray.ray import Machine, Placement, placed
from agentcho.integrations.ray.work import WorkerPool
from agentcho.records.canonical import canonical_transcript
from agentcho.records.record import find
from tests.cluster.threads import Threads, threads

from .conftest import PLAY, Command, one_line

RAY = ("--on", "ray", "--workers", "2")
SHORT = ("--model", "fake", "--set", "rounds=1")


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> list[Threads]:
    """Replaces the cluster by threads; returns the list of pools created."""
    made: list[Threads] = []

    @contextmanager
    def workers(asked: ClusterConfig, scenario: str, device: str) -> Iterator[tuple[WorkerPool, int, str]]:
        with threads() as found:
            made.append(found)
            yield found, asked.workers or 1, scenario

    monkeypatch.setattr("agentcho.integrations.ray.ray.workers", workers)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("display", ["plain", "none"])
def test_a_run_on_a_cluster_is_shown_and_recorded_as_one_here(
    agentcho: Command, pool: list[Threads], display: str
) -> None:
    words = (*PLAY, "--games", "4", "--set", "rounds=1", "--display", display)
    there = agentcho(*words, *RAY)
    assert (there.code, there.err) == (0, "")
    assert display == "none" or "CLEAN (encodings): " in there.out
    assert agentcho("run", "--resume", "last", *RAY, "--display", "none").code == 0
    assert sorted(find("last", Path("runs")).finished()) == [0, 1, 2, 3]
    assert len(pool) == 2


@pytest.mark.slow
def test_the_tables_of_a_run_there_are_those_of_one_here(agentcho: Command, pool: list[Threads]) -> None:
    words = (*PLAY, "--games", "3", "--set", "rounds=1")
    there, here = agentcho(*words, *RAY).out, agentcho(*words, "--out", "here").out
    [mine, other] = [canonical_transcript(find("last", Path(out))) for out in ("runs", "here")]
    assert mine == other
    tables = [out.split("outcomes of 3 games")[1].split("cost")[0] for out in (there, here)]
    assert tables[0] == tables[1]


@pytest.mark.slow
def test_traces_of_a_cluster_are_those_of_one_process(agentcho: Command, pool: list[Threads]) -> None:
    words = ("trace", "prisoners-dilemma", *SHORT, "-n", "4")
    assert agentcho(*words, "--out", "there.jsonl", *RAY).code == 0
    assert agentcho(*words, "--out", "here.jsonl").code == 0
    assert Path("there.jsonl").read_text() == Path("here.jsonl").read_text()
    assert "--final-of" in agentcho(*words, "--out", "x.jsonl", *RAY, "--final-of", "here.jsonl").err


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["prisoners-dilemma", pytest.param("debate", marks=pytest.mark.slow)])
def test_a_comparison_on_a_cluster_finds_what_one_here_finds(
    agentcho: Command, pool: list[Threads], scenario: str
) -> None:
    words = ("compare", scenario, "--model", "fake", "-n", "2")
    for out, more in (("there", RAY), ("here", ())):
        told = agentcho(*words, "--out", out, *more)
        assert told.code == 0, told.err
    there, here = (json.loads(Path(out, "compare.json").read_text()) for out in ("there", "here"))
    assert there["metrics"] == here["metrics"]
    assert there["request"] == here["request"]
    for column in Path("there").glob("*/"):
        mine, other = (find("last", out / column.name) for out in (Path("there"), Path("here")))
        assert canonical_transcript(mine) == canonical_transcript(other)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--on", "slurm"), "'slurm' is not ray, ray:auto or ray:HOST:PORT"),
        (("--on", "ray:host"), "ray:HOST:PORT"),
        (("--workers", "2"), "has no effect without --on"),
        (("--on", "ray", "--workers", "0"), "greater than or equal to 1"),
        (("--on", "ray", "--gpus-per-worker", "nan"), "finite"),
        (("--on", "ray", "--as", "alice"), "alice is played by a person"),
    ],
)
def test_what_cannot_be_asked_of_a_cluster_is_a_usage_error(
    agentcho: Command, no_model: None, words: tuple[str, ...], told: str
) -> None:
    ran = agentcho(*PLAY, *words)
    assert ran.code == 2
    assert told in ran.err


def test_without_ray_it_says_what_to_install(agentcho: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("agentcho.extras.find_spec", lambda module: None)
    assert "pip install 'agentcho[ray]'" in one_line(agentcho(*PLAY, *RAY))


def test_a_model_behind_an_api_is_no_work_for_a_cluster(agentcho: Command, no_model: None) -> None:
    served = ("--model", "openai:x", "--base-url", "http://127.0.0.1:1/v1")
    assert "--on with openai:x: only one process may use a model behind an API" in one_line(
        agentcho("run", "debate", *served, *RAY)
    )


BIG = [Machine(16, 4), Machine(8, 2)]


@pytest.mark.parametrize(
    ("machines", "words", "device", "threads", "found"),
    [
        ([Machine(2, 0)], {"workers": 2}, "auto", None, Placement(2, 1, 0)),
        ([Machine(3, 0), Machine(3, 0), Machine(3, 0)], {"workers": 2}, "auto", None, Placement(2, 3, 0)),
        ([Machine(16, 0), Machine(0, 0)], {}, "auto", 4, Placement(1, 4, 0)),
        (BIG, {}, "auto", None, Placement(6, 4, 1)),
        (BIG, {}, "cpu", None, Placement(2, 8, 0)),
        (BIG, {"gpus_per_worker": 0.5}, "cuda", None, Placement(12, 2, 0.5)),
        (BIG, {"workers": 3, "gpus_per_worker": 2}, "cuda", None, Placement(3, 8, 2)),
    ],
)
def test_workers_are_placed_with_as_many_threads_as_there_are(
    machines: list[Machine], words: dict[str, float], device: str, threads: int | None, found: Placement
) -> None:
    assert placed(machines, ClusterConfig.model_validate(words), device, threads) == found


@pytest.mark.parametrize("words", [{"workers": 7}, {"gpus_per_worker": 3, "workers": 2}, {"gpus_per_worker": 8}])
def test_more_workers_than_there_is_room_for_are_an_error(words: dict[str, float]) -> None:
    with pytest.raises(WorkersLost, match="the cluster has no room for"):
        placed(BIG, ClusterConfig.model_validate(words), "cuda", None)

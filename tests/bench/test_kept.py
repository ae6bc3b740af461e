"""A killed benchmark resumes where it stopped, only with the settings that it was started with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcho.cli import main
from agentcho.errors import CannotWrite, ConfigError, RecordBroken
from agentcho.lab.bench.measure import Timed, measure
from agentcho.lab.bench.partial import PartialWorkflows
from agentcho.lab.bench.played import ArmUnavailable
from agentcho.lab.bench.result import read_result
from agentcho.runner.engine import Engine
from agentcho.runner.understudy import weights_path

from ..test_kills import DIE

SETTINGS = {"model": "understudy", "seed": "1"}
UNDERSTUDY = pytest.mark.skipif(not (weights_path() / "model.safetensors").is_file(), reason="there are no weights")


def quiet(what: str, done: int, of: int) -> None:
    """Ignores progress."""


class Killed(BaseException):
    """Stands in for a signal."""


def counting(at: int = 1 << 30) -> tuple[list[str], Callable[[str], Timed]]:
    """A list of the runs so far, and arms whose values are run numbers; run number `at` raises Killed."""
    runs: list[str] = []

    def arm(name: str) -> Timed:
        def take() -> dict[str, float]:
            runs.append(name)
            if len(runs) == at:
                raise Killed
            return {"seconds": float(len(runs))}

        return Timed(lambda: {"warm": 0.0}, take)

    return runs, arm


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    """A kill in the third of four repeats loses only that repeat, including its first arm's measurement."""
    file = tmp_path / "r.json"
    _, arm = counting(at=6)
    with pytest.raises(Killed):
        measure("tree", {"one": arm("one"), "two": arm("two")}, 4, quiet, PartialWorkflows.begin(file, False, SETTINGS))
    runs, arm = counting()
    kept = PartialWorkflows.begin(file, True, SETTINGS)
    found = measure("tree", {"one": arm("one"), "two": arm("two")}, 4, quiet, kept)
    assert runs == ["one", "two", "two", "one"], "the order of repeats 2 and 3"
    assert {each.arm: each.values["seconds"] for each in found} == {"one": (1, 4, 1, 4), "two": (2, 3, 2, 3)}
    kept.done()
    assert [*tmp_path.iterdir()] == []


def test_who_was_not_there_is_not_looked_for_again(tmp_path: Path) -> None:
    def gone() -> dict[str, float]:
        raise ArmUnavailable("no library")

    runs, arm = counting()
    arms = {"one": arm("one"), "none": Timed(gone, gone)}
    for resume in (False, True):
        found = measure("tree", arms, 2, quiet, PartialWorkflows.begin(tmp_path / "r.json", resume, SETTINGS))
        assert [(each.arm, each.unavailable) for each in found] == [("one", None), ("none", "no library")]
    assert runs == ["one", "one"]


def kept_in(folder: Path) -> Path:
    """The file of a measurement begun with `SETTINGS`."""
    PartialWorkflows.begin(folder / "r.json", False, SETTINGS).save()
    return folder / "r.json"


def test_what_was_measured_otherwise_is_refused_by_name_and_both_values(tmp_path: Path) -> None:
    file = kept_in(tmp_path)
    with pytest.raises(
        ConfigError, match=r"r\.json\.part was measured with other settings: seed was 1, and is 2\. Use the"
    ):
        PartialWorkflows.begin(file, True, SETTINGS | {"seed": "2"})
    kept = PartialWorkflows.begin(file, True, SETTINGS)
    kept.check({"engine weights": "a"})
    with pytest.raises(ConfigError, match="engine weights was a, and is b"):
        kept.check({"engine weights": "b"})


def test_what_is_in_the_way_is_told_of(tmp_path: Path) -> None:
    file = kept_in(tmp_path)
    with pytest.raises(
        ConfigError, match=r"r\.json\.part has an earlier measurement; continue it with --resume, or delete"
    ):
        PartialWorkflows.begin(file, False, SETTINGS)
    (tmp_path / "r.json.part").write_text('{"format": "other"}')
    with pytest.raises(RecordBroken, match="was not written by a benchmark"):
        PartialWorkflows.begin(file, True, SETTINGS)
    (tmp_path / "r.json.part").unlink()
    file.write_text("{}")
    with pytest.raises(ConfigError, match=r"r\.json is complete, so there is nothing to resume"):
        PartialWorkflows.begin(file, True, SETTINGS)
    with pytest.raises(ConfigError, match="pass it with --json FILE"):
        PartialWorkflows.begin(None, True, SETTINGS)
    with pytest.raises(CannotWrite):
        PartialWorkflows.begin(file / "r.json", False, SETTINGS)


def test_another_seed_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Engine, "load", classmethod(lambda cls, *args, **options: pytest.fail("a model was loaded")))
    file = kept_in(tmp_path)
    words = ("--workflow", "multi-qa", "--scale", "0.02", "--json", str(file), "--resume", "--seed", "2")
    monkeypatch.setattr(sys, "argv", ["agentcho", "bench", "workflows", *words])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "seed was 1, and is 2" in " ".join(capsys.readouterr().err.split())


@UNDERSTUDY
@pytest.mark.slow
def test_a_killed_benchmark_goes_on(tmp_path: Path) -> None:
    """A process kills itself by SIGKILL right before it replaces its file for the third time; the next process finds
    the second version, bit for bit."""
    file = tmp_path / "r.json"
    asked = ("bench", "workflows", "--workflow", "multi-qa", "--scale", "0.01", "--repeats", "3")
    arms = ("--arm", "baseline", "--arm", "choreographed:audit", "--speculate", "--json", str(file))

    def run(kind: str, at: int, *more: str) -> int:
        words = [sys.executable, "-c", DIE, kind, str(at), *asked, *arms, *more]
        alone = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.run(words, cwd=tmp_path, env=alone, capture_output=True, check=False).returncode

    assert run("replace", 3) == -signal.SIGKILL
    assert not file.exists()
    (multi,) = json.loads((tmp_path / "r.json.part").read_text())["subjects"].values()
    assert len(multi["repeats"]) == 2
    assert run("none", 0) == 2, "it is not measured anew by mistake"
    assert run("none", 0, "--resume") == 0
    found = read_result(file)
    for arm in found.arms:
        for what, values in multi["repeats"][0][arm].items():
            taken = found.values("multi-qa", arm, what)
            assert taken[:2] == (values, multi["repeats"][1][arm][what])
            assert len(taken) == 3
    assert "--resume" not in found.command
    assert [*tmp_path.iterdir()] == [file]

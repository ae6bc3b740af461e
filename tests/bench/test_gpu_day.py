"""The program for one GPU: whatever fails, dies or is killed, measurements are on disk and missing ones are named; the
page reports which targets were met, and says so where nothing was run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tools.bench.gpu_day import lacks, program
from tools.bench.gpu_day.asked import LARGE, SMALL, Asked
from tools.bench.gpu_day.day import Impossible
from tools.bench.gpu_day.parts import PARTS, Part
from tools.bench.gpu_day.result import ResultFile
from tools.pages.gpu import page, page_of
from tools.pages.marks import without_age

ROOT = Path(__file__).parents[2]
OWN = "tests.bench.test_gpu_day"


def faulty(day: Any) -> None:
    """A part that stores something, then fails."""
    day.keep("before", 1)
    raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")


def dying(day: Any) -> None:
    """A part whose process dies."""
    day.keep("before", 2)
    print("the last words", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def hanging(day: Any) -> None:
    """A part that never ends."""
    day.keep("process", os.getpid())
    time.sleep(600)


def quick(day: Any) -> None:
    """A part that stores the id of its process."""
    day.keep("process", os.getpid())


def impossible(day: Any) -> None:
    """A part that this machine cannot run."""
    raise Impossible("there is no GPU here")


def made(name: str, **more: Any) -> Part:
    """One of these parts, by name."""
    return Part(name, name, f"{OWN}:{name}", **{"limit": 60.0, **more})


class Ran:
    """The file left by a run of some parts, with the parts by name."""

    def __init__(self, file: Path, *given: Part, device: str = "cpu", seconds: float = 100.0) -> None:
        result = ResultFile(file, "words", {})
        self.code = program.Run(Asked(device, "understudy", 1), result, seconds, []).run(given)
        self.held = json.loads(file.read_bytes())
        self.parts = {part["name"]: part for part in self.held["parts"]}


@pytest.mark.slow
def test_whatever_fails_dies_or_hangs_leaves_what_it_found_and_the_next_part_runs(tmp_path: Path) -> None:
    more = [made("quick")._replace(name=f"quick {number}") for number in range(4)]
    given = [more[0], made("impossible"), more[1], made("faulty"), more[2], made("dying"), made("hanging", limit=4.0)]
    ran = Ran(tmp_path / "gpu.json", *given, more[3])
    assert [part["state"] for part in ran.held["parts"]] == [
        *("done", "skipped", "done", "failed", "done", "failed", "failed", "done"),
    ]
    assert (ran.code, ran.held["ended"]) == (1, "whole")
    assert ran.parts["impossible"]["why"] == "there is no GPU here"
    assert ran.parts["faulty"]["found"] == {"before": 1}
    assert ran.parts["faulty"]["why"] == "CUDA error: an illegal memory access was encountered"
    assert "raise RuntimeError" in ran.parts["faulty"]["traceback"]
    assert ran.parts["dying"]["found"] == {"before": 2}
    assert ran.parts["dying"]["why"] == f"its process ended (signal {int(signal.SIGSEGV)})"
    assert "the last words" in ran.parts["dying"]["traceback"]
    assert ran.parts["hanging"]["why"].startswith("it took longer than 4 s")
    first, second, third, fourth = (ran.parts[part.name]["found"]["process"] for part in more)
    assert first == second
    assert len({second, third, fourth}) == 3  # a new process after a CUDA error, and after a death
    assert not alive(ran.parts["hanging"]["found"]["process"])


def alive(process: int) -> bool:
    """Whether a process with this id exists and is not a zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def test_after_its_seconds_no_part_begins(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "gpu.json", made("quick"), seconds=0.0)
    assert ran.parts["quick"]["why"] == "it was not begun: 0 seconds were over"
    assert (ran.code, ran.held["ended"]) == (1, "time was up")


def test_what_is_missing_is_named_with_the_wheels_to_carry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = {"pydantic", "llguidance"}
    monkeypatch.setattr(lacks, "_there", lambda name: name not in gone)
    ran = Ran(tmp_path / "gpu.json", made("quick", needs=("numpy", "pydantic", "llguidance")))
    why = ran.parts["quick"]["why"]
    assert why.startswith("not installed here: pydantic, llguidance. Carry the wheels, and give --wheels: pip download")
    first, last = capsys.readouterr().err.splitlines()
    assert first.endswith("(quick): skipped: not installed here: pydantic, llguidance")
    assert last.endswith(why.partition("--wheels: ")[2])
    words = why.split()
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in words
    for name in (
        "pydantic",
        "pydantic_core",
        "annotated-types",
        "typing-inspection",
        "typing_extensions",
        "llguidance",
    ):
        assert any(word.startswith(f"{name}==") for word in words), name


def test_what_only_a_gpu_has_is_skipped_on_a_processor(tmp_path: Path) -> None:
    assert Ran(tmp_path / "gpu.json", made("quick", gpu_only=True)).parts["quick"]["why"] == "only a GPU has this"


def test_wheels_are_imported_without_being_installed(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "carried-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried_here/__init__.py", "found = 7")
    (path,) = lacks.unpacked(tmp_path)
    assert lacks.unpacked(tmp_path) == [path]
    own = os.environ | program._environment("cpu", [path])
    words = [sys.executable, "-c", "import carried_here; print(carried_here.found)"]
    assert subprocess.run(words, env=own, capture_output=True, text=True, check=True).stdout == "7\n"
    (tmp_path / "torn-1-py3-none-any.whl").write_bytes(b"half")
    with pytest.raises(ValueError, match=r"torn-1-py3-none-any.whl is no wheel .*; download it again"):
        lacks.unpacked(tmp_path)


@pytest.mark.parametrize(
    ("words", "told"), [(["--part", "chess"], "no part 'chess'; give one of machine, "), (["--wheels", "."], None)]
)
def test_bad_words_are_refused_in_a_line(
    words: list[str],
    told: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.whl").write_bytes(b"half")
    assert program.main(words) == 2
    assert capsys.readouterr().err.startswith(f"gpu-day: {told or 'x.whl is no wheel'}")


COMMAND = [sys.executable, "-m", "tools.bench", "gpu-day", "--device", "cpu", "--part", "machine", "--part", "load"]
LASTING = [*COMMAND, "--part", "steps", "--part", "workflows"]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_killed_halfway_it_leaves_what_was_measured_and_no_process(how: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    running = subprocess.Popen([*LASTING, "--json", str(file)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: file.exists() and states(file).get("workflows") == "running")
        wait_for(lambda: bool(found(file, "workflows")))
        workers = children(running.pid)
        assert workers
        running.send_signal(how)
        said = running.communicate(timeout=60)[1]
    finally:
        running.kill()
    assert states(file) | {"workflows": ""} == dict.fromkeys(("machine", "load", "steps"), "done") | {"workflows": ""}
    assert found(file, "workflows")
    assert {each["steps"] for each in found(file, "steps").values()} == {SMALL.steps}
    wait_for(lambda: not any(map(alive, workers)))
    if how != signal.SIGKILL:
        assert running.returncode == 130
        assert "interrupted; what was measured is in the file" in said
        assert json.loads(file.read_bytes())["ended"] == "interrupted"


def states(file: Path) -> dict[str, str]:
    """The current state of each part."""
    return {part["name"]: part["state"] for part in json.loads(file.read_bytes())["parts"]}


def found(file: Path, name: str) -> dict[str, Any]:
    """What a part has stored so far."""
    return next(dict(part["found"]) for part in json.loads(file.read_bytes())["parts"] if part["name"] == name)


def children(process: int) -> list[int]:
    """The ids of its child processes."""
    told = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(each) for each in told.split()]


def wait_for(so: Any, seconds: float = 90.0) -> None:
    """Waits until a condition holds."""
    latest = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < latest, "it never was"
        time.sleep(0.05)


OLDEST = os.environ.get("AGENTCHO_TEST_OLDEST", "")
"""A folder with the oldest transformers version that pyproject.toml allows."""


@pytest.mark.slow
@pytest.mark.skipif(not OLDEST, reason="AGENTCHO_TEST_OLDEST names no folder; `make test-slow` brings one")
def test_the_whole_program_runs_under_the_oldest_transformers(tmp_path: Path) -> None:
    """Its continuous batching takes other options; that is reported, and all else is measured."""
    file = tmp_path / "gpu.json"
    words = [
        sys.executable,
        "-m",
        "tools.bench",
        "gpu-day",
        "--device",
        "cpu",
        "--json",
        str(file),
        "--tests=--version",  # tested elsewhere
    ]
    own = os.environ | {"PYTHONPATH": OLDEST}
    done = subprocess.run(words, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (least,) = (line for line in (ROOT / "pyproject.toml").read_text().splitlines() if '"transformers>=' in line)
    version = json.loads(file.read_bytes())["machine"]["transformers"]
    assert f"transformers>={version.removesuffix('.0')}," in least
    assert states(file) == {part.name: "skipped" if part.gpu_only else "done" for part in PARTS}
    stock = found(file, "peers")
    assert all("seconds" in each for name, each in stock.items() if name.endswith("generate"))
    assert all(each.keys() <= {"why", "seconds"} for each in stock.values())


@pytest.mark.slow
def test_the_whole_program_runs_on_a_processor(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    words = [sys.executable, "-m", "tools.bench", "gpu-day", "--device", "cpu", "--json", str(file), "--seconds", "500"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    held = json.loads(file.read_bytes())
    assert done.returncode == 0, done.stderr + json.dumps(held["parts"], indent=1)[-4000:]
    assert states(file) == {part.name: "skipped" if part.gpu_only else "done" for part in PARTS}
    assert held["machine"]["commit"]
    assert "tools/bench/gpu_day:" in held["machine"]["trees"]
    assert held["command"] == "python -m tools.bench gpu-day --device cpu --json gpu.json --seconds 500"
    assert all("seconds" in each for each in found(file, "peers").values())
    assert len(found(file, "workflows")) == 6 * 3
    assert "Nothing in agentcho has run on a GPU" in page_of(held)
    shown = page_of(as_of_a_gpu(held))
    assert "has been run on a GPU" not in shown
    assert "| 4 rows apart over 200 |" in shown


def as_of_a_gpu(held: dict[str, Any]) -> dict[str, Any]:
    """The result, changed as if its machine had a GPU."""
    (machine,) = (part for part in held["parts"] if part["name"] == "machine")
    machine["found"]["gpu"] = {"name": "H100", "total_memory": 80 << 30}
    return held


def test_where_there_is_no_gpu_it_says_so_and_measures_nothing(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    words = [sys.executable, "-m", "tools.bench", "gpu-day", "--json", str(file)]
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, cwd=ROOT, env=hidden, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "(machine): skipped in " in done.stderr
    assert set(states_why(file).values()) == {states_why(file)["machine"]}
    assert len(states_why(file)) == len(PARTS)


def states_why(file: Path) -> dict[str, str]:
    """The reason why each part did not run."""
    return {part["name"]: part.get("why", "") for part in json.loads(file.read_bytes())["parts"]}


MEASURED: dict[str, dict[str, Any]] = {
    "machine": {"gpu": {"name": "H100", "total_memory": 80 << 30}, "packages": {"torch": "2.11"}},
    "rates": {"streaming them": 0.005},
    "steps": {
        "1 row over 512": {
            "replayed": [0.007, 0.0074, 0.009],
            "eager": [0.02],
            "least": 0.005,
            "replays": 3,
            "steps": 3,
        },
        "64 rows apart over 8192": {"why": "524288 tokens do not fit into a store of 200000"},
    },
    "first tokens": {"afresh": {"seconds": 0.25}, "a tail of 33": {"seconds": 0.014, "second": 0.01}},
    "profile": {
        "1 row, eager": {"kernels": 1815.0, "seconds": 0.02, "busy": 0.01, "gaps": 0.01},
        "first token": {"kernels": 400.0, "seconds": 0.02, "busy": 0.01, "gaps": 0.01},
    },
    "crowd": {
        "16 agents": {"steps": 200, "replays": 190, "rows a step": 9.0, "tokens a second": 1e3, "growths": 0},
        "16 agents, shadows": {"steps": 200, "replays": 20, "rows a step": 9.0, "tokens a second": 1e3, "growths": 2},
    },
    "attention": {
        "flash": {"first": [0.001, 0.002, 0.003], "again": [0.001, 0.001, 0.001]},
        "cuDNN": {"why": "No available kernel. Aborting execution."},
    },
    "kernel tests": {"counts": {"passed": 13}},
    "engine tests": {"counts": {"passed": 90, "failed": 2}},
    "peers": {"1 row over 512, generate": {"seconds": 0.03}},
}


def test_the_page_says_which_targets_were_met_and_which_were_missed() -> None:
    told = [
        {"name": name, "title": name, "state": "done", "seconds": 1.0, "found": each} for name, each in MEASURED.items()
    ]
    told[-1] |= {"state": "failed", "why": "out of | memory"}
    told.append({"name": "workflows", "title": "the paper's", "state": "running", "found": {}})
    shown = page_of({"parts": told, "command": "c", "ended": None, "machine": {"machine": "m", "commit": "1" * 40}})
    for row in (
        "a step of 1 row over 512 ÷ streaming the weights | ≤ 1.5 | 1.48 | met",
        "first token over 8k that is there, the worst of 1 new lengths | ≤ 15 ms | 14.0 ms | met",
        "kernels of a decode step of 1 row | ≤ 700 | 1815 | missed",
        "launches of a first token, 64 tokens over 8k | ≤ 400 | 400 | met",
        "steps replayed, 1 agent | ≥ 95% |  | not measured",
        "steps replayed, 16 agents | ≥ 90% | 95% | met",
        "workflows | the paper's |  |  | the run ended in it |",
        "steps replayed, 16 agents, shadows | ≥ 90% | 10% | missed",
        "kernel tests | none fail | 0 of 13 fail | met",
        "engine tests | none fail | 2 of 92 fail | missed",
        "1 row over 512 | 5.00 | 7.40 | 3 of 3 | 20.00 | 30.00 | ",
        "flash | 2.00 | 3.00 | 1.00 |",
        "cuDNN | No available kernel. Aborting execution. | ",
        "64 rows apart over 8192 | 524288 tokens do not fit into a store of 200000",
    ):
        assert f"| {row}" in shown
    assert "The run was killed." in shown
    assert "`peers` failed: out of | memory" in shown
    assert "failed: out of \\| memory |" in shown
    assert "Nothing in agentcho" not in shown
    assert "### Crowds" in shown
    assert "### Workflows" not in shown


def test_the_page_is_what_its_result_gives() -> None:
    assert page(ROOT / "docs" / "results") == without_age((ROOT / "docs" / "gpu.md").read_text()), (
        "python -m tools.pages gpu"
    )


def test_the_program_begins_without_any_package() -> None:
    """Before a part runs, it imports only the standard library."""
    code = "import sys; from tools.bench.gpu_day import program; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}
    assert loaded - set(sys.stdlib_module_names) <= {"tools", "__main__", "sitecustomize"}


def test_what_is_measured_on_a_gpu_is_what_the_issue_of_speed_asks_for() -> None:
    assert (LARGE.rows, LARGE.contexts, LARGE.cached, len(LARGE.tails)) == ((1, 8, 32, 64), (512, 8192), 8192, 10)
    assert {16, 64} <= {*LARGE.agents}
    assert PARTS[0].name == "machine"

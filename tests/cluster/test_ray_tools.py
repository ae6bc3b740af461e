"""Games with tool calls on workers of a real Ray cluster on loopback; a worker, or the driver, is killed during a call.
Recorded calls are not repeated, and a call with an unknown result stops its game."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentcho.records.record import SavedRun, find
from tests.cluster.processes import actors, kill, marked
from tests.cluster.test_ray import LATE, command, mark, wait_until
from tests.cluster.test_ray_sweeps import told

__all__ = ["mark"]
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
RAY = ("--on", "ray", "--workers", "2", "--display", "none")
PAYS = '''
import os
import time
from pathlib import Path
import agentcho

HERE = Path({here!r})

@agentcho.tool(audience="nobody", idempotent={idempotent})
def pay() -> str:
    "Pay. The second payment takes until somebody is killed."
    with HERE.joinpath("paid").open("a") as file:
        file.write(f"{{os.getpid()}}\\n")
    while len(HERE.joinpath("paid").read_text().splitlines()) == 2:
        time.sleep(0.05)
    return "paid"

class Pays(agentcho.Scenario):
    """Ann pays twice."""
    name = "pays"

    async def play(self, game):
        ann = game.cast(agentcho.Agent, name="ann", tools=[pay])
        for _ in range(2):
            await ann.say(to="everyone", tool_choice="required", max_calls=1)
        return self.Outcome()
'''


def killed(folder: Path, mark: str, driver: bool, idempotent: bool) -> tuple[int, str]:
    """Plays one game and kills the worker, or the driver, in its second payment; returns exit code and errors."""
    (folder / "pays.py").write_text(PAYS.format(here=str(folder), idempotent=idempotent))
    with command(folder, "run", "pays.py", "--model", "fake", *RAY) as process:
        wait_until(lambda: len(paid(folder)) == 2 or process.poll() is not None, "the second payment", LATE)
        assert process.poll() is None, process.communicate()
        if driver:
            process.kill()
        else:
            assert paid(folder)[-1] in actors(mark)
            kill(paid(folder)[-1])
        _, error = process.communicate(timeout=LATE)
    wait_until(lambda: not [*marked(mark)], "all have ended", LATE)
    return process.returncode, error


def paid(folder: Path) -> list[int]:
    """The process id of each payment."""
    file = folder / "paid"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def called(run: SavedRun) -> list[tuple[str, Any]]:
    """The recorded lines of calls: the call, and how it ended."""
    lines = [json.loads(line) for line in (run.path / "calls.jsonl").read_text().splitlines()]
    return [(line["call"], line.get("ended")) for line in lines]


ONE, AGAIN = ("ann.0.step0", None), ("ann.1.step0", None)
FIRST = [ONE, ("ann.0.step0", "returned"), AGAIN]


@pytest.mark.parametrize("driver", [False, True], ids=["worker", "driver"])
def test_a_call_that_was_under_way_stops_its_game_until_somebody_says_what_is_to_be_done(
    mark: str, tmp_path: Path, driver: bool
) -> None:
    code, error = killed(tmp_path, mark, driver, idempotent=False)
    run = find("last", tmp_path / "runs")
    assert called(run) == FIRST
    assert run.status == ("died" if driver else "failed")
    assert driver or (code, "--redo 0:ann.1.step0" in error) == (1, True), error
    code, error = told(tmp_path, "run", "--resume", "last", *RAY)
    assert (code, "--redo 0:ann.1.step0" in error) == (1, True), error
    assert len(paid(tmp_path)) == 2
    code, error = told(tmp_path, "run", "--resume", "last", "--redo", "0:ann.1.step0", *RAY)
    assert (code, "Traceback" in error) == (0, False), error
    whole = SavedRun(run.path)
    assert called(whole) == [*FIRST, AGAIN, ("ann.1.step0", "returned")]
    assert len(paid(tmp_path)) == 3
    assert [entry.message.text for entry in whole.games()[0] if entry.origin == "tool"] == ["paid", "paid"]
    assert whole.status == "done"


@pytest.mark.parametrize("driver", [False, True], ids=["worker", "driver"])
def test_a_call_that_may_be_made_twice_is_made_again_and_no_other(mark: str, tmp_path: Path, driver: bool) -> None:
    code, error = killed(tmp_path, mark, driver, idempotent=True)
    if driver:
        code, error = told(tmp_path, "run", "--resume", "last", *RAY)
    assert (code, "Traceback" in error) == (0, False), error
    run = find("last", tmp_path / "runs")
    assert called(run) == [*FIRST, AGAIN, ("ann.1.step0", "returned")]
    assert (len(paid(tmp_path)), run.status) == (3, "done")


def test_a_call_may_be_left_out_and_the_record_says_so(mark: str, tmp_path: Path) -> None:
    killed(tmp_path, mark, driver=True, idempotent=False)
    code, error = told(tmp_path, "run", "--resume", "last", "--skip", "0:ann.1.step0", *RAY)
    assert (code, len(paid(tmp_path))) == (0, 2), error
    texts = [e.message.text for e in find("last", tmp_path / "runs").games()[0] if e.origin == "tool"]
    assert texts[0] == "paid"
    assert "Nobody knows whether it was made" in texts[1]

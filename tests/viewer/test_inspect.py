"""A run as an Inspect log: where everything is stored, failures, and that Inspect can open it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agentcho import Agent, Game, RunConfig, Scenario
from agentcho.errors import CannotWrite
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.integrations.inspect.eval_log import write_inspect
from agentcho.records.record import SavedRun

from ..clients.environment import run_script


class Talk(Scenario):
    """Ann has a secret; Bob reads what he should not, where that is permitted."""

    class Outcome(Scenario.Outcome):
        said: str

    def score(self, outcome: Any) -> dict[str, float]:
        return {"length": float(len(outcome.said))}

    async def play(self, game: Game) -> Outcome:
        ann, bob = game.cast(Agent, "ann", audience="everyone"), game.cast(Agent, "bob", audience="everyone")
        await game.announce("Talk, <b>both</b> of you.")
        await ann.think("A secret </script> word.", max_tokens=2)
        await ann.say(header="To Bob: ", max_tokens=3)
        if game.index == 1:
            raise LookupError("mine")
        return self.Outcome(said=(await bob.say(max_tokens=3)).text)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    """Two games under leakage=audit, the second of which fails."""
    config = RunConfig(model="fake", games=2, seed=3, leakage="audit")
    record = play(RunRequest(Talk(), config, out=tmp_path_factory.mktemp("runs"))).record
    assert record is not None
    return SavedRun(record)


def opened(file: Path) -> dict[str, Any]:
    """The JSON files in a log, by name."""
    with zipfile.ZipFile(file) as archive:
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def test_games_are_samples_and_messages_are_events_of_their_agents(run: SavedRun, tmp_path: Path) -> None:
    write_inspect(run, tmp_path / "run.eval")
    log = opened(tmp_path / "run.eval")
    header, sample = log["header.json"], log["samples/0_epoch_1.json"]
    assert (header["version"], header["status"]) == (2, "error")
    assert header["eval"]["task"] == "talk"
    assert header["results"]["completed_samples"] == 2
    assert [line["id"] for line in log["summaries.json"]] == [0, 1]
    models = [event for event in sample["events"] if event["event"] == "model"]
    assert [event["span_id"] for event in models] == ["agent:ann", "agent:ann", "agent:bob"]
    pool = sample["events_data"]["messages"]
    prompts = [[pool[n] for a, b in event["input_refs"] for n in range(a, b)] for event in models]
    assert [[each["role"] for each in prompt] for prompt in prompts] == [
        ["user", "user"],
        ["user", "user", "assistant"],
        ["user", "user"],
    ]
    assert models[1]["output"]["completion"].startswith("To Bob: ")
    assert models[0]["metadata"]["audience"] == ["ann"]
    [score] = [event["score"] for event in sample["events"] if event["event"] == "score"]
    assert sample["scores"]["length"]["value"] == score["value"] > 0


def test_what_reached_whom_is_that_of_the_audit(run: SavedRun, tmp_path: Path) -> None:
    write_inspect(run, tmp_path / "run.eval")
    sample = opened(tmp_path / "run.eval")["samples/0_epoch_1.json"]
    assert sample["metadata"]["verdicts"] == {"ann": "clean", "bob": "transitive"}
    told = {e["metadata"]["message"]: e["metadata"]["leaks"] for e in sample["events"] if e["event"] == "model"}
    assert told["ann.2"] == []
    assert told["bob.0"] == [
        {"message": "ann.0", "verdict": "transitive", "through": "ann.2"},
        {"message": "ann.1", "verdict": "transitive", "through": "ann.2"},
    ]


def test_a_game_that_failed_says_so(run: SavedRun, tmp_path: Path) -> None:
    write_inspect(run, tmp_path / "run.eval")
    log = opened(tmp_path / "run.eval")
    assert "LookupError" in log["summaries.json"][1]["error"]
    assert "LookupError" in log["samples/1_epoch_1.json"]["error"]["message"]
    assert "error" not in log["samples/0_epoch_1.json"]


def test_the_same_record_gives_the_same_bytes(run: SavedRun, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_inspect(run, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with pytest.raises(CannotWrite):
        write_inspect(run, tmp_path / "one" / "run.eval")


@pytest.mark.clients
def test_inspect_itself_opens_it(run: SavedRun, tmp_path: Path) -> None:
    write_inspect(run, tmp_path / "run.eval")
    found = run_script("frameworks", "inspect_log", str(tmp_path / "run.eval"))
    assert found["status"] == "error"
    assert found["samples"] == 2
    assert found["prompts"] == [2, 3, 2]
    rows = found["rows"]
    assert (rows["evals_df"], rows["samples_df"], rows["events_df"]) == (1, 2, found["events"])
    assert rows["messages_df"] > 2
    assert found["dumped"] == found["status"]

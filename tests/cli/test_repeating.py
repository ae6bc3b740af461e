"""The command line that a benchmark's result names."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcho.lab.commands.workflows import repeating


def test_folders_are_left_out_and_lists_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapters = [tmp_path / "runs" / name for name in ("one-audit", "one-enforce", "one-audit/epoch-2")]
    for each in adapters:
        each.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    columns = f"baseline,choreographed:audit@{adapters[0]},choreographed:enforce@runs/one-enforce"
    columns += ",baseline@runs/one-audit/epoch-2"
    given = [
        *("agentcho", "bench", "fidelity", "--traces", str(tmp_path / "talk.jsonl"), "--modes", columns),
        *("--model", "HuggingFaceTB/SmolLM2-135M-Instruct", "--resume", f"--json={tmp_path}/later/found.json"),
        *("--server", "https://user:password@host.example/v1"),
    ]
    monkeypatch.setattr("sys.argv", given)
    assert repeating("fidelity") == (
        "agentcho bench fidelity --traces talk.jsonl "
        "--modes baseline,choreographed:audit@one-audit,choreographed:enforce@one-enforce,baseline@one-audit/epoch-2 "
        "--model HuggingFaceTB/SmolLM2-135M-Instruct --json=found.json --server v1"
    )
    assert repeating("leaks") == "agentcho bench leaks"

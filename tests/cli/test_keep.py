"""`--keep-cache`: a later run of the same model starts from encodings kept by an earlier one, and records them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agentcho.config import ModelConfig, RunConfig
from agentcho.engine.persistent_files import HEAD
from agentcho.engine.persistent_key import VARIABLE
from agentcho.errors import ModelError
from agentcho.games.runs.loading import load_together
from agentcho.games.runs.resume import differences
from agentcho.integrations.ray.packaging import unpacked
from agentcho.lab.sweep.plan import network
from agentcho.protocol.progress import no_progress
from agentcho.records.record import find
from tests.engines import Engines

from .conftest import Command

RUN = ("run", "direct", "--device", "cpu", "--max-tokens", "2", "--seed", "1", "--deterministic")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "s" * 40)


def said(folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """These fields of every line of a transcript; times are left out."""
    lines = (folder / "transcript.jsonl").read_text().splitlines()
    return [{name: json.loads(line)[name] for name in names} for line in lines]


@pytest.mark.slow
def test_a_run_begins_from_what_an_earlier_one_kept_and_its_audit_is_the_same(
    agentcho: Command, engines: Engines, here: Path
) -> None:
    words, names = (*RUN, "--model", str(engines.folder())), ["text", "tokens", "encodings", "audience", "direct"]
    transcripts, audits = [], []
    for more in ((), ("--keep-cache", "kept"), ("--keep-cache", "kept")):
        ran = agentcho("--log-level", "info", *words, *more)
        assert ran.code == 0, ran.err
        run = find("last", here / "runs")
        transcripts.append(said(run.path, names))
        audits.append(json.loads(agentcho("audit", "last", "--json", "-").out))
        found = [line for line in ran.err.splitlines() if "are from an earlier run" in line]
        assert len(found) == (len(transcripts) == 3)
    assert transcripts[0] == transcripts[1] == transcripts[2]
    assert audits[0]["findings"] == audits[1]["findings"] == audits[2]["findings"]
    assert len(os.listdir("kept")) == 2
    info = run.info
    assert info.config.keep_cache == "kept"
    other = info.config.model_copy(update={"keep_cache": None})
    assert differences(info, info.scenario, info.options, other, info.tasks) == []
    refused = agentcho(*words, "--keep-cache", "kept", "--dtype", "bfloat16")
    assert (refused.code, "kept holds encodings of another model (dtype float32, and not" in refused.err) == (2, True)


def test_a_sweep_keeps_what_is_of_one_model_alone(agentcho: Command, here: Path) -> None:
    words = ("sweep", "direct", "--dry-run", "--keep-cache", "kept", "--grid")
    refused = agentcho(*words, "dtype=float32,bfloat16")
    assert (refused.code, "keep_cache kept holds one model" in refused.err) == (2, True)
    assert agentcho(*words, "temperature=0,1").code == 0
    assert not (here / "kept").exists()


def test_models_of_a_run_have_a_folder_each(engines: Engines, tmp_path: Path) -> None:
    folder, place = str(engines.folder()), tmp_path / "kept"
    models = {"b": ModelConfig(model=folder, dtype="bfloat16")}
    config = RunConfig(model=folder, dtype="float32", models=models, keep_cache=str(place))
    loaded = load_together(config, None, {}, no_progress)
    assert loaded.engine is not loaded.others["b"]
    assert sorted(each.name for each in place.iterdir()) == ["b", "default"]
    assert all((each / HEAD).exists() for each in place.iterdir())
    assert not any(each.stat().st_mode & 0o077 for each in (place, *place.iterdir()))
    swapped = config.model_copy(update={"keep_cache": str(place / "default")})
    (place / "default" / "default").mkdir(0o700)
    (place / "default" / "default" / HEAD).write_bytes((place / "b" / HEAD).read_bytes())
    with pytest.raises(ModelError, match=r"model 'default': .*\(dtype bfloat16, and not float32\)"):
        load_together(swapped, None, {}, no_progress)


def test_only_a_model_that_is_loaded_here_keeps_any() -> None:
    with pytest.raises(ValidationError, match="keep_cache applies to models that are loaded here"):
        RunConfig(model="openai:m", base_url="http://127.0.0.1:1/v1", keep_cache="kept")


def test_workers_have_a_folder_at_the_same_path(here: Path) -> None:
    assert unpacked(RunConfig(keep_cache="kept")).keep_cache == str(here / "kept")
    assert unpacked(RunConfig()).keep_cache is None
    assert network(RunConfig(keep_cache="kept")) != network(RunConfig())

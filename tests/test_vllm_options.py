"""Engine vllm is refused where it cannot be, before anything is loaded."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError

import pytest
from pydantic import ValidationError

import agentcho
from agentcho import ModelConfig, RunConfig
from agentcho.errors import ExtraMissing, ModelError
from agentcho.games.runs.runtime import load_engine
from agentcho.integrations.vllm import versions
from agentcho.testing import FakeEngine


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"deterministic": True},
            "deterministic cannot be used with engine vllm: vLLM's batches are not deterministic",
        ),
        ({"repair": "first-k:4"}, "repair cannot be used with engine vllm: vLLM computes only the end of a prompt"),
        ({"kv_dtype": "int8"}, "kv_dtype cannot be used with engine vllm: quantised keys would be rounded again"),
        ({"adapter": "folder"}, "adapter cannot be used with engine vllm"),
        ({"speculate": True}, "speculate cannot be used with engine vllm: speculation is supported"),
        ({"reuse": "in-place"}, "reuse in-place cannot be used with engine vllm, which supports rotate only"),
        ({"model": "fake"}, "engine vllm needs a model with weights, and the fake one has none"),
        ({"model": "openai:m", "base_url": "http://127.0.0.1:9/v1"}, "engine is of a model that is loaded here"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(options: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(told)):
        RunConfig.model_validate({"engine": "vllm", **options})


def test_a_model_beside_the_runs_own_may_be_in_it() -> None:
    config = RunConfig(models={"other": ModelConfig(model="smollm2", engine="vllm")})
    assert config.models["other"].engine == "vllm"
    with pytest.raises(ValidationError, match="models other: weights cannot be used with engine vllm"):
        RunConfig(models={"other": ModelConfig(model="smollm2", engine="vllm", weights="int8")})


def test_where_it_is_not_installed_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", none)
    with pytest.raises(ExtraMissing, match=r"vllm is needed for engine vllm .*: pip install 'agentcho\[vllm\]'"):
        load_engine(RunConfig(model="understudy", engine="vllm"))


def test_a_run_in_python_names_it_where_it_would_give_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[RunConfig]()

    def loads(config: RunConfig, *rest: object) -> FakeEngine:
        asked.append(config)
        return FakeEngine()

    monkeypatch.setattr("agentcho.games.runs.runtime._load", loads)
    agentcho.run("debate", engine="vllm", model="understudy", display="none")
    assert [config.engine for config in asked] == ["vllm"]


@pytest.mark.parametrize(("found", "told"), [("0.31.9", "0.31.9"), ("0.33.0", "0.33.0"), ("0.320.1", "0.320.1")])
def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, found: str, told: str) -> None:
    monkeypatch.setattr(versions, "version", lambda name: found)
    with pytest.raises(ModelError, match=rf"vLLM {told} is installed, and engine vllm is tested with 0\.32 alone"):
        versions.installed()


def test_the_tested_version_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda name: "0.32.4")
    assert versions.installed() == "0.32.4"

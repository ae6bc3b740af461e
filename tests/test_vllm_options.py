"""Engine vllm is refused where it cannot run, before anything is loaded."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

import agentcho
from agentcho import Engine, ModelConfig, RunConfig
from agentcho.cli.serve_run import _loaded
from agentcho.config import EngineOptions
from agentcho.errors import AgentchoError, ConfigError, ExtraMissing, ModelError
from agentcho.games.runs.runtime import load_engine
from agentcho.integrations.vllm import versions
from agentcho.lab.commands.workflows import _check_vllm
from agentcho.protocol.progress import no_progress
from agentcho.runner import other_engines
from agentcho.serve.config import ServeConfig
from agentcho.serve.web.keys import ApiKeys
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
        ({"tensor_parallel": 0}, "greater than or equal to 1"),
        ({"speculate": True}, "speculate cannot be used with engine vllm: only agentcho's own engine supports"),
        ({"reuse": "in-place"}, "reuse in-place cannot be used with engine vllm, which supports rotate only"),
        ({"model": "fake"}, "engine vllm needs a model with weights, and the fake model has none"),
        ({"model": "openai:m", "base_url": "http://127.0.0.1:9/v1"}, "engine applies to models that are loaded here"),
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


@pytest.mark.parametrize("kind", [RunConfig, ServeConfig, ModelConfig, EngineOptions])
@pytest.mark.parametrize("name", ["tensor_parallel", "pipeline_parallel"])
def test_only_a_model_in_it_is_divided_among_gpus(kind: Any, name: str) -> None:
    model: dict[str, Any] = {} if kind is EngineOptions else {"model": "smollm2"}
    assert kind(**model, engine="vllm", **{name: 2}).division == {f"{name}_size": 2}
    assert kind(**model, engine="vllm").division == {}
    with pytest.raises(ValidationError, match=f"{name} has no effect without engine=vllm; give engine=vllm too"):
        kind(**model, **{name: 2})


def test_where_it_is_not_installed_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", none)
    with pytest.raises(ExtraMissing, match=r"vllm is needed for engine vllm .*: pip install 'agentcho\[vllm\]'"):
        load_engine(RunConfig(model="understudy", engine="vllm"))


def test_the_number_of_gpus_of_a_run_is_given_to_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[object]()

    class Loads:
        @staticmethod
        def load(*args: object, **options: object) -> FakeEngine:
            asked.append(options["options"])
            return FakeEngine()

    name = "agentcho.integrations.vllm.engine"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(VllmEngine=Loads))
    divisions: list[dict[str, Any]] = [{}, {"tensor_parallel": 2}, {"tensor_parallel": 2, "pipeline_parallel": 3}]
    for division in divisions:
        load_engine(RunConfig(model="understudy", engine="vllm", **division))
    assert asked == [{}, {"tensor_parallel_size": 2}, {"tensor_parallel_size": 2, "pipeline_parallel_size": 3}]


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
    with pytest.raises(ModelError, match=rf"vLLM {told} is installed, but engine vllm is tested with 0\.32 only"):
        versions.installed()


def test_the_tested_version_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda name: "0.32.4")
    assert versions.installed() == "0.32.4"


def test_a_server_on_it_shows_no_log_probabilities_unless_it_is_told_to() -> None:
    assert ServeConfig(engine="vllm").logprobs_rule == "refuse"
    assert ServeConfig(engine="vllm", logprobs="raw").logprobs_rule == "raw"
    assert ServeConfig().logprobs_rule == "exact"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"logprobs": "exact"}, "logprobs=exact cannot be used with engine vllm: vLLM has no deterministic profile"),
        ({"deterministic": True}, "deterministic cannot be used with engine vllm"),
        ({"prefill_budget": 64}, "prefill_budget cannot be used with engine vllm: vLLM schedules prefills itself"),
        ({"weights": "int8"}, "weights cannot be used with engine vllm"),
        ({"adapters": {"calm": "folder"}}, "adapter cannot be used with engine vllm"),
        ({"model": "fake"}, "engine vllm needs a model with weights"),
    ],
)
def test_a_server_refuses_what_it_cannot_do_on_it(options: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(told)):
        ServeConfig.model_validate({"engine": "vllm", **options})


def test_a_server_loads_its_model_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[RunConfig]()

    def loads(config: RunConfig, tell: object) -> FakeEngine:
        asked.append(config)
        return FakeEngine()

    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", loads)
    served = _loaded(ServeConfig(engine="vllm"), ApiKeys(), no_progress)
    assert [config.engine for config in asked] == ["vllm"]
    assert served[0].name == "understudy"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"threads": 1}, "threads cannot be used with engine vllm: set OMP_NUM_THREADS"),
        ({"adapter": "folder"}, "adapter cannot be used with engine vllm"),
        ({"device_map": "auto"}, "device_map cannot be used with engine vllm"),
        ({"keep_cache": "folder"}, "keep_cache cannot be used with engine vllm"),
        ({"engine": "vlm"}, "unknown engine 'vlm'; give agentcho or vllm"),
    ],
)
def test_an_engine_in_python_refuses_what_it_cannot_keep(options: dict[str, Any], told: str) -> None:
    with pytest.raises(AgentchoError, match=re.escape(told)):
        Engine.load("understudy", **{"engine": "vllm", **options})


def test_options_of_vllm_are_refused_without_it() -> None:
    with pytest.raises(ConfigError, match="options are arguments of vLLM; add engine='vllm'"):
        Engine.load("understudy", options={})  # type: ignore[call-overload]


def test_an_engine_in_python_is_made_by_its_own_class(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[object]()

    class Loads:
        @staticmethod
        def load(*args: object, **options: object) -> FakeEngine:
            asked.append((args[0], args[1], args[2].context, options["options"]))  # type: ignore[attr-defined]
            return FakeEngine()

    monkeypatch.setitem(other_engines.FOUND, "vllm", (__name__, "LOADS"))
    monkeypatch.setattr(sys.modules[__name__], "LOADS", Loads, raising=False)
    Engine.load("understudy", engine="vllm", dtype="float32", context=512, options={"max_num_seqs": 4})
    assert asked == [("understudy", "float32", 512, {"max_num_seqs": 4})]


@pytest.mark.parametrize(
    ("model", "bits", "arms", "told"),
    [
        ("fake", None, ["baseline"], "engine vllm needs a model with weights"),
        ("smollm2", "int8", ["baseline"], "weights cannot be used with engine vllm"),
        (
            "smollm2",
            None,
            ["baseline", "generate"],
            "arm generate cannot be run on engine vllm; give",
        ),
    ],
)
def test_a_benchmark_refuses_what_it_cannot_do_on_it(model: str, bits: str | None, arms: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        _check_vllm(model, {"weights": bits, "kv_dtype": None}, arms)

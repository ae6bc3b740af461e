"""`--weights` and low-bit keys and values: recorded, reused on resume, and refused early where they cannot apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agentcho.config import ModelConfig, RunConfig, again
from agentcho.games.runs.loading import check_loadable
from agentcho.games.runs.resume import differences, engine_differences
from agentcho.lab.sweep.plan import network
from agentcho.records.record import find
from agentcho.serve.config import ServeConfig
from tests.engines import Engines

from .conftest import Command

API = {"model": "openai:m", "base_url": "http://127.0.0.1:1/v1"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"model": "fake"}, "weights needs a model with weights, and the fake model has none"),
        ({"models": {"a": {"model": "fake", "weights": "int8"}}}, "models a: weights needs a model with weights"),
        (API, "weights applies to models that are loaded here, and openai:m is behind an API"),
        ({"merge": True, "adapter": "there"}, "cannot be merged into int8 weights; leave out merge or weights"),
        ({"weights": "int3"}, "Input should be 'int8' or 'int4'"),
    ],
)
def test_what_does_not_go_with_few_bits_is_refused_at_once(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        RunConfig(**{"weights": "int8", **options})


def test_a_server_of_the_fake_model_has_no_weights() -> None:
    with pytest.raises(ValidationError, match="weights needs a model with weights"):
        ServeConfig(model="fake", weights="int8")


def test_every_model_of_a_run_is_loaded_in_its_own_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    places = list[Any]()
    monkeypatch.setattr(
        "agentcho.runner.model.loading.check_model_files",
        lambda weights, markers, context: places.append(weights.place),
    )
    asked = {"b": ModelConfig(model="x", weights="int8"), "c": ModelConfig(model="x")}
    check_loadable(RunConfig(model="y", weights="int8", models=asked), "accept")
    assert [place.bits for place in places] == ["int8", "int8", None]


def test_a_network_in_other_bits_is_another_one() -> None:
    assert network(RunConfig(model="x", weights="int8")) != network(RunConfig(model="x"))


def test_what_was_asked_for_is_on_record_and_is_not_changed_on_the_way(
    agentcho: Command, engines: Engines, here: Path
) -> None:
    words = ("--model", str(engines.folder()), "--device", "cpu", "--weights", "int8", "--max-tokens", "2")
    assert agentcho("run", "direct", *words).code == 0
    info = find("last", here / "runs").info
    assert (info.config.weights, info.engine["bits"]) == ("int8", "int8")
    assert differences(info, info.scenario, info.options, info.config, info.tasks) == []
    changed = info.config.model_copy(update={"weights": None})
    assert differences(info, info.scenario, info.options, changed, info.tasks) == ["weights (int8, not None)"]
    whole = {name: value for name, value in info.engine.items() if name != "bits"}
    assert engine_differences(info.engine, whole) == ["the model's bits (int8, not none)"]
    assert again(["agentcho", "run"], info.config, ["weights"]) == "agentcho run --weights int8"


# -- keys and values in few bits -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"model": "fake"}, "kv_dtype needs a model with weights, and the fake model has none"),
        ({"models": {"a": {"model": "fake", "kv_dtype": "int8"}}}, "models a: kv_dtype needs a model with weights"),
        (API, "kv_dtype applies to models that are loaded here, and openai:m is behind an API"),
        ({"kv_dtype": "fp8"}, "Input should be 'int8'"),
    ],
)
def test_what_does_not_go_with_rounded_keys_and_values_is_refused_at_once(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        RunConfig(**{"kv_dtype": "int8", **options})


def test_a_server_of_the_fake_model_keeps_nothing_rounded() -> None:
    with pytest.raises(ValidationError, match="kv_dtype needs a model with weights"):
        ServeConfig(model="fake", kv_dtype="int8")


def test_every_model_of_a_run_keeps_what_it_was_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    places = list[Any]()
    monkeypatch.setattr(
        "agentcho.runner.model.loading.check_model_files",
        lambda weights, markers, context: places.append(weights.place),
    )
    asked = {"b": ModelConfig(model="x", kv_dtype="int8"), "c": ModelConfig(model="x")}
    check_loadable(RunConfig(model="y", kv_dtype="int8", models=asked), "accept")
    assert [place.kv for place in places] == ["int8", "int8", None]


def test_a_network_with_rounded_keys_and_values_is_another_one() -> None:
    assert network(RunConfig(model="x", kv_dtype="int8")) != network(RunConfig(model="x"))


def test_what_keys_and_values_were_kept_in_is_on_record_and_is_not_changed_on_the_way(
    agentcho: Command, engines: Engines, here: Path
) -> None:
    words = ("--model", str(engines.folder()), "--device", "cpu", "--kv-dtype", "int8", "--max-tokens", "2")
    assert agentcho("run", "direct", *words).code == 0
    info = find("last", here / "runs").info
    assert (info.config.kv_dtype, info.engine["kv_dtype"]) == ("int8", "int8")
    changed = info.config.model_copy(update={"kv_dtype": None})
    assert differences(info, info.scenario, info.options, changed, info.tasks) == ["kv_dtype (int8, not None)"]
    whole = {name: value for name, value in info.engine.items() if name != "kv_dtype"}
    assert engine_differences(info.engine, whole) == ["the model's kv_dtype (int8, not none)"]
    assert agentcho("run", "--resume", "last", "--kv-dtype", "int8").code == 0
    assert again(["agentcho", "run"], info.config, ["kv_dtype"]) == "agentcho run --kv-dtype int8"

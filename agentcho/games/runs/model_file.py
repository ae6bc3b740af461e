"""Reads the file of `--models`: one TOML table per model of a run, with the fields of `ModelConfig`.

The table "default" is the run's own model.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agentcho.config import DEFAULT_MODEL, KEYS, OWN, ModelConfig, RunConfig, model_name
from agentcho.errors import ConfigError


def read_models(file: Path, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run: those that were typed, and the models of a file.

    Raises `ConfigError`, which names the invalid table and field, and quotes no value.
    """
    models = tables(file)
    own = models.pop(DEFAULT_MODEL, None)
    if own is None:
        return {**typed, "models": models}
    if twice := [name for name in OWN if name in typed and name not in KEYS]:
        option = twice[0].replace("_", "-")
        raise ConfigError(
            f"{file}: [{DEFAULT_MODEL}] is the run's own model, and --{option} contradicts it; give only one of them"
        )
    return {**RunConfig.of_own(own), **typed, "models": models}


def tables(file: Path) -> dict[str, ModelConfig]:
    """Return the models of a file by name. Raises as `read_models`."""
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"{file} cannot be read: {reason}; give a TOML file of models") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    return {name: _model(file, name, table) for name, table in tables.items()}


def _model(file: Path, name: str, table: Any) -> ModelConfig:
    if not isinstance(table, dict):
        raise ConfigError(
            f"{file}: {name} is outside any table; begin a table with [NAME], where NAME is the name that agents use"
        )
    try:
        if name != DEFAULT_MODEL:
            model_name(name)
        return ModelConfig.model_validate(table)
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False)
        first = min(faults, key=lambda each: each["type"] != "extra_forbidden")
        field = " ".join(map(str, first["loc"]))
        there = ", ".join(ModelConfig.model_fields)
        fault = f"there are {there}" if first["type"] == "extra_forbidden" else first["msg"]
        raise ConfigError(f"{file}: [{name}] {field}: {fault}") from None
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None

"""Converts command-line or function arguments, and the YAML file that they may name, to the options of a sweep.
Arguments override the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from agentcho.config import DEFAULT_MODEL, ModelConfig, RunConfig
from agentcho.errors import AgentchoError, ConfigError
from agentcho.games.runs import library
from agentcho.games.runs.model_file import read_models, tables
from agentcho.lab.sweep.axes import Value, axes, split
from agentcho.lab.sweep.grid import Fixed, as_model, check_axis
from agentcho.lab.sweep.run import GAMES, SweepOptions
from agentcho.lab.sweep.yaml_file import SweepFile, is_file, read_sweep
from agentcho.scenario import Scenario

TOML = ".toml"
NOT_IN_FILES = ("part", "models", "own_model", "games")


class SweepArguments(NamedTuple):
    """The arguments of the command line or function call; only those options that were given."""

    scenario: str | type[Scenario]
    grid: Mapping[str, str | Sequence[Any]]
    models: str | Sequence[Any] | None
    set: Mapping[str, Any]
    filters: Sequence[str]
    run: Mapping[str, Any]
    at_once: int | None = None
    retries: int | None = None
    out: Path | None = None


def asked(typed: SweepArguments) -> SweepOptions:
    """The options of the sweep. `ConfigError`: the arguments are invalid."""
    grid = {name: split(words, "grid", f"{name}: ") for name, words in typed.grid.items()}
    models = [] if typed.models is None else models_of(split(typed.models, "models"))
    found = SweepOptions(typed.scenario, with_files(grid), models, Fixed(typed.set, {"games": GAMES, **typed.run}))
    found = found._replace(filters=typed.filters, out=typed.out, at_once=typed.at_once, retries=typed.retries or 0)
    return _of_file(typed.scenario, typed, found) if is_file(typed.scenario) else found


def models_of(given: Iterable[Any]) -> list[Value]:
    """The values of the axis of models, from names, files with one model per table, `ModelConfig`s, or dicts of their
    fields with a name."""
    found: list[Value] = []
    for each in given:
        match each:
            case Value():
                found.append(each)
            case str() if each.endswith(TOML):
                named = tables(Path(each))
                found += [as_model(m.model if n == DEFAULT_MODEL else n, m) for n, m in named.items()]
            case str():
                found.append(Value(each, {"model": each}))
            case ModelConfig():
                found.append(as_model(each.model, each))
            case dict():
                found.append(_table(each))
            case _:
                raise ConfigError(f"models: {each!r} is neither the name of a model nor a table of its fields")
    return found


def _table(fields: Mapping[str, Any]) -> Value:
    try:
        model = ModelConfig.model_validate({name: value for name, value in fields.items() if name != "name"})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"models: {' '.join(map(str, first['loc']))}: {first['msg']}") from None
    return as_model(str(fields.get("name", model.model)), model)


def with_files(grid: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """The grid with each file of models for agents (`models`) replaced by its content."""
    read = {name: list(values) for name, values in grid.items()}
    for name in ("models", "run.models"):
        if name in read:
            read[name] = [_society(value) for value in read[name]]
    return read


def _society(file: Any) -> Value:
    if isinstance(file, Value):
        return file
    return Value(str(file), read_models(Path(str(file)), {}))


def _of_file(path: str, typed: SweepArguments, found: SweepOptions) -> SweepOptions:
    """The options in a file, overridden by the arguments."""
    options = [name for name, field in RunConfig.model_fields.items() if field.description or name == "in_place"]
    file = read_sweep(Path(path), [name for name in options if name not in NOT_IN_FILES])
    own, run = file.own, {**file.run, **({"games": file.own["games"]} if "games" in file.own else {})}
    _check_run(file, run)
    models = found.models if typed.models is not None else _models(file)
    return SweepOptions(
        scenario=own["scenario"],
        grid={**_grid(file), **found.grid},
        models=models,
        fixed=Fixed({**own.get("set", {}), **typed.set}, {"games": GAMES, **run, **typed.run}),
        filters=typed.filters or [str(word) for word in own.get("filter", [])],
        out=typed.out or (Path(own["out"]) if "out" in own else None),
        at_once=typed.at_once or own.get("at_once"),
        retries=own.get("retries", 0) if typed.retries is None else typed.retries,
    )


def _models(file: SweepFile) -> list[Value]:
    try:
        return models_of(file.own.get("models", []))
    except ConfigError as error:
        raise file.fault(str(error), "models") from None


def _check_run(file: SweepFile, run: Mapping[str, Any]) -> None:
    """`ConfigError`, with the line: a value does not fit its option."""
    try:
        RunConfig(**run)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            if each["loc"]:
                raise file.fault(f"{each['loc'][0]}: {each['msg']}", str(each["loc"][0])) from None


def _grid(file: SweepFile) -> dict[str, list[Any]]:
    """The grid of a file; each option is checked alone, so that errors have its line."""
    grid: dict[str, list[Any]] = file.own.get("grid", {})
    try:
        kind = library.scenario(file.own["scenario"])
    except AgentchoError as error:
        raise file.fault(str(error), "scenario") from error
    for name, values in grid.items():
        try:
            (axis,) = axes(with_files({name: values}), (), kind)
            check_axis(axis, partial(library.configured, kind))
        except ConfigError as error:
            raise file.fault(str(error), "grid", name) from None
    return with_files(grid)

"""The cells of a sweep: every combination of the values of its axes, as a checked scenario and run config. Independent
of what is on disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from pydantic import ValidationError

from agentcho.config import KEYS, LOADED, SERVED, ModelConfig, RunConfig, served
from agentcho.errors import ConfigError
from agentcho.lab.sweep.axes import MODEL, Axis, Value, shown, split
from agentcho.scenario import Scenario, json_options, secret_options

MOST = 10_000
"""The maximum of cells in a grid."""
SEED = "seed"
Make = Callable[[Mapping[str, Any]], Scenario]
Wanted = Mapping[str, tuple[frozenset[str], bool]]
"""By axis: values as shown, and whether cells have one of them (True) or none."""


class Cell(NamedTuple):
    """One combination: its values by axis as shown, what is played, and how. `key` identifies everything that
    determines what its games are, except their number."""

    values: Mapping[str, str]
    scenario: Scenario
    config: RunConfig
    key: str

    @property
    def name(self) -> str:
        """Its values as text."""
        return " ".join(f"{axis}={value}" for axis, value in self.values.items())

    @property
    def row(self) -> tuple[tuple[str, str], ...]:
        """The values that it shares with cells that differ only in the seed."""
        return tuple((axis, value) for axis, value in self.values.items() if axis != SEED)


class Fixed(NamedTuple):
    """The options of the scenario and of the run that all cells share, as given."""

    scenario: Mapping[str, Any]
    run: Mapping[str, Any]


def cells(axes: Sequence[Axis], fixed: Fixed, make: Make, wanted: Wanted) -> tuple[Cell, ...]:
    """The cells of a grid that pass the filters; the last axis varies fastest. `make` makes the scenario from its
    options.

    `ConfigError`: an invalid value, with its cell; equal cells; no cells, or more than `MOST`.
    """
    if (count := prod(len(axis.values) for axis in axes)) > MOST:
        raise ConfigError(f"the grid has {count} cells, but at most {MOST} are allowed; give fewer values")
    _check_said_once(axes, fixed)
    found: dict[str, Cell] = {}
    for values in product(*(axis.values for axis in axes)):
        if not _is_wanted(axes, values, wanted):
            continue
        cell = _cell(axes, values, fixed, make)
        if (other := found.get(cell.key)) is not None:
            raise ConfigError(f"two cells are the same: {other.name} and {cell.name}; leave one out")
        found[cell.key] = cell
    if not found:
        there = ", ".join(f"{axis.name}={'|'.join(value.shown for value in axis.values)}" for axis in axes)
        raise ConfigError(f"--filter leaves no cell of the grid, which has {there}; give values from the grid")
    return tuple(found.values())


def check_axis(axis: Axis, make: Make) -> None:
    """`ConfigError`: a value that does not fit its option, whatever the others are."""
    for value in axis.values:
        try:
            if axis.home == "scenario":
                make(value.options)
            else:
                RunConfig(**value.options)
        except (ConfigError, ValidationError) as error:
            cause = error if isinstance(error, ValidationError) else error.__cause__
            told = _of(cause, axis.field) if isinstance(cause, ValidationError) else None
            if told is not None:
                raise ConfigError(f"grid {axis.name}: {value.shown} does not fit: {told}") from None


def _of(error: ValidationError, field: str) -> str | None:
    """The fault of one option; None: that option alone has none."""
    faults = error.errors(include_url=False, include_input=False)
    return next((each["msg"].removeprefix("Value error, ") for each in faults if field in each["loc"]), None)


def _check_said_once(axes: Sequence[Axis], fixed: Fixed) -> None:
    said = {"scenario": fixed.scenario, "run": fixed.run, "limit": fixed.run.get("limits") or {}}
    for axis in axes:
        if axis.field in said[axis.home]:
            raise ConfigError(f"{axis.name} is in the grid and also set for all cells; give it once")


def wanted(words: Sequence[str], axes: Sequence[Axis]) -> dict[str, tuple[frozenset[str], bool]]:
    """Parse filters such as `strategy=a,b`, `temperature!=0` and `tasks=["a,b.jsonl"]`. `ConfigError`: a filter is
    invalid, or names something that the grid does not have."""
    by_name = {name: axis for axis in axes for name in (f"{axis.home}.{axis.field}", axis.name)}
    found = dict[str, tuple[frozenset[str], bool]]()
    for word in words:
        name, equals, values = word.partition("=")
        positive, name = not name.endswith("!"), name.removesuffix("!")
        if not equals or name not in by_name:
            raise ConfigError(
                f"--filter {word}: give OPTION=VALUE,VALUE or OPTION!=VALUE; axes: {', '.join(a.name for a in axes)}"
            )
        name = by_name[name].name
        if name in found:
            raise ConfigError(f"--filter {name} is given twice; give all its values in one filter")
        given = split(values, "filter", f"{name}: ")
        found[name] = frozenset(by_name[name].find(shown(value)).shown for value in given), positive
    return found


def _is_wanted(axes: Sequence[Axis], values: Sequence[Value], wanted: Wanted) -> bool:
    for axis, value in zip(axes, values, strict=True):
        if axis.name in wanted and (value.shown in wanted[axis.name][0]) != wanted[axis.name][1]:
            return False
    return True


def _cell(axes: Sequence[Axis], values: Sequence[Value], fixed: Fixed, make: Make) -> Cell:
    own, run = dict(fixed.scenario), _common(axes, values, fixed)
    limits = dict(run.pop("limits", None) or {})
    for axis, value in zip(axes, values, strict=True):
        if axis.home == "scenario":
            own |= value.options
        elif axis.home == "limit":
            limits |= value.options["limits"]
        else:
            run |= value.options
    run |= {"limits": limits} if limits else {}
    shown = {axis.name: value.shown for axis, value in zip(axes, values, strict=True)}
    try:
        scenario, config = make(own), RunConfig(**run)
    except ValidationError as error:
        raise ConfigError(f"{_name(shown)}: {_fault(error)}") from None
    except ConfigError as error:
        raise ConfigError(f"{_name(shown)}: {error}") from None
    _check_secrets(axes, scenario)
    return Cell(shown, scenario, config, key(scenario, config))


def _common(axes: Sequence[Axis], values: Sequence[Value], fixed: Fixed) -> dict[str, Any]:
    """The run options of all cells. If the grid has both models that are loaded here and models behind APIs, a cell
    does not get the options of the other kind."""
    models = next((axis.values for axis in axes if axis.name == MODEL), ())
    kinds = {served(str(model.options.get(MODEL))) for model in models}
    if len(kinds) < 2:
        return dict(fixed.run)
    mine = next(value.options[MODEL] for axis, value in zip(axes, values, strict=True) if axis.name == MODEL)
    others = set(LOADED) if served(str(mine)) else set(SERVED)
    return {name: value for name, value in fixed.run.items() if name not in others}


def _fault(error: ValidationError) -> str:
    """The fault in the options of a run, as text."""
    first = error.errors(include_url=False, include_input=False)[0]
    told = first["msg"].removeprefix("Value error, ")
    where = " ".join(str(part).replace("_", "-") for part in first["loc"])
    return f"{where}: {told}" if where else f"{told}. Or leave out such cells with --filter"


def _name(shown: Mapping[str, str]) -> str:
    return " ".join(f"{axis}={value}" for axis, value in shown.items())


def _check_secrets(axes: Sequence[Axis], scenario: Scenario) -> None:
    secret = secret_options(scenario)
    for axis in axes:
        if axis.home == "scenario" and axis.field in secret:
            raise ConfigError(
                f"--grid {axis.name}: it is or has a secret, but values of a grid are printed; give it with --set"
            )


def key(scenario: Scenario, config: RunConfig) -> str:
    """A digest of everything that determines what games are, except their number."""
    whole = {"scenario": scenario.name, **settings(scenario, config)}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:12]


def settings(scenario: Scenario, config: RunConfig) -> dict[str, Any]:
    """A cell as JSON: the options of its scenario, and its non-default run options. Contains no secrets, and not where
    keys are."""
    run = config.model_dump(mode="json", exclude_defaults=True, exclude={"games", "part", *KEYS})
    for model in (run.get("own_model"), *run.get("models", {}).values()):
        for name in KEYS if model else ():
            model.pop(name, None)
    return {"options": json_options(scenario), "run": run}


def as_model(shown: str, model: ModelConfig) -> Value:
    """A value of the axis of models that is more than a name."""
    said = {name: getattr(model, name) for name in model.model_fields_set}
    return Value(shown, RunConfig.of_own(model) if model.served else said)

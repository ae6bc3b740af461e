"""The axes of a sweep: options of the scenario, options of the run and models, each with its values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from agentcho.config import Limits, RunConfig
from agentcho.errors import ConfigError, asking
from agentcho.scenario import Scenario

Home = Literal["scenario", "run", "limit"]
ELSEWHERE = {
    "games": "set the number of games per cell with -n (games)",
    "part": "a sweep resumes by itself where it stopped; leave part out",
    "limits": f"name one of the limits: {', '.join(Limits.model_fields)}",
    "own_model": "name models with --models (models)",
    "people": "only models can play the cells of a sweep; leave it out",
    "allow_vendor": "set it once for all cells, outside of the grid",
}
"""Run options that a grid cannot have, and why."""
MODEL = "model"


class Value(NamedTuple):
    """One value of an axis: as shown in tables and used by filters, and the options that it sets."""

    shown: str
    options: Mapping[str, Any]


class Axis(NamedTuple):
    """One option with its values in order; the first is the reference. `name`: as in tables and filters, with a prefix
    only if a run has an option of the same name."""

    name: str
    home: Home
    values: tuple[Value, ...]

    @property
    def field(self) -> str:
        """The name of the option in its scenario or run."""
        return _field(self.name)

    def find(self, word: str) -> Value:
        """The value that is shown as this word. `ConfigError`: there is none."""
        for value in self.values:
            if same(value.shown, word):
                return value
        raise ConfigError(
            f"--filter {self.name}={word}: no such value; the grid has {', '.join(v.shown for v in self.values)}"
        )


def axes(grid: Mapping[str, Sequence[Any]], models: Sequence[Value], kind: type[Scenario]) -> tuple[Axis, ...]:
    """The axes of a grid, in its order, followed by the axis of models. A value that is a `Value` is used unchanged.

    `ConfigError`: an option that neither the scenario nor the run has, that both have, or that is given twice; an axis
    without values, or with an empty or repeated value.
    """
    found = [_axis(name, list(values), kind) for name, values in grid.items()]
    if models:
        found.append(Axis(MODEL, "run", tuple(models)))
    if not found:
        raise ConfigError("a sweep must vary something; give --grid OPTION=VALUE,VALUE or --models MODEL,MODEL")
    _check_once([(axis.home, axis.field) for axis in found])
    for axis in found:
        _check_values(axis)
    return tuple(found)


def _axis(name: str, values: list[Any], kind: type[Scenario]) -> Axis:
    home, field = _home(name, kind)
    known = f"scenario.{field}" if home == "scenario" and field in RunConfig.model_fields else field
    return Axis(known, home, tuple(v if isinstance(v, Value) else _value(home, field, v) for v in values))


def _home(name: str, kind: type[Scenario]) -> tuple[Home, str]:
    """Where an option belongs, and its name there."""
    own = _own(kind)
    prefix = name.partition(".")[0]
    field = _field(name)
    run = {each for each in RunConfig.model_fields if each not in ELSEWHERE}
    homes: dict[Home, bool] = {"scenario": field in own, "run": field in run, "limit": field in Limits.model_fields}
    there: list[Home] = [home for home, has in homes.items() if has and prefix in (name, home)]
    if not there and field in ELSEWHERE:
        raise ConfigError(f"grid {name}: {ELSEWHERE[field]}")
    if not there:
        raise ConfigError(
            f"grid {name}: no such option. {kind.name} has {', '.join(own) or 'none'}; a run has "
            f"{', '.join(sorted(run))}, and the limits {', '.join(Limits.model_fields)}"
            f"{asking(name, {*own, *run, *Limits.model_fields})}"
        )
    if len(there) > 1:
        both = " or ".join(f"{home}.{name}" for home in there)
        raise ConfigError(f"grid {name}: {kind.name} and the run both have an option of this name; give {both}")
    return there[0], field


def _own(kind: type[Scenario]) -> list[str]:
    """The scenario's options, by the names under which they are given."""
    return [field.alias or name for name, field in kind.Options.model_fields.items()]


def _field(name: str) -> str:
    """The field name of an option, without a prefix."""
    prefix, _, rest = name.partition(".")
    field = rest if rest and prefix in ("scenario", "run", "limit") else name
    return field if prefix == "scenario" else field.replace("-", "_")


def _value(home: Home, field: str, given: Any) -> Value:
    if home == "limit":
        return Value(shown(given), {"limits": {field: given}})
    if home == "run" and given == "null":
        return Value("null", {field: None})
    return Value(shown(given), {field: given})


def split(words: str | Sequence[Any], option: str, axis: str = "") -> list[Any]:
    """Split values at commas, or parse a JSON list, for values with commas of their own; other sequences are unchanged.
    `ConfigError` names the `option` and its `axis`."""
    if not isinstance(words, str):
        return list(words)
    if words.lstrip().startswith("["):
        try:
            found = json.loads(words)
        except ValueError:
            found = None
        if not isinstance(found, list):
            raise ConfigError(f"{axis}{words!r} is not a JSON list; give [VALUE, VALUE]", option)
        return found
    return [word.strip() for word in words.split(",")]


def shown(given: Any) -> str:
    """A value as shown in tables."""
    return given if isinstance(given, str) else json.dumps(given, default=str, ensure_ascii=False)


def same(one: str, other: str) -> bool:
    """Whether two words mean the same value: 0.70 is 0.7."""
    return one == other or (_number(one) is not None and _number(one) == _number(other))


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _check_once(names: list[tuple[Home, str]]) -> None:
    for home, name in names:
        if names.count((home, name)) > 1:
            raise ConfigError(f"{name} is in the grid twice; give all its values in one list")


def _check_values(axis: Axis) -> None:
    if not axis.values or any(not value.shown.strip() for value in axis.values):
        raise ConfigError(f"grid {axis.name}: a value is empty; give {axis.name}=VALUE,VALUE, or null for none")
    for place, value in enumerate(axis.values):
        if any(same(value.shown, other.shown) for other in axis.values[:place]):
            raise ConfigError(f"grid {axis.name}: {value.shown} is given twice; leave one out")

"""Words of the command line to checked values: run options, limits, and the options of a scenario.

Does not know: what the options mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from agentcho.config import RunConfig
from agentcho.errors import ConfigError
from agentcho.scenario import Scenario

Checked = TypeVar("Checked", bound=BaseModel)


def fields(option: str, given: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` words as a mapping; a usage error where one is none, or a key stands twice."""
    found: dict[str, str] = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{word!r} is not KEY=VALUE", param_hint=option)
        if key in found:
            raise typer.BadParameter(f"{key} is given twice", param_hint=option)
        found[key] = value
    return found


def run_config(**options: Any) -> RunConfig:
    """The run's options, checked."""
    return checked(RunConfig, **options)


def checked(kind: type[Checked], /, **options: Any) -> Checked:
    """Options as what they are options of; a usage error names the first that does not fit, `ConfigError` those that
    contradict each other."""
    try:
        return kind(**options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = " ".join(str(part).replace("_", "-") for part in first["loc"])
        if not where:
            raise ConfigError(first["msg"].removeprefix("Value error, ")) from None
        raise typer.BadParameter(first["msg"], param_hint=f"--{where.replace('limits ', 'limit ')}") from None


def configured(scenario: type[Scenario], given: Mapping[str, Any]) -> Scenario:
    """The scenario with its options. A word that does not fit as it stands is read as JSON (`3`, `true`, `null`).

    `ConfigError` names the option and lists those there are.
    """
    try:
        return scenario(**given)
    except ConfigError as error:
        read = {key: _json(value) if isinstance(value, str) else value for key, value in given.items()}
        if not isinstance(error.__cause__, ValidationError) or read == given:
            raise
        wrong = {str(fault["loc"][0]) for fault in error.__cause__.errors() if fault["loc"]}
        return scenario(**{key: read[key] if key in wrong else value for key, value in given.items()})


def _json(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word

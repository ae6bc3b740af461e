"""Machines as named numbers: peaks, memory, and the share of the peaks that is reached.

`hardware.toml` beside this file has the known ones, each with its source; a user's own file has the same format.
Independent of models.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentcho.errors import ConfigError

KNOWN = Path(__file__).with_name("hardware.toml")


class Hardware(BaseModel):
    """One machine. `flops` and `bandwidth` are peaks per second and `memory` is in bytes. A forward costs
    `step_seconds` of the host, `row_seconds` for each row, and `begin_seconds` if a row begins in it. `beside`: prefill
    tokens that run beside running decodes in one step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    flops: float = Field(gt=0)
    bandwidth: float = Field(gt=0)
    memory: float = Field(gt=0)
    compute_efficiency: float = Field(gt=0, le=1)
    bandwidth_efficiency: float = Field(gt=0, le=1)
    launch_seconds: float = Field(ge=0)
    layer_launches: float = Field(ge=0)
    step_seconds: float = Field(ge=0)
    row_seconds: float = Field(ge=0)
    begin_seconds: float = Field(ge=0)
    beside: int = Field(gt=0)
    source: str


def hardware(name: str) -> Hardware:
    """A known machine by its name, or the only table of a TOML file.

    Raises `ConfigError` if there is no such machine, or the file does not describe one.
    """
    known = _tables(KNOWN)
    if name in known:
        return Hardware(**known[name])
    file = Path(name)
    if file.suffix != ".toml":
        raise ConfigError(
            f"unknown hardware {name!r}; give one of {', '.join(known)}, or a TOML file with one table of "
            f"{', '.join(Hardware.model_fields)}"
        )
    tables = _tables(file)
    if len(tables) != 1:
        raise ConfigError(f"{file} has {len(tables)} tables; describe one machine in it")
    ((_, described),) = tables.items()
    try:
        return Hardware(**described)
    except (ValidationError, TypeError) as error:
        fault = error.errors()[0] if isinstance(error, ValidationError) else None
        where = ".".join(map(str, fault["loc"])) if fault else "its table"
        told = fault["msg"] if fault else "is none"
        raise ConfigError(f"{file} does not describe a machine: {where}: {told}") from None


def _tables(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as TOML: {error}") from None

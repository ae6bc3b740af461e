"""The base class of results that are written as JSON and read back."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Base of all results: frozen, without extra fields. Numbers that are not finite are written as strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
